#include "passes/key_constants.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "passes/classify.h"
#include "passes/provenance.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;

class Finder {
  using Sources = std::vector<const Node*>;

 public:
  explicit Finder(Graph& graph) : provenance_(graph) { visit(graph.block()); }

  std::vector<KeyConstant> take() { return std::move(found_); }

 private:
  void visit(const Block* block) {
    for (const Node* node : block->nodes()) {
      for (const Block* inner : node->blocks())
        visit(inner);
      if (!dependsOnKey(*node))
        continue;
      Sources sources;
      for (const Value* input : node->inputs()) {
        const auto known = constant_.find(input);
        if (known != constant_.end())
          join(sources, known->second);
      }
      if (node->kind().is_aten()) {
        const bool glue =
            classifyOperator(*node, options_).kind == CaptureClass::kGlue;
        found_.push_back({node, sources, glue});
        if (!glue)
          sources = {node};
      }
      for (const Value* output : node->outputs())
        constant_[output] = sources;
    }
  }

  static void join(Sources& sources, const Sources& others) {
    for (const Node* other : others) {
      if (std::find(sources.begin(), sources.end(), other) == sources.end())
        sources.push_back(other);
    }
  }

  bool isConstant(const Value* value) const {
    return isHostType(*value->type()) ? !provenance_.isLive(value)
                                      : constant_.count(value) != 0;
  }

  bool dependsOnKey(const Node& node) const {
    if (!node.blocks().empty() || node.outputs().size() != 1 ||
        !containsTensor(*node.output()->type()) ||
        !std::all_of(
            node.inputs().begin(), node.inputs().end(),
            [this](const Value* input) { return isConstant(input); })) {
      return false;
    }
    if (isMutableContainer(*node.output()->type()) &&
        !staysAsBuilt(node.output())) {
      return false;
    }
    switch (node.kind()) {
      case prim::ListConstruct:
      case prim::TupleConstruct:
        return true;
      default:
        return node.kind().is_aten() &&
               isTensorOrList(*node.output()->type()) &&
               writtenInputs(node).empty() && !hasSideEffectsDeep(node) &&
               !drawsRandomNumbers(node);
    }
  }

  static bool isTensorOrList(const c10::Type& type) {
    return type.kind() == c10::TypeKind::TensorType ||
           (type.kind() == c10::TypeKind::ListType &&
            type.containedType(0)->kind() == c10::TypeKind::TensorType);
  }

  // A list that operators read in place, and that nobody else can reach.
  static bool staysAsBuilt(const Value* list) {
    return std::all_of(
        list->uses().begin(), list->uses().end(), [](const auto& use) {
          if (use.user->kind() == prim::ListUnpack)
            return true;
          const auto written = writtenInputs(*use.user);
          return use.user->kind().is_aten() &&
                 use.user->maybeSchema() != nullptr &&
                 std::find(written.begin(), written.end(), use.offset) ==
                     written.end();
        });
  }

  Provenance provenance_;
  PartitionOptions options_;
  // Constants, with the operators that made their memory.
  std::unordered_map<const Value*, Sources> constant_;
  std::vector<KeyConstant> found_;
};

}  // namespace

std::vector<KeyConstant> findKeyConstants(Graph& segment) {
  return Finder(segment).take();
}

}  // namespace pcg
