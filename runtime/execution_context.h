#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "passes/sequence_state.h"
#include "runtime/backend.h"
#include "runtime/log.h"

namespace pcg {

class CapturedSegment;

/// Something in a context that holds captures.
class CaptureHolder {
 public:
  virtual ~CaptureHolder() = default;
  /// Lets go of all captures but `needed` and those in whose slots a result
  /// lies that somebody holds.
  virtual void dropCaptures(const CapturedSegment* needed) = 0;
};

/// What the segments of one context share: options, back ends, pool.
/// Thread safety: one thread at a time, but for poolBytes().
class ExecutionContext {
 public:
  /// Keeps references to `options` and `log`.
  ExecutionContext(const SequenceState& options, Backend backend, Log& log);

  /// The back end for a device, created at first use; null, with a sentence in
  /// `why`, where segments on that device run eagerly.
  CaptureBackend* backendFor(c10::Device device, std::string& why);

  const SequenceState& options() const { return options_; }
  Backend backend() const { return backend_; }
  Log& log() const { return log_; }

  /// Adds a holder of captures. It is to be removed before it goes.
  void add(CaptureHolder& holder) { holders_.push_back(&holder); }
  void remove(CaptureHolder& holder);

  /// Where memory is short: lets go of all captures in this context that are
  /// neither `needed` nor held, so that what failed can be tried once more.
  /// Returns false, and does nothing, where that was done kMostRescues times:
  /// memory that is always short would have segments captured over and over.
  bool freeMemory(CaptureBackend& backend, const CapturedSegment* needed);
  static constexpr int kMostRescues = 3;

  /// To be called after each capture and each loss of one.
  void updatePoolBytes();
  /// Bytes in the back ends' pools at the last update. Any thread may ask.
  std::size_t poolBytes() const {
    return pool_bytes_.load(std::memory_order_relaxed);
  }

 private:
  const SequenceState& options_;
  Backend backend_;
  struct Entry {
    c10::Device device;
    std::unique_ptr<CaptureBackend> backend;
    std::string failure;
  };
  Log& log_;
  std::vector<Entry> backends_;
  std::vector<CaptureHolder*> holders_;
  int rescues_ = 0;
  std::atomic<std::size_t> pool_bytes_{0};
};

}  // namespace pcg
