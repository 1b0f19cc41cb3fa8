#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Returns a flat copy of a method's graph, ready to be planned.
///
///     %l : __torch__.Linear = prim::GetAttr[name="l"](%self)
///     %y : Tensor = prim::CallMethod[name="forward"](%l, %x)
///   →
///     %l : __torch__.Linear = prim::GetAttr[name="l"](%self)
///     %w : Tensor = prim::GetAttr[name="weight"](%l)
///     %b : Tensor? = prim::GetAttr[name="bias"](%l)
///     %y : Tensor = aten::linear(%x, %w, %b)
///
/// Calls are inlined with their call stacks and source ranges kept, profiling
/// information is removed, in-graph autocast regions are resolved to casts,
/// constants are propagated and pooled, dead code is removed. `graph` is not
/// changed. Afterwards no node is a call that could have been inlined.
///
/// Throws std::runtime_error naming the node and source line where a function
/// calls itself, a method does not exist, or no operator is registered.
std::shared_ptr<torch::jit::Graph> prepare(
    const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace pcg
