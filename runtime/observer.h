#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "passes/capture_safety.h"
#include "runtime/program.h"

namespace pcg {

/// A node that a warm-up call found to be unfit for capture.
struct Culprit {
  const torch::jit::Node* node = nullptr;
  CaptureSafety why;
};

/// Watches a warm-up call node by node and operator by operator.
///
/// While one is installed on a thread it sees each operator that the thread
/// dispatches (at::RecordFunction, thread local), with its arguments, and
/// attributes it to the innermost node that the program runs. A node becomes a
/// culprit when an operator under it reads device data on the host, computes on
/// CPU tensors while the segment belongs to a CUDA device, moves data between
/// host and device, indexes by a mask, or yields a size that depends on data.
/// On a CPU device (the host back end) the same operators are refused, CPU
/// tensors counting as device memory.
///
/// Thread safety: use on one thread only.
class WarmUpObserver final : public NodeListener {
 public:
  /// Nodes that are no culprits only while they are not reached.
  using LatentBreaks =
      std::unordered_map<const torch::jit::Node*, CaptureSafety>;

  /// `inputs` are the tensors that the segment gets from outside; `latent` must
  /// outlive the observer.
  WarmUpObserver(c10::Device device, const std::vector<at::Tensor>& inputs,
                 const LatentBreaks& latent);
  ~WarmUpObserver() override;
  WarmUpObserver(const WarmUpObserver&) = delete;
  WarmUpObserver& operator=(const WarmUpObserver&) = delete;

  void before(const torch::jit::Node& node) override;
  void after(const torch::jit::Node& node) override;

  /// In order of first execution, each node once. A node inside a block is
  /// reported itself, not its owner.
  const std::vector<Culprit>& culprits() const;

  /// The innermost node that has been entered and not left; where an exception
  /// passed through, the node that threw. Null outside any node.
  const torch::jit::Node* current() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pcg
