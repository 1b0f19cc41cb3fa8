#include "tools/pcg-opt/destinations.h"

#include <torch/csrc/jit/ir/ir.h>

namespace pcg::opt {

using torch::jit::Block;
using torch::jit::Node;

Destinations::Destinations(const Plan& plan) {
  for (const PlannedSegment& segment : plan.segments) {
    for (const Node* node : segment.nodes)
      mark(node, segment.name);
  }
  for (const PlannedBreak& item : plan.breaks)
    breaks_[item.node] = &item;
  for (const PlannedBreak& item : plan.possible_breaks)
    possible_breaks_[item.node] = &item;
}

void Destinations::mark(const Node* node, const std::string& segment) {
  segments_[node] = &segment;
  for (const Block* block : node->blocks()) {
    for (const Node* inner : block->nodes())
      mark(inner, segment);
  }
}

const std::string& Destinations::segmentOf(const Node* node) const {
  static const std::string none;
  const auto found = segments_.find(node);
  return found == segments_.end() ? none : *found->second;
}

const PlannedBreak* Destinations::breakAt(const Node* node) const {
  const auto found = breaks_.find(node);
  return found == breaks_.end() ? nullptr : found->second;
}

const PlannedBreak* Destinations::possibleBreakAt(const Node* node) const {
  const auto found = possible_breaks_.find(node);
  return found == possible_breaks_.end() ? nullptr : found->second;
}

std::string Destinations::labelOf(const Node* node) const {
  const std::string& segment = segmentOf(node);
  if (!segment.empty())
    return segment;
  const PlannedBreak* item = breakAt(node);
  return item != nullptr ? toString(item->why.reason) : "";
}

}  // namespace pcg::opt
