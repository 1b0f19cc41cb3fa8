#pragma once

#include <ATen/record_function.h>

namespace pcg {

/// A span of the calling thread's time, seen by torch's profiler (as a user
/// scope) and by tools that listen to NVTX (in the domain `pcg`), such as
/// Nsight Systems. Costs a few nanoseconds where nobody looks.
/// Thread safety: an object belongs to the thread that made it.
class TraceRange {
 public:
  /// `name` has to outlive the range.
  explicit TraceRange(const char* name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  at::RecordFunction record_{at::RecordScope::USER_SCOPE};
};

}  // namespace pcg
