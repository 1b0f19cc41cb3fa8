#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "passes/sequence_state.h"
#include "runtime/backend.h"

namespace pcg {

/// What one thread's segments of one sequence share: options, back ends, pool.
/// Thread safety: none; one thread at a time.
class ExecutionContext {
 public:
  ExecutionContext(const SequenceState& options, Backend backend);

  /// The back end for a device, created at first use; null, with a sentence in
  /// `why`, where segments on that device run eagerly.
  CaptureBackend* backendFor(c10::Device device, std::string& why);

  const SequenceState& options() const { return options_; }
  Backend backend() const { return backend_; }
  std::size_t poolBytes() const;

 private:
  const SequenceState& options_;
  Backend backend_;
  struct Entry {
    c10::Device device;
    std::unique_ptr<CaptureBackend> backend;
    std::string failure;
  };
  std::vector<Entry> backends_;
};

}  // namespace pcg
