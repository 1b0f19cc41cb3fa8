#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <pcg/capture_error.h>
#include <pcg/no_graph.h>
#include <pcg/options.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pcg {

class CaptureSession;

/// One step of a sequence.
struct StepReport {
  enum class Kind : std::uint8_t { kGraph, kEager };
  Kind kind = Kind::kGraph;
  std::string name;          ///< Of the function, for an eager step.
  std::int64_t kernels = 0;  ///< Kernels, copies and fills of a graph.
};

/// What a sequence holds. Plain data; copies freely.
struct SequenceReport {
  std::vector<StepReport> steps;
  std::int64_t replays = 0;  ///< Completed calls of replay().
  std::size_t pool_bytes = 0;
  std::string last_error;  ///< Of a capture or replay; "" if none failed.

  /// One line a step, for people.
  std::string text() const;
  /// One JSON object with the keys `steps`, `replays`, `pool_bytes` and
  /// `last_error`.
  std::string json() const;
};

/// CUDA graphs and eager steps that PiecewiseGraph captures and that replay()
/// runs in order, all through one memory pool.
///
///     pcg::CUDAGraphSequence sequence;
///     pcg::PiecewiseGraph capture(sequence);
///     out.copy_(in * 2);           //  step 0, a graph
///     pcg::no_graph(scale, out);   //  step 1, runs eagerly at each replay
///     out.add_(1);                 //  step 2, a graph
///     capture.finish();
///     in.fill_(5);
///     sequence.replay();           // as if the three lines had run again
///
/// Until reset() a sequence keeps alive the memory of every tensor that its
/// steps read or write and that existed before the capture, of every argument
/// of a break, and of every result. Memory that captured code allocated lives
/// for as long as the caller holds a tensor in it; each replay writes it again.
///
/// All captures of a sequence belong to one device: the one that was current at
/// the first.
///
/// Thread safety: one thread at a time; what breaks this rule throws. Other
/// sequences may be captured and replayed by other threads meanwhile.
class CUDAGraphSequence {
 public:
  /// `pool` is a name as `pool()` of another sequence gives it: both then use
  /// one memory pool, and must not be replayed at the same time. The other has
  /// to live until the first capture of this one. `backend`:
  /// kHost emulates captures on CPU tensors; all others capture CUDA graphs.
  explicit CUDAGraphSequence(
      std::optional<c10::MempoolId_t> pool = std::nullopt,
      Backend backend = Backend::kAuto);
  ~CUDAGraphSequence();
  CUDAGraphSequence(const CUDAGraphSequence&) = delete;
  CUDAGraphSequence& operator=(const CUDAGraphSequence&) = delete;

  /// Runs all steps in order on the current stream of the sequence's device. An
  /// exception of an eager step passes through; the steps behind it have then
  /// not run, and the sequence can be replayed again.
  /// Throws std::logic_error where there is no step, where a capture into this
  /// sequence is under way, or inside captured code.
  void replay();

  /// Drops all steps and what they keep alive. The memory pool keeps its name.
  /// Throws std::logic_error while a capture into this sequence is under way,
  /// and inside captured code.
  void reset();

  /// The name of the memory pool, which is chosen at the first call.
  c10::MempoolId_t pool();

  SequenceReport report() const;

  /// Only the implementation knows it.
  class Steps;

 private:
  friend class PiecewiseGraph;
  std::unique_ptr<Steps> steps_;
};

/// How a capture goes about it. Every field has a usable default.
struct PiecewiseGraphOptions {
  /// The stream to capture on; one of the sequence's own if missing.
  std::optional<c10::Stream> stream;

  CaptureErrorMode capture_error_mode = CaptureErrorMode::kThreadLocal;

  /// Called before each break's function while capturing, never at a replay:
  /// brings the processes of a distributed program into step.
  std::function<void()> barrier;

  /// Whether captured code draws from the default generators. If not, other
  /// threads may draw while it is captured; torch refuses it otherwise.
  bool draws_random = true;
};

/// Captures what the calling thread does into a sequence, from here to
/// finish().
///
/// The capture is a real run: each graph is replayed as soon as it ends, so
/// that breaks and the code behind finish() see true results. Streams, grad
/// mode and autocast are the caller's as usual, but for autocast's cache, which
/// is off: each replay casts anew. A backward pass runs on the calling thread,
/// so that breaks may stand in it.
///
/// A partitioned module that is called in captured code becomes part of the
/// graph, so it must not reach a break; call one that does through no_graph,
/// where its own segments are replayed.
///
/// All or nothing: unless finish() returns, the sequence stays as it was, and
/// stream and allocator are as before. What graphs and breaks have done by then
/// to tensors and generators stays done. Captures on one device take
/// turns, graph by graph, since they share torch's generator.
class PiecewiseGraph {
 public:
  /// Throws std::logic_error where the thread is capturing already or another
  /// one captures into `sequence`, CaptureError where the device refuses, and
  /// std::runtime_error where there is no usable GPU. `sequence` has to outlive
  /// the capture.
  explicit PiecewiseGraph(CUDAGraphSequence& sequence,
                          PiecewiseGraphOptions options = {});

  /// Rolls back a capture that was not finished. Never throws.
  ~PiecewiseGraph();
  PiecewiseGraph(const PiecewiseGraph&) = delete;
  PiecewiseGraph& operator=(const PiecewiseGraph&) = delete;

  /// Ends the capture and appends its steps to the sequence. Throws
  /// CaptureError for what the device refuses, which rolls back, and
  /// std::logic_error where the capture has ended already.
  void finish();

 private:
  std::unique_ptr<CaptureSession> session_;
};

}  // namespace pcg
