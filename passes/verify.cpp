#include "passes/verify.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "passes/classify.h"
#include "passes/operators.h"
#include "passes/provenance.h"
#include "passes/source_location.h"
#include "passes/well_formed.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

[[noreturn]] void fail(const Node& segment, const std::string& problem) {
  std::ostringstream out;
  out << "invariant broken in segment '" << segment.s(attr::name)
      << "': " << problem;
  throw std::logic_error(out.str());
}

std::string firstBreak(const Block* block, const Provenance& provenance);

// Why a node may not be inside, or an empty string. A branch may hold what no
// segment can, as long as its other side is free of it: the warm-up call splits
// the segment if the key leads there.
std::string breakAt(const Node* node, const Provenance& provenance) {
  if (node->kind() == segmentKind())
    return "holds another segment";
  // Operators the user vouched for are foreign here; only what no option can
  // make safe is checked.
  const CaptureSafety safety = classifyOperator(*node, PartitionOptions{});
  if (safety.kind == CaptureClass::kUnsafe) {
    switch (safety.reason) {
      case Reason::kSideEffect:
      case Reason::kModuleState:
      case Reason::kContextManager:
      case Reason::kAsynchronous:
      case Reason::kOpaqueCall:
        return describeNode(*node) + " " + safety.sentence;
      default:
        break;
    }
  }
  for (const Value* output : node->outputs()) {
    if (provenance.isLive(output)) {
      return describeNode(*node) + " reads tensor data on the host (%" +
             output->debugName() + ")";
    }
  }
  std::string problem;
  for (const Block* inner : node->blocks()) {
    std::string found = firstBreak(inner, provenance);
    if (found.empty() && node->kind() == prim::If)
      return "";
    if (problem.empty())
      problem = std::move(found);
  }
  return problem;
}

std::string firstBreak(const Block* block, const Provenance& provenance) {
  for (const Node* node : block->nodes()) {
    std::string problem = breakAt(node, provenance);
    if (!problem.empty())
      return problem;
  }
  return "";
}

void checkWrites(const Node& segment, const Block* block,
                 const Provenance& provenance) {
  for (const Node* node : block->nodes()) {
    for (const std::size_t position : writtenInputs(*node)) {
      const Value* target = node->input(position);
      const Origin& origin = provenance.originOf(target);
      if (origin.unknown) {
        fail(segment, describeNode(*node) + " writes %" + target->debugName() +
                          ", whose memory is not known");
      }
      const bool from_outside = std::any_of(
          origin.places.begin(), origin.places.end(), [](const auto& place) {
            return place.kind == Origin::Kind::kMethodInput;
          });
      if (from_outside && isMutableContainer(*target->type())) {
        fail(segment,
             describeNode(*node) + " changes a list or dict made outside");
      }
    }
    for (const Block* inner : node->blocks()) {
      checkWrites(segment, inner, provenance);
    }
  }
}

void checkBorder(const Node& segment) {
  const Graph& body = *segment.g(attr::Subgraph);
  if (body.inputs().size() != segment.inputs().size() ||
      body.outputs().size() != segment.outputs().size()) {
    fail(segment, "the call and its body differ in inputs or outputs");
  }
  const std::unordered_set<const Value*> inputs(body.inputs().begin(),
                                                body.inputs().end());
  std::unordered_set<const Value*> outputs;
  for (const Value* output : body.outputs()) {
    if (inputs.count(output) != 0) {
      fail(segment, "returns its input %" + output->debugName());
    }
    if (!outputs.insert(output).second) {
      fail(segment, "returns %" + output->debugName() + " twice");
    }
  }
  for (const auto& values : {body.inputs(), body.outputs()}) {
    for (const Value* value : values) {
      if (!isBoundaryType(*value->type())) {
        fail(segment, "%" + value->debugName() + " of type " +
                          value->type()->annotation_str() +
                          " crosses its border");
      }
    }
  }
}

void verifyBlock(Block* block) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks())
      verifyBlock(inner);
    if (node->kind() != segmentKind())
      continue;
    Graph& body = *node->g(attr::Subgraph);
    const Provenance provenance(body);
    checkBorder(*node);
    const std::string problem = firstBreak(body.block(), provenance);
    if (!problem.empty())
      fail(*node, problem);
    checkWrites(*node, body.block(), provenance);
    checkWellFormed(body);
  }
}

// What a reader of the program could notice moving, in program order.
void collectEvents(const Block* block, std::vector<std::string>& events) {
  for (const Node* node : block->nodes()) {
    if (node->kind() == segmentKind()) {
      collectEvents(node->g(attr::Subgraph)->block(), events);
      continue;
    }
    // An assignment counts where its note stands.
    if (node->kind() == noteAttributeKind()) {
      events.push_back(torch::jit::prim::SetAttr.toQualString());
      continue;
    }
    if (node->hasAttribute(deferredAttribute()) || node->kind() == keepKind())
      continue;
    const bool leaf = node->blocks().empty();
    if (leaf && (hasSideEffectsDeep(*node) || drawsRandomNumbers(*node) ||
                 !writtenInputs(*node).empty())) {
      events.push_back(qualifiedName(*node));
    }
    for (const Block* inner : node->blocks())
      collectEvents(inner, events);
  }
}

}  // namespace

void verify(Graph& graph) {
  checkWellFormed(graph);
  verifyBlock(graph.block());
}

void verifyOrder(Graph& original, Graph& outlined) {
  std::vector<std::string> before;
  std::vector<std::string> after;
  collectEvents(original.block(), before);
  collectEvents(outlined.block(), after);
  before.erase(std::remove(before.begin(), before.end(),
                           std::string(forceNoGraphKind().toQualString())),
               before.end());
  const auto difference =
      std::mismatch(before.begin(), before.end(), after.begin(), after.end());
  if (difference.first == before.end() && difference.second == after.end()) {
    return;
  }
  throw std::logic_error(
      "invariant broken: after outlining, " +
      (difference.second == after.end() ? std::string("nothing")
                                        : *difference.second) +
      " stands where " +
      (difference.first == before.end() ? std::string("nothing")
                                        : *difference.first) +
      " stood");
}

}  // namespace pcg
