#pragma once

#include <string>
#include <unordered_map>

#include "passes/plan.h"

namespace pcg::opt {

/// Where each node of a planned graph goes. Refers to the plan, which must
/// outlive it.
class Destinations {
 public:
  explicit Destinations(const Plan& plan);

  /// The segment that the node is a member of, or lies in a block of a member
  /// of; else an empty string.
  const std::string& segmentOf(const torch::jit::Node* node) const;

  /// nullptr where the node is no break.
  const PlannedBreak* breakAt(const torch::jit::Node* node) const;

  /// A node that breaks its segment once a call reaches it, or nullptr.
  const PlannedBreak* possibleBreakAt(const torch::jit::Node* node) const;

  /// The segment's name, the break's reason, or an empty string.
  std::string labelOf(const torch::jit::Node* node) const;

 private:
  using Breaks = std::unordered_map<const torch::jit::Node*,  //
                                    const PlannedBreak*>;

  void mark(const torch::jit::Node* node, const std::string& segment);

  std::unordered_map<const torch::jit::Node*, const std::string*> segments_;
  Breaks breaks_;
  Breaks possible_breaks_;
};

}  // namespace pcg::opt
