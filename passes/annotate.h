#pragma once

#include <pcg/options.h>

#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct Module;
}  // namespace torch::jit

namespace pcg {

/// Resolves every way of tagging a node `no_graph` to attributes on the nodes
/// of a prepared graph.
///
///     pcg::no_graph_begin()
///     %y : Tensor = aten::relu(%x)
///     pcg::no_graph_end()
///   →
///     %y : Tensor = aten::relu[no_graph=1, no_graph_tag="region"](%x)
///
/// Sources: operator patterns and scopes in `options`; the attribute
/// `pcg_no_graph` of a submodule (True, or a list of its method names), read
/// from `module` where one is given; marker operators; attributes already on
/// the nodes (IR text). Nodes in blocks of a tagged node are tagged too.
/// `pcg::force_no_graph()` stays in place as a node that only splits a run.
/// Returns one warning for each pattern or scope that matched nothing. Throws
/// std::runtime_error for a begin without an end in the same block, or the
/// reverse.
std::vector<std::string> annotate(torch::jit::Graph& graph,
                                  const PartitionOptions& options,
                                  const torch::jit::Module* module = nullptr);

/// Marks each `prim::GetAttr` of an attribute that some SetAttr in one of the
/// graphs assigns: streaming state, for instance. Such an attribute is read on
/// every call; all others are bound and guarded, and their reads move to the
/// top of the graph. `graphs` are the prepared
/// graphs of all methods of one module, its unpartitioned ones included.
void markMutableState(const std::vector<torch::jit::Graph*>& graphs);

}  // namespace pcg
