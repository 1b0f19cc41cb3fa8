#pragma once

#include <pcg/options.h>
#include <pcg/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "passes/capture_safety.h"

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace pcg {

/// A run of nodes of one block that becomes one CUDA graph per key.
struct PlannedSegment {
  /// `segment_0`, `segment_1`, ... in program order.
  std::string name;

  /// The run, in program order. Nodes inside the blocks of a member belong to
  /// it and are not listed. Eager glue may stand between members; it depends on
  /// none of them. A `prim::SetAttr` among them is made behind the segment.
  std::vector<torch::jit::Node*> nodes;

  /// Members whose results are used outside but would alias another boundary
  /// value: they are computed a second time behind the segment.
  std::vector<torch::jit::Node*> recomputed;

  /// Values from outside that members use, in order of first use. Constants
  /// are copied inside and do not appear.
  std::vector<torch::jit::Value*> inputs;

  /// Members' results used outside, in order of definition.
  std::vector<torch::jit::Value*> outputs;

  std::int64_t node_count = 0;    ///< With nested blocks.
  std::int64_t kernel_count = 0;  ///< Work-launching nodes, with blocks.
};

/// A node that stays eager and cuts a run.
struct PlannedBreak {
  torch::jit::Node* node = nullptr;
  CaptureSafety why;
};

/// Which node goes where, and why. Holds pointers into the planned graph and is
/// valid until that graph changes.
struct Plan {
  std::vector<PlannedSegment> segments;
  std::vector<PlannedBreak> breaks;
  std::vector<PlannedBreak> possible_breaks;  ///< See latentBreaks.
  std::int64_t eager_kernels = 0;  ///< Work-launching nodes outside segments.
};

/// Cuts a prepared and annotated graph into segments and breaks. Pure.
///
/// Each block is cut by itself: `prim::If` and `prim::Loop` whose path depends
/// only on host values and whose blocks hold no break are members of a run;
/// the blocks of all others are planned recursively. Program order is kept.
Plan plan(torch::jit::Graph& graph, const PartitionOptions& options);

/// The nodes that a segment may hold only while no call reaches them, with what
/// makes each of them a break: nodes in a branch that is chosen on the host and
/// whose other side holds none. A run takes such a branch in; the warm-up call
/// shows whether the key leads there. Pure.
std::vector<PlannedBreak> latentBreaks(torch::jit::Graph& graph,
                                       const PartitionOptions& options);

/// Adds a plan's segments and breaks to a report, under a method's name.
void addToReport(const Plan& plan, const std::string& method,
                 PartitionReport& report);

}  // namespace pcg
