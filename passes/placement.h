#pragma once

#include <vector>

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Which inputs of a segment its body reads by where they lie in their storage
/// rather than by their elements: `as_strided`, which reaches memory outside
/// the tensor, and `storage_offset`. A copy of the elements alone cannot stand
/// for these. Pure.
///
///     graph(%x : Tensor, %y : Tensor):
///       %window : Tensor = aten::as_strided(%x, %sizes, %strides, %offset)
///       %z : Tensor = aten::add(%window, %y, %one)
///   → {true, false}
std::vector<bool> inputsReadByPlacement(torch::jit::Graph& graph);

}  // namespace pcg
