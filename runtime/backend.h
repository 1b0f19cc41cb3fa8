#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <pcg/capture_error.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace pcg {

/// Bytes to move within one device's memory before a replay.
struct CopyOperation {
  void* destination = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
};

/// What a capture is told in advance of its work.
struct CaptureHints {
  /// Tensors from outside that the work uses, in slots or where they lie.
  std::vector<at::Tensor> inputs;
  /// Whether the work may use tensors from outside beyond `inputs`.
  bool any_input = false;
  /// Whether the work may draw from a default generator. If not, other threads
  /// may do so while the capture lasts.
  bool draws_random = true;
  /// Whether somebody answers for the host memory that the work copies from or
  /// to and for the host functions that it calls. Refused otherwise.
  bool host_work_allowed = false;
  CaptureErrorMode error_mode = CaptureErrorMode::kThreadLocal;
  /// The stream to capture on, instead of one of the backend's own.
  std::optional<c10::Stream> stream;
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

  /// True where a replay does nothing at all.
  virtual bool isEmpty() const = 0;
};

/// A capture under way on the calling thread: what the thread enqueues is
/// recorded and not run. Its stream is the current one as long as it lasts.
///
/// Destroyed before it was finished, it is rolled back: stream, allocator
/// routing, generator state and memory from outside are as before it began.
/// Thread safety: to be finished and destroyed by the thread that began it.
class OpenCapture {
 public:
  virtual ~OpenCapture() = default;

  /// Ends the capture. To be called once. Throws CaptureError for what the
  /// device refuses; the capture has then been rolled back.
  virtual std::unique_ptr<CapturedGraph> finish() = 0;

  /// Whether an exception of the captured work says that a capture cannot hold
  /// what it did.
  virtual bool isRefusal(const std::exception& error) const = 0;

  /// To be told of each operator, so that finish() can name the stream that an
  /// operator ran on and that was not joined again.
  virtual void noteOperator() {}
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

  /// Begins a capture. Throws CaptureError where the device refuses.
  ///
  /// Tensors that the captured work creates live in the backend's pool; those
  /// the caller keeps stay valid, and are rewritten by each replay, as long as
  /// the caller holds them. Memory from outside is unchanged by the capture
  /// itself. The backend has to outlive the capture.
  virtual std::unique_ptr<OpenCapture> beginCapture(
      const CaptureHints& hints) = 0;

  /// Captures what `body` enqueues. An exception from `body` passes through,
  /// and what the device refuses arrives as CaptureError, after the capture has
  /// been rolled back. Lack of memory arrives as c10::OutOfMemoryError, rolled
  /// back too.
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& body,
                                         const CaptureHints& hints);

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

  /// Waits for all work on the device, after captures of other threads on it.
  /// Throws std::runtime_error where some of it failed.
  virtual void synchronize() = 0;

  /// Waits for this backend's replays and copies alone, which disturbs no
  /// capture. Throws std::runtime_error where waiting fails.
  virtual void waitForReplays() = 0;

  /// To be called when memory is short and graphs have been released: gives
  /// what nothing uses back to the device. Waits for the device. Never throws.
  virtual void releaseUnused() = 0;

  /// Bytes that the backend's pool holds now.
  virtual std::size_t poolBytes() const = 0;
};

/// True where the calling thread's current stream on `device` is being captured
/// by someone else, or, for a CPU device, where the thread records on the host
/// back end.
bool isCapturing(c10::Device device);

/// The CPU's share of isCapturing().
bool isCapturingOnHost();

/// Creates the CUDA backend for a device, with `pool` as its memory pool or,
/// where that is missing, a new one. Throws std::runtime_error where the device
/// cannot be used.
std::unique_ptr<CaptureBackend> makeCudaBackend(
    c10::Device device, std::optional<c10::MempoolId_t> pool = std::nullopt);

/// A name for a memory pool that nobody has yet.
c10::MempoolId_t newPoolId();

/// Creates the emulating backend for CPU tensors.
std::unique_ptr<CaptureBackend> makeHostBackend();

}  // namespace pcg
