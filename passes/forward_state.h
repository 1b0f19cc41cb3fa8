#pragma once

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Replaces a read of an attribute by the value that the graph itself assigned
/// to it before, where that is certain.
///
///     prim::SetAttr[name="pyramid"](%self, %levels)
///     %read : Tensor[] = prim::GetAttr[name="pyramid"](%self)
///     %n : int = aten::len(%read)
///   →
///     prim::SetAttr[name="pyramid"](%self, %levels)
///     %n : int = aten::len(%levels)
///
/// The assignment stays. Only objects that are reached from the method's
/// module by attributes alone count; an assignment to an attribute of the same
/// name of another object, and a call that may run code which is not seen, end
/// what is known. Afterwards a segment can hold what the read kept apart.
void forwardState(torch::jit::Graph& graph);

}  // namespace pcg
