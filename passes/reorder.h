#pragma once

#include <pcg/options.h>

#include <cstddef>
#include <memory>

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Moves independent breaks next to each other where that leaves fewer
/// segments. Optional.
///
///     %a : Tensor = aten::max(%x)            %a : Tensor = aten::max(%x)
///     %s : Scalar = aten::item(%a)           %b : Tensor = aten::min(%y)
///     %b : Tensor = aten::min(%y)        →   %s : Scalar = aten::item(%a)
///     %t : Scalar = aten::item(%b)           %t : Scalar = aten::item(%b)
///
/// Nodes stay in their blocks. `graph` is a prepared and annotated graph; it
/// keeps its order where no other one has fewer segments without leaving more
/// kernels eager. The result is proved against the old order (see OrderRecord)
/// before it is kept. Takes two plans and one alias analysis. Deterministic.
///
/// Returns the number of nodes that have changed places with another.
std::size_t reorder(torch::jit::Graph& graph, const PartitionOptions& options);

/// What of a graph's order a caller could notice, taken down before nodes move.
///
/// Two nodes of one block keep their order where
///   - one uses what the other makes;
///   - both touch memory that something in the graph writes;
///   - both draw random numbers;
///   - both may raise or have an effect: a draw, or a write to memory that was
///     not made in the graph;
///   - one is a barrier: it, or a node in its blocks, has a side effect, such
///     as printing, assigning an attribute, entering a context or raising, or
///     is an operator of which nothing is known.
/// A node counts for all that is in its blocks. An operator may raise unless it
/// is known not to: a host read does not where its tensor has one element, for
/// instance because it is the maximum of another.
class OrderRecord {
 public:
  explicit OrderRecord(torch::jit::Graph& graph);
  ~OrderRecord();
  OrderRecord(const OrderRecord&) = delete;
  OrderRecord& operator=(const OrderRecord&) = delete;

  /// Checks that `graph`, the recorded graph itself, has the same nodes in an
  /// order that keeps all of the above. Throws std::logic_error that names the
  /// node and the rule.
  void verify(torch::jit::Graph& graph) const;

 private:
  friend class Reorderer;
  struct Facts;
  std::unique_ptr<const Facts> facts_;
};

}  // namespace pcg
