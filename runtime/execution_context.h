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
  std::atomic<std::size_t> pool_bytes_{0};
};

}  // namespace pcg
