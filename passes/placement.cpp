#include "passes/placement.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string>

#include "passes/provenance.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool readsPlacement(const Node& node) {
  const std::string name = node.kind().toQualString();
  return name.rfind("aten::as_strided", 0) == 0 ||
         name == "aten::storage_offset" || name == "aten::sym_storage_offset";
}

void collect(const Block* block, const Provenance& provenance,
             const at::ArrayRef<const Value*> inputs,
             std::vector<bool>& found) {
  for (const Node* node : block->nodes()) {
    for (const Block* inner : node->blocks())
      collect(inner, provenance, inputs, found);
    if (!readsPlacement(*node))
      continue;
    const Origin& origin = provenance.originOf(node->input(0));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      found[i] = found[i] || origin.unknown ||
                 std::any_of(origin.places.begin(), origin.places.end(),
                             [&](const Origin::Place& place) {
                               return place.value == inputs[i];
                             });
    }
  }
}

}  // namespace

std::vector<bool> inputsReadByPlacement(Graph& graph) {
  const std::vector<const Value*> inputs(graph.inputs().begin(),
                                         graph.inputs().end());
  std::vector<bool> found(inputs.size(), false);
  collect(graph.block(), Provenance(graph), inputs, found);
  return found;
}

}  // namespace pcg
