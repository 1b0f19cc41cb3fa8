#include "passes/prepare.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/passes/clear_profiling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <vector>

#include "passes/forward_state.h"
#include "passes/input_check.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool isAutocastObject(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  if (!type || !type->name())
    return false;
  const std::string name = type->name()->qualifiedName();
  return name.find("autocast_mode") != std::string::npos &&
         name.find("autocast") != std::string::npos;
}

void collectAutocastBorders(Block* block, std::vector<Node*>& borders) {
  for (Node* node : block->nodes()) {
    if ((node->kind() == torch::jit::prim::Enter ||
         node->kind() == torch::jit::prim::Exit) &&
        node->inputs().size() > 0 && isAutocastObject(node->input(0))) {
      borders.push_back(node);
    }
    for (Block* inner : node->blocks())
      collectAutocastBorders(inner, borders);
  }
}

// TorchScript applies `with torch.autocast(...)` by a pass over the whole
// graph when a method is first optimized. Nodes hidden in segments would be
// missed, so the pass runs here, and the region's borders, which do nothing at
// run time, go: a second application at execution must not find them.
void resolveAutocast(const std::shared_ptr<Graph>& graph) {
  std::vector<Node*> borders;
  collectAutocastBorders(graph->block(), borders);
  if (borders.empty())
    return;
  torch::jit::Autocast(graph);
  borders.clear();
  collectAutocastBorders(graph->block(), borders);
  // Exits before enters: an exit may consume what its enter returned.
  for (auto it = borders.rbegin(); it != borders.rend(); ++it) {
    Node* node = *it;
    bool used = false;
    for (const Value* output : node->outputs())
      used |= output->hasUses();
    if (!used)
      node->destroy();
  }
}

bool hasInlinableCall(Block* block) {
  for (Node* node : block->nodes()) {
    if (torch::jit::tryToGraphFunction(node) != nullptr)
      return true;
    for (Block* inner : node->blocks()) {
      if (hasInlinableCall(inner))
        return true;
    }
  }
  return false;
}

}  // namespace

std::shared_ptr<Graph> prepare(const std::shared_ptr<Graph>& graph) {
  checkCalls(*graph);
  auto flat = graph->copy();
  // Where torch's optimizing executor is switched off, callees are not inlined
  // into before they are, and one pass reaches the first level of calls only.
  while (hasInlinableCall(flat->block()))
    torch::jit::Inline(*flat);
  checkOperators(*flat);
  torch::jit::ClearProfilingInformation(flat);
  resolveAutocast(flat);
  // Only values of immutable types are folded: a folded tensor would carry the
  // device of the machine that ran the pass.
  torch::jit::ConstantPropagationImmutableTypes(flat);
  torch::jit::LowerSimpleTuples(flat);
  forwardState(*flat);
  torch::jit::EliminateDeadCode(flat);
  return flat;
}

}  // namespace pcg
