#pragma once

#include <string>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/passes.h"

namespace pcg::opt {

/// The plan of a method, a node a line, with the segment it goes to or the
/// reason why it stays eager:
///
///     # plan of forward: 1 segment, 1 break
///                | graph(%x : Tensor):
///     segment_0  |   %y : Tensor = aten::relu(%x)
///     host-read  |   %s : Scalar = aten::item(%y)
///                |   # aten::item copies tensor data to the host and waits
std::string planText(const MethodState& method);

/// The same as a graph for Graphviz: a box around each segment, breaks red.
std::string planDot(const MethodState& method);

/// Remarks about the plans and rewrites, at their source lines.
void makeRemarks(const WorkState& state, const Remarks& which,
                 Diagnostics& diagnostics);

/// Counts, one a line, from the plans in the report.
std::string statistics(const PartitionReport& report);

}  // namespace pcg::opt
