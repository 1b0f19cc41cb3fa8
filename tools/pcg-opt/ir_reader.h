#pragma once

#include <memory>
#include <optional>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/source_text.h"

namespace torch::jit {
struct CompilationUnit;
struct Graph;
}  // namespace torch::jit

namespace pcg::opt {

struct ReadOptions {
  /// Accept nodes whose operator nobody has registered.
  bool allow_unregistered_ops = false;
};

/// A graph that was read from text.
struct ReadGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  /// Owns the classes that the text mentions; must outlive the graph.
  std::shared_ptr<torch::jit::CompilationUnit> classes;
};

/// Reads IR text, so that printing the graph gives the text back: values keep
/// their names and numbers, `with` parts become the `Subgraph` attributes of
/// their nodes. Nodes carry source ranges in `source`.
///
/// Beyond syntax, every use must have a definition in scope, names must be
/// unique, each node must resolve to a registered operator or a known prim
/// kind, branches and loops must be well formed, constants must fit their
/// types. All of it is reported with its place; nothing is returned then.
std::optional<ReadGraph> readIr(const SourceText& source,
                                const ReadOptions& options,
                                Diagnostics& diagnostics);

}  // namespace pcg::opt
