#pragma once

#include "passes/plan.h"

namespace pcg {

/// Moves each planned segment's nodes into a subgraph. Mechanical: decides
/// nothing.
///
///     %h : Tensor = aten::relu(%x)
///     %y : Tensor = aten::tanh(%h)
///   →
///     %y : Tensor = pcg::segment[name="segment_0", Subgraph=...](%x)
///   with
///     graph(%x : Tensor):
///       %h : Tensor = aten::relu(%x)
///       %y : Tensor = aten::tanh(%h)
///       return (%y)
///
/// A `prim::SetAttr` of the run moves behind the segment; where it stood, the
/// body tells with `pcg::note_attribute` that it has come by. Inputs stand in
/// order of first use, outputs in order of definition. The
/// plan must have been made for `graph` as it is; it is stale afterwards.
void outline(torch::jit::Graph& graph, const Plan& plan);

/// The `pcg::segment` nodes of an outlined graph, blocks included, in order.
std::vector<torch::jit::Node*> segmentNodes(torch::jit::Graph& graph);

}  // namespace pcg
