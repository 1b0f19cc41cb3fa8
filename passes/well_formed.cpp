#include "passes/well_formed.h"

#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "passes/source_location.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;

[[noreturn]] void fail(const Node& node, const std::string& problem) {
  throw std::logic_error("graph is not well formed: " + describeNode(node) +
                         " " + problem);
}

class Checker {
 public:
  void run(const Graph& graph) {
    visitBlock(*graph.block());
    for (const auto& [value, count] : uses_) {
      if (value->uses().size() != count) {
        fail(*value->node(), "makes %" + value->debugName() + ", which has " +
                                 std::to_string(value->uses().size()) +
                                 " uses on record and " +
                                 std::to_string(count) + " in the graph");
      }
    }
  }

 private:
  void define(const Value* value, const Node* node) {
    if (value->node() != node) {
      fail(*node, "holds %" + value->debugName() +
                      ", which is recorded as made by " +
                      describeNode(*value->node()));
    }
    visible_.insert(value);
    uses_.emplace(value, 0);
  }

  void visitInputs(const Node& node) {
    for (const Value* input : node.inputs()) {
      if (visible_.count(input) == 0) {
        fail(node, "uses %" + input->debugName() +
                       ", which is not made before it in its block or in one "
                       "around it");
      }
      ++uses_[input];
    }
  }

  void visitBlock(const Block& block) {
    std::vector<const Value*> made;
    const auto defineAll = [&](const Node* node) {
      for (const Value* output : node->outputs()) {
        define(output, node);
        made.push_back(output);
      }
    };
    defineAll(block.param_node());
    for (const Node* node : block.nodes()) {
      if (node->owningBlock() != &block)
        fail(*node, "stands in a block that is not recorded as its own");
      visitInputs(*node);
      checkBlocks(*node);
      for (const Block* inner : node->blocks()) {
        if (inner->owningNode() != node)
          fail(*node, "has a block that is recorded as another node's");
        visitBlock(*inner);
      }
      defineAll(node);
    }
    visitInputs(*block.return_node());
    for (const Value* value : made)
      visible_.erase(value);
  }

  static void checkBlocks(const Node& node) {
    if (node.kind() == prim::If) {
      if (node.blocks().size() != 2 || node.inputs().size() != 1)
        fail(node, "is a branch without one condition and two blocks");
      for (const Block* block : node.blocks()) {
        if (!block->inputs().empty() ||
            block->outputs().size() != node.outputs().size()) {
          fail(node, "and its blocks differ in their results");
        }
      }
    } else if (node.kind() == prim::Loop) {
      if (node.blocks().size() != 1 || node.inputs().size() < 2)
        fail(node, "is a loop without trip count, condition and one block");
      const Block& body = *node.blocks()[0];
      const std::size_t carried = node.outputs().size();
      if (node.inputs().size() != carried + 2 ||
          body.inputs().size() != carried + 1 ||
          body.outputs().size() != carried + 1) {
        fail(node, "and its block differ in the values they carry around");
      }
    }
  }

  std::unordered_set<const Value*> visible_;
  // How often each value was met as an input.
  std::unordered_map<const Value*, std::size_t> uses_;
};

}  // namespace

void checkWellFormed(const Graph& graph) {
  Checker().run(graph);
}

}  // namespace pcg
