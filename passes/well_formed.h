#pragma once

namespace torch::jit {
struct Graph;
}

namespace pcg {

/// Checks that a graph is well formed: every value that a node or a block's end
/// uses is made earlier in that block or in one around it; a value and its uses
/// know of each other; branches and loops have the blocks, parameters and
/// results that their kind asks for.
///
/// Says what torch's own lint says of these, in time linear in the size of the
/// graph, where lint takes the number of blocks, or of a value's uses, times
/// that. Throws std::logic_error that names the node.
void checkWellFormed(const torch::jit::Graph& graph);

}  // namespace pcg
