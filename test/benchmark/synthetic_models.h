#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pcg::test {

/// A family of modules whose `forward` has about as many nodes as one asks for,
/// all of one form. Each form is one that some pass could be slow on.
struct SyntheticShape {
  std::string name;
  torch::jit::Module (*make)(std::int64_t nodes);
};

/// In this order:
///   chain          one value through pointwise operators
///   wide           one value read by many nodes, their results by many others
///                  behind a break
///   host-nest      branches and loops decided on the host, 32 deep
///   tensor-nest    branches and loops decided by tensor data, 32 deep
///   in-place       one tensor written again and again
///   in-place-views the same through views
///   append         one list that grows by an element a node
///   lists          many lists, filled in a segment and read behind it
///   breaks         a host read every eighth node
///   submodules     calls of many submodules with weights of their own
const std::vector<SyntheticShape>& syntheticShapes();

/// A module whose `forward` holds branches, or loops, in one another, `depth`
/// deep and decided by tensor data.
torch::jit::Module makeNestedModel(std::int64_t depth);

}  // namespace pcg::test
