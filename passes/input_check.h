#pragma once

namespace torch::jit {
struct Graph;
struct Module;
}  // namespace torch::jit

namespace pcg {

/// What pcg does not work on, found before torch asserts or runs out of stack
/// over it. Each throws std::runtime_error that names the node, with its source
/// line, or the attribute.

/// Refuses calls that cannot be inlined away: functions that call themselves,
/// directly or through others; methods that the object's class does not have;
/// and `pcg::segment` nodes, which are outlined already. `graph` is one that
/// has not been inlined.
void checkCalls(const torch::jit::Graph& graph);

/// Refuses nodes without operator: their library is not loaded, or their
/// arguments fit none of the overloads.
void checkOperators(const torch::jit::Graph& graph);

/// Refuses a module that is a submodule of itself, at any depth.
void checkAttributes(const torch::jit::Module& module);

}  // namespace pcg
