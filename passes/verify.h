#pragma once

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Checks an outlined graph; throws std::logic_error that names the segment,
/// the node and the broken invariant.
///
/// For every `pcg::segment` node:
/// 1. no node at any depth of its subgraph is capture-unsafe;
/// 2. what it writes was born inside it, is module state, or comes from
///    another segment;
/// 3. no output is an input or another output;
/// 4. each boundary value has a type that can be part of a key or be stored
///    in a slot;
/// 5. no side effect, random draw or exception has changed places with another
///    (checked by `verifyOrder`, which needs the graph before outlining).
/// The graph itself must be well formed (see checkWellFormed).
void verify(torch::jit::Graph& graph);

/// Checks invariant 5: inlining the segments of `outlined` gives the nodes of
/// `original` in their order, apart from glue.
void verifyOrder(torch::jit::Graph& original, torch::jit::Graph& outlined);

}  // namespace pcg
