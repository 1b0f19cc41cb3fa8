#pragma once

#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace pcg {

/// An operator whose tensor depends on the key alone, and those among the
/// others whose memory it reads.
struct KeyConstant {
  const torch::jit::Node* node = nullptr;
  std::vector<const torch::jit::Node*> sources;
  bool glue = false;  ///< A view and the like: has no memory of its own.
};

/// Finds the operators of a segment whose tensor depends on nothing but the
/// key: on constants, shapes and host scalars, at any depth.
///
///     %n : int = aten::size(%x, %0)
///     %steps : Tensor = aten::arange(%n, ...)        # found
///     %there : Tensor = aten::to(%steps, %cuda, ..)  # found
///     %y : Tensor = aten::add(%x, %there, %1)        # not: reads %x
///
/// Such a tensor is the same for every call with that key, so the runtime may
/// compute it once before it captures, whatever that takes: host memory,
/// copies to the device, waiting. What an operator writes, draws, or shares
/// with something that is no constant keeps it out. Whether a result is written
/// later is for the runtime to see: then neither it nor what reads it is
/// constant. Packing, views and other glue between such operators is looked
/// through, and is itself not in the result, which is in program order. Pure.
std::vector<KeyConstant> findKeyConstants(torch::jit::Graph& segment);

}  // namespace pcg
