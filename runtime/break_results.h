#pragma once

#include <ATen/core/Tensor.h>
#include <pcg/no_graph.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/backend.h"

namespace pcg {

/// The tensors that a break returns, each in memory that stays: a slot that the
/// sequence owns, or the tensor itself where it lies in memory that the capture
/// knows to stay.
/// Thread safety: none.
class BreakResults final : public detail::ResultTensors {
 public:
  /// `name` is the break's. `backend` has to outlive the results.
  BreakResults(std::string name, CaptureBackend& backend);

  /// To be called before the break runs for the capture. `stays` tells whether
  /// a result's memory is known to stay; it is asked until keepDone().
  void keepFrom(std::function<bool(const at::Tensor&)> stays);
  void keepDone();

  /// From here on, tensors whose gradient tape got a node with this sequence
  /// number or a later one are refused: no replay could make the tape anew.
  void refuseTapesFrom(std::uint64_t first_node);
  /// Throws CaptureError where a tensor has such a tape. `action` tells what
  /// the break did to the tensor.
  void refuseTape(const at::Tensor& tensor, const char* action) const;

  /// Throws CaptureError for a result that no replay could fill.
  at::Tensor keep(const at::Tensor& result) override;

  /// Both throw std::runtime_error for a result that does not fit.
  void update(const at::Tensor& kept, const at::Tensor& result) override;
  [[noreturn]] void refuse(const std::string& what) override;

  /// To be called before the break runs for a replay, and after its last
  /// update().
  void updateFrom();
  void updateDone();

 private:
  // The tensor that was handed out may get other sizes or another storage.
  struct Kept {
    at::Tensor handed_out;
    at::Tensor tensor;
    bool is_slot = false;
  };

  at::Tensor makeSlot(const at::Tensor& result);
  void copy(const at::Tensor& slot, const at::Tensor& result);

  std::string name_;
  CaptureBackend& backend_;
  std::function<bool(const at::Tensor&)> stays_;
  std::uint64_t first_node_ = 0;
  std::vector<Kept> kept_;
  std::vector<CopyOperation> copies_;
  std::vector<at::Tensor> copied_;  // alive until copies_ are under way
};

}  // namespace pcg
