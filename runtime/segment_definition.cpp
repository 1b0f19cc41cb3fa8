#include "runtime/segment_definition.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <utility>

#include "passes/key_constants.h"
#include "passes/operators.h"
#include "passes/placement.h"
#include "passes/plan.h"
#include "passes/provenance.h"

namespace pcg {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

namespace {

// From here on, no dead code is eliminated.
void removeKeepMarkers(torch::jit::Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    ++it;
    for (torch::jit::Block* inner : node->blocks())
      removeKeepMarkers(inner);
    if (node->kind() == keepKind())
      node->destroy();
  }
}

}  // namespace

PartitionOptions planOptions(const SequenceState& state) {
  PartitionOptions options;
  options.min_segment_size = state.min_segment_size;
  options.graph_safe_ops = state.graph_safe_ops;
  return options;
}

std::shared_ptr<const SegmentDefinition> defineSegment(
    std::string name, std::shared_ptr<Graph> graph,
    std::vector<BoundValue> bound, std::vector<bool> borrowed,
    std::vector<bool> weights, const PartitionOptions& options) {
  removeKeepMarkers(graph->block());
  auto definition = std::make_shared<SegmentDefinition>();
  definition->ranges = {name + " warm-up", name + " capture", name + " replay",
                        name + " eager"};
  definition->name = std::move(name);
  definition->call_inputs = graph->inputs().size() - bound.size();
  definition->bound = std::move(bound);
  definition->borrowed = std::move(borrowed);
  definition->borrowed.resize(graph->outputs().size(), false);
  definition->weights = std::move(weights);
  definition->weights.resize(graph->inputs().size(), false);
  definition->nodes = countNodes(*graph->block());
  definition->read_by_placement = inputsReadByPlacement(*graph);
  {
    torch::jit::AliasDb aliases(graph);
    for (const Value* input : graph->inputs()) {
      const bool written = aliases.hasWriters(input);
      definition->maybe_written.push_back(written);
      definition->writes_inputs |= written;
    }
    for (KeyConstant& found : findKeyConstants(*graph)) {
      definition->key_constants[found.node] = {
          std::move(found.sources), found.glue,
          !aliases.hasWriters(found.node->output())};
    }
  }
  for (const PlannedBreak& latent : latentBreaks(*graph, options)) {
    definition->latent_breaks[latent.node] = latent.why;
  }
  definition->draws_random = drawsRandomNumbers(*graph->block());
  definition->program = std::make_shared<Program>(std::move(graph));
  return definition;
}

namespace {

// Where freezing has taken an object away, it has found that nobody reads it.
void assign(const IValue& module, const AttributeNotes::Note& note) {
  IValue object = module;
  std::size_t begin = 0;
  for (std::size_t end = note.path.find('.'); end != std::string::npos;
       begin = end + 1, end = note.path.find('.', begin)) {
    const std::string name = note.path.substr(begin, end - begin);
    if (!object.toObjectRef().type()->findAttributeSlot(name))
      return;
    object = object.toObjectRef().getAttr(name);
  }
  const std::string name = note.path.substr(begin);
  if (object.toObjectRef().type()->findAttributeSlot(name))
    object.toObject()->setAttr(name, note.value);
}

}  // namespace

std::vector<IValue> runBody(const Program& program, const IValue& module,
                            std::vector<IValue> inputs, NodeListener* listener,
                            const Program::SegmentHandler* segments,
                            NodeResults* results) {
  const AttributeNotes notes;
  try {
    return program.run(std::move(inputs), listener, segments, results);
  } catch (...) {
    for (const AttributeNotes::Note& note : notes.notes())
      assign(module, note);
    throw;
  }
}

}  // namespace pcg
