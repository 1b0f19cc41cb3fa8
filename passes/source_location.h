#pragma once

#include <string>
#include <vector>

namespace torch::jit {
struct Node;
}

namespace pcg {

/// `file:line` of the innermost source range known for a node, following
/// inlined calls. Where the node has none, that of what made its last input or
/// of a node just in front of it; empty where none is known.
std::string sourceLocation(const torch::jit::Node& node);

/// Dotted path of the submodule whose method the node was inlined from, e.g.
/// `decoder.layers.0`; empty for the top module.
std::string modulePath(const torch::jit::Node& node);

/// Names of the functions and methods around a node, outermost first.
std::vector<std::string> functionNames(const torch::jit::Node& node);

/// One line that identifies a node in an error: kind, source and module path.
std::string describeNode(const torch::jit::Node& node);

}  // namespace pcg
