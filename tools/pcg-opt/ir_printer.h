#pragma once

#include <string>

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace pcg::opt {

/// A graph as IR text that the reader turns back into the same graph.
///
/// The text is that of `Graph::toString(false)`, except where that would lose
/// something or change between runs: no source locations in blocks and
/// subgraphs, numbers with all their digits, strings that are not ASCII, scalar
/// type and sizes of tensors whose elements are left out, and objects numbered
/// instead of shown by their address.
std::string printGraph(const torch::jit::Graph& graph);

/// One node without its blocks, on one line without indentation.
std::string printNode(const torch::jit::Node& node);

/// `%x : Tensor`.
std::string printValue(const torch::jit::Value& value);

}  // namespace pcg::opt
