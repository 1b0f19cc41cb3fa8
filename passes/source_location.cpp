#include "passes/source_location.h"

#include <torch/csrc/jit/ir/ir.h>

namespace pcg {
namespace {

using torch::jit::Node;
using torch::jit::SourceRange;

// A loaded module's ranges lie in the archive's code; where the archive says
// what that was generated from, the user's own file is named.
std::string fileAndLine(const SourceRange& range) {
  const auto origin = range.findSourceRangeThatGenerated();
  const auto position = (origin ? *origin : range).file_line_col();
  if (!position)
    return "";
  return std::get<0>(*position) + ':' + std::to_string(std::get<1>(*position));
}

std::string ownLocation(const Node& node) {
  const std::string own = fileAndLine(node.sourceRange());
  if (!own.empty())
    return own;
  if (const auto stack = node.callstack()) {
    for (const auto& entry : (*stack)->vec()) {
      const std::string caller = fileAndLine(std::get<1>(entry));
      if (!caller.empty())
        return caller;
    }
  }
  return "";
}

// How many nodes in front of one without a place are asked for theirs.
constexpr int kMostNeighbours = 8;

// Torch gives some nodes no place, SetAttr for one: that of what made the last
// input is the next best, then that of the node in front.
std::string nearbyLocation(const Node& node) {
  if (!node.inputs().empty()) {
    const std::string maker = ownLocation(*node.inputs().back()->node());
    if (!maker.empty())
      return maker;
  }
  const Node* neighbour = &node;
  for (int i = 0; i < kMostNeighbours; ++i) {
    neighbour = neighbour->prev();
    if (neighbour == nullptr || neighbour->kind() == torch::jit::prim::Param ||
        neighbour->kind() == torch::jit::prim::Return) {
      return "";
    }
    const std::string place = ownLocation(*neighbour);
    if (!place.empty())
      return place;
  }
  return "";
}

}  // namespace

std::string sourceLocation(const Node& node) {
  const std::string own = ownLocation(node);
  return own.empty() && node.owningBlock() != nullptr ? nearbyLocation(node)
                                                      : own;
}

std::string modulePath(const Node& node) {
  const auto stack = node.callstack();
  if (!stack)
    return "";
  std::string path;
  for (const auto& entry : (*stack)->vec()) {
    const auto& module = std::get<2>(entry);
    if (!module || module->instance_name().empty())
      continue;
    const std::string name = module->instance_name();
    // Calls of a module's own methods repeat "SELF"; functions have no name.
    if (name == "SELF" || name == "INSTANCE_NAME_UNKNOWN")
      continue;
    path += path.empty() ? name : "." + name;
  }
  return path;
}

std::vector<std::string> functionNames(const Node& node) {
  std::vector<std::string> names;
  const auto stack = node.callstack();
  if (!stack)
    return names;
  for (const auto& entry : (*stack)->vec()) {
    if (const auto* function = std::get<0>(entry)) {
      names.push_back(function->name());
    }
  }
  return names;
}

std::string describeNode(const Node& node) {
  std::string text = node.kind().toQualString();
  const std::string source = sourceLocation(node);
  if (!source.empty())
    text += " at " + source;
  const std::string path = modulePath(node);
  if (!path.empty())
    text += " (in " + path + ")";
  return text;
}

}  // namespace pcg
