#pragma once

#include <pcg/options.h>
#include <pcg/report.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "passes/plan.h"
#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/module_io.h"
#include "tools/pcg-opt/pipeline.h"

namespace pcg::opt {

/// A method's graph on its way through the passes.
struct MethodState {
  std::string name;
  std::shared_ptr<torch::jit::Graph> graph;
  std::optional<Plan> plan;  ///< Of `graph` as it is.
  /// The graph before it was outlined.
  std::shared_ptr<torch::jit::Graph> original;
};

/// What the passes work on: the graph of an IR text, or the chosen methods of a
/// module. Method graphs are copies until `commit`.
struct WorkState {
  PartitionOptions options;
  std::optional<LoadedModule> loaded;
  std::vector<MethodState> methods;
  PartitionReport report;
  bool planned = false;  ///< `report` holds a plan.
};

/// The chosen methods of a module: those named in `state.options.methods`, or
/// all public ones. Throws ToolError (bad input) for names it does not have.
void takeMethods(WorkState& state);

/// Writes changed graphs back into the module's methods.
void commit(WorkState& state);

/// Runs one pass on all methods. Its options hold for later passes too: what
/// `plan` goes by, `lower` records. Throws ToolError: bad input where the pass
/// does not accept what it was given, internal for failed assertions.
void runPass(const PassInstance& instance, WorkState& state,
             Diagnostics& diagnostics);

/// The place of a node in the text or the model's Python source; that of the
/// caller, or of what made its last input, where its own is not known. Without
/// a line where none is.
Location locate(const torch::jit::Node& node);

}  // namespace pcg::opt
