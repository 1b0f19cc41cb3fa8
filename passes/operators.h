#pragma once

#include <c10/util/ArrayRef.h>

namespace c10 {
struct Symbol;
}

namespace pcg {

/// Kinds of the nodes that pcg adds to graphs.
///
/// `pcg::segment` holds an outlined run in its `Subgraph` attribute; it is
/// registered with conservative alias analysis, so that torch's passes neither
/// remove it nor move anything across it.
c10::Symbol segmentKind();

/// The node that calls a sequence: `pcg::run_segment`.
c10::Symbol runSegmentKind();

/// Marker operators a model may call: `torch.ops.pcg.no_graph_begin()`,
/// `no_graph_end()` and `force_no_graph()`. At run time they do nothing.
c10::Symbol noGraphBeginKind();
c10::Symbol noGraphEndKind();
c10::Symbol forceNoGraphKind();

/// Node attributes of the `annotate` pass.
c10::Symbol noGraphAttribute();       ///< Int: the node must stay eager.
c10::Symbol noGraphTagAttribute();    ///< String: which tag says so.
c10::Symbol mutableStateAttribute();  ///< Int, on GetAttr: may be reassigned.

}  // namespace pcg
