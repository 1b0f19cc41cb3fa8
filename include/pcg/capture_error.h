#pragma once

#include <cstdint>
#include <stdexcept>

namespace pcg {

/// A capture that could not be completed. It has been rolled back: stream,
/// allocator routing and generator state are as before it began. `what()` names
/// the cause (the CUDA error or the refused operator).
class CaptureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Which calls that endanger a capture are refused while it lasts; see
/// `cudaStreamCaptureMode` in the CUDA Runtime API.
enum class CaptureErrorMode : std::uint8_t {
  kThreadLocal,  ///< Those of the capturing thread.
  kGlobal,       ///< Those of every thread.
  kRelaxed,      ///< None.
};

}  // namespace pcg
