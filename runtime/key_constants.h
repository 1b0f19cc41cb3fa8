#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/backend.h"
#include "runtime/observer.h"
#include "runtime/program.h"

namespace pcg {

/// The tensors, and lists of tensors, of one key that depend on nothing but the
/// key (see findKeyConstants), kept from the warm-up call for the capture. The
/// capture then neither runs the operators that make them nor replays their
/// kernels. Each operator's tensors are in the order in which a call makes
/// them, which is a function of the key too. Thread safety: none.
class KeyConstants {
 public:
  /// What a node made in a warm-up call: a tensor, or a list of them.
  struct Kept {
    c10::IValue value;
    /// Of each tensor when it was made; none where it does not count writes.
    std::vector<std::optional<std::uint32_t>> versions;
  };

  /// A node that may make constants.
  struct Candidate {
    /// The candidates whose memory it reads.
    std::vector<const torch::jit::Node*> sources;
    /// Without memory of its own: a capture runs it again.
    bool glue = false;
    /// Known without looking: what it makes is never written.
    bool never_written = false;
  };
  using Candidates = std::unordered_map<const torch::jit::Node*, Candidate>;

  /// Listens to a warm-up call.
  class Recorder final : public NodeResults {
   public:
    explicit Recorder(const Candidates& candidates) : candidates_(candidates) {}
    bool recall(const torch::jit::Node& node,
                std::vector<c10::IValue>& results) override;
    void keep(const torch::jit::Node& node,
              const std::vector<c10::IValue>& results) override;

   private:
    friend class KeyConstants;
    std::unordered_set<const torch::jit::Node*> constant() const;

    const Candidates& candidates_;
    std::unordered_map<const torch::jit::Node*, std::vector<Kept>> kept_;
  };

  /// Gives a capture what was kept.
  class Presets final : public NodeResults {
   public:
    explicit Presets(const KeyConstants& constants) : constants_(constants) {}
    bool recall(const torch::jit::Node& node,
                std::vector<c10::IValue>& results) override;
    void keep(const torch::jit::Node& node,
              const std::vector<c10::IValue>& results) override;

   private:
    const KeyConstants& constants_;
    std::unordered_map<const torch::jit::Node*, std::size_t> next_;
  };

  /// Takes over what the warm-up call made and did not write afterwards, moved
  /// to memory of `backend` that nobody else has; then takes from `culprits`
  /// the nodes that are thereby out of the capture's way. Large tensors are
  /// kept only where a capture could not make them.
  static KeyConstants from(Recorder recorder, CaptureBackend& backend,
                           std::vector<Culprit>& culprits);

  /// True where the tensor lies in the memory of a constant.
  bool holds(const at::Tensor& tensor) const;

  /// All tensors, for CaptureHints.
  void addTo(std::vector<at::Tensor>& tensors) const;

 private:
  std::unordered_map<const torch::jit::Node*, std::vector<c10::IValue>> values_;
  std::vector<at::Tensor> tensors_;  // those of all values
};

}  // namespace pcg
