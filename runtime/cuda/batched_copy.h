#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace pcg {

/// One copy within a device's memory.
struct BatchedCopy {
  void* destination;
  const void* source;
  std::size_t bytes;
};

/// Copies that one launch performs at most: what fits in 4 KB of parameters.
/// All GPUs take that much; more would only make each launch dearer.
inline constexpr int kMostBatchedCopies = 128;

/// Enqueues `count` copies, at most kMostBatchedCopies, as one kernel on
/// `stream` of the current device. Any alignment and any size will do; empty
/// copies are skipped. No destination may overlap a source or another
/// destination.
cudaError_t launchBatchedCopy(const BatchedCopy* copies, int count,
                              cudaStream_t stream);

}  // namespace pcg
