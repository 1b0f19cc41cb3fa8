#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pcg {

/// Bytes to move within one device's memory before a replay.
struct CopyOperation {
  void* destination = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
};

/// A capture that could not be completed. The capture has been rolled back:
/// stream, allocator routing and generator state are as before it began.
/// `what()` names the cause (the CUDA error or the refused operator).
class CaptureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a capture is told in advance of its body.
struct CaptureHints {
  /// Tensors from outside that the body uses, in slots or where they lie.
  std::vector<at::Tensor> inputs;
  /// Whether the body may draw from a default generator. If not, other threads
  /// may do so while the capture lasts.
  bool draws_random = true;
};

/// Recorded work that can be replayed. Owns everything it reads and writes
/// except the memory that the caller passed in.
/// Thread safety: none; replays of graphs from one backend must not overlap.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;

  /// Enqueues the recorded work on the caller's current stream.
  virtual void replay() = 0;

  /// Recorded kernels, copies and fills.
  virtual std::int64_t size() const = 0;
};

/// Captures and replays work on one device. One backend belongs to one
/// execution context and owns the memory pool and
/// the stream of all its captures.
/// Thread safety: none.
class CaptureBackend {
 public:
  virtual ~CaptureBackend() = default;

  virtual c10::Device device() const = 0;

  /// Runs `body` eagerly on the caller's current stream, so that what its
  /// operators make at first use exists before a capture. Exceptions pass
  /// through.
  virtual void warmUp(const std::function<void()>& body) = 0;

  /// Records the device work that `body` enqueues. The work is not run.
  ///
  /// Tensors that `body` creates live in the backend's pool; those the caller
  /// keeps stay valid, and are rewritten by each replay, as long as the caller
  /// holds them. Memory from outside is unchanged by the capture itself. An
  /// exception from `body` passes through, and what the device refuses arrives
  /// as CaptureError, after the capture has been rolled back. Lack of memory
  /// arrives as c10::OutOfMemoryError, rolled back too.
  virtual std::unique_ptr<CapturedGraph> capture(
      const std::function<void()>& body, const CaptureHints& hints) = 0;

  /// Performs all copies, in as few launches as possible, on the caller's
  /// current stream. Destinations must not overlap any source.
  virtual void copy(const std::vector<CopyOperation>& operations) = 0;

  /// Uninitialized memory outside any capture pool, for whoever holds it last:
  /// the same as any operator's result on the caller's current stream.
  virtual at::DataPtr allocate(std::size_t bytes) = 0;

  /// Uninitialized memory that only captured work uses. When it is released,
  /// nothing gets it before the backend's work on any stream is done with it.
  virtual at::DataPtr allocateSlot(std::size_t bytes) = 0;

  /// To be called once before each replay or copy sequence: orders the caller's
  /// current stream after all earlier replays of this backend. Cheap when the
  /// stream has not changed.
  virtual void enterStream() = 0;

  /// To be called when memory is short and graphs have been released: gives
  /// what nothing uses back to the device. Waits for the device. Never throws.
  virtual void releaseUnused() = 0;

  /// Bytes that the backend's pool holds now.
  virtual std::size_t poolBytes() const = 0;
};

/// True where the calling thread's current stream on `device` is being
/// captured by someone else. Always false for CPU devices.
bool isCapturing(c10::Device device);

/// Creates the CUDA backend for a device. Throws std::runtime_error where the
/// device cannot be used.
std::unique_ptr<CaptureBackend> makeCudaBackend(c10::Device device);

/// Creates the emulating backend for CPU tensors.
std::unique_ptr<CaptureBackend> makeHostBackend();

}  // namespace pcg
