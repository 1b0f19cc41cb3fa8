#pragma once

#include <pcg/options.h>

#include <string>
#include <string_view>

#include "passes/capture_safety.h"

namespace torch::jit {
struct Node;
}

namespace pcg {

/// Says what may be done with one node when a CUDA graph is captured around
/// it, judged by its operator and arguments alone; where it stands, what its
/// inputs stem from and what its blocks hold is the planner's concern. Pure.
///
///     aten::relu(%x)                                  safe
///     aten::item(%x)                                  unsafe, host-read
///     aten::index(%x, [%i])        type of %i open    conditional
///     aten::index(%x, [%i])        %i = aten::gt(..)  unsafe, dynamic-shape
///     aten::size(%x)                                  glue
///
/// In order: the user's options (`no_graph_ops`; `graph_safe_ops` for operators
/// outside aten and prim), an explicit generator, the capture-safety table, the
/// operator's tags, its schema. Conditions are decided here as far as constants
/// and static types allow. Every verdict other than safe and glue has a reason
/// and a sentence.
///
/// `prim::If` and `prim::Loop` are glue: they launch nothing themselves.
CaptureSafety classifyOperator(const torch::jit::Node& node,
                               const PartitionOptions& options);

/// `aten::index.Tensor`: the node's kind and, where it has a schema with one,
/// the overload.
std::string qualifiedName(const torch::jit::Node& node);

/// Whether a qualified name is meant by a pattern of PartitionOptions:
/// `mylib::*` means every name with that beginning, `aten::index_add` all
/// overloads of that operator, `aten::index_add.out` that one.
bool matchesPattern(std::string_view name, std::string_view pattern);

}  // namespace pcg
