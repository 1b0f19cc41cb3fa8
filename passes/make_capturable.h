#pragma once

#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Replaces operators that cannot be captured by others that give bitwise the
/// same result and can.
///
///     %t : Tensor = aten::tensor(%scalar, %dtype, %device, %false)
///   →
///     %t : Tensor = aten::full(%empty_list, %scalar, %dtype, .., %device, ..)
///
///     %v : Tensor = aten::tensor(%scalar, .., %device, %false)
///     %o : Tensor = aten::index_put_(%x, [%mask], %v, %false)
///   →
///     %v : Tensor = aten::full(%empty_list, %scalar, .., "cpu", ..)
///     %o : Tensor = aten::index_put_(%x, [%mask], %v, %false)
///
/// (with a CPU scalar ATen runs the masked store as masked_fill), and literal
/// lists of up to eight constants become a stack of such fills.
///
/// Each rewrite applies only where types and uses prove the result unchanged.
/// Returns one sentence for each change, with the source line.
std::vector<std::string> makeCapturable(torch::jit::Graph& graph);

}  // namespace pcg
