#pragma once

#include <c10/core/Storage.h>
#include <pcg/sequence.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "runtime/break_results.h"
#include "runtime/log.h"
#include "runtime/thread_modes.h"

namespace pcg {

/// A break of hand-written code, ready to be run again.
struct EagerStep {
  EagerStep(detail::Break call, ThreadModes modes, CaptureBackend& backend);

  /// Runs it for the capture. `stays` tells of a result's memory, other than
  /// the arguments', whether it is known to stay.
  void capture(const std::function<bool(const at::Tensor&)>& stays);
  void replay();

  detail::Break call;
  ThreadModes modes;  ///< Those in force where the break stands.
  BreakResults results;
};

/// Either a graph or a break.
struct Step {
  std::string name;   ///< Of the break; "" for a graph.
  std::string range;  ///< What profilers see.
  std::unique_ptr<CapturedGraph> graph;
  std::unique_ptr<EagerStep> eager;
};

/// What a capture adds to a sequence.
struct StepList {
  std::vector<Step> steps;
  std::vector<c10::Storage> kept;  ///< Memory from outside that steps use.

  void append(StepList more);
};

/// The inside of a CUDAGraphSequence.
class CUDAGraphSequence::Steps {
 public:
  Steps(std::optional<c10::MempoolId_t> pool, Backend backend);
  ~Steps();

  /// One use at a time, whatever it is.
  enum class Use : std::uint8_t { kNone, kCapture, kReplay, kReset };
  class InUse {
   public:
    /// Throws std::logic_error where the sequence is in use already.
    InUse(Steps& steps, Use use);
    ~InUse();
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    Steps& steps_;
  };

  void replay();
  void reset();
  c10::MempoolId_t pool();
  SequenceReport report() const;

  /// Made at the first call, for the device that is then current. Throws
  /// std::logic_error where another one is current later, std::runtime_error
  /// where there is no usable device.
  CaptureBackend& backend();

  void append(StepList more);
  void noteError(const std::string& text);

 private:
  void run(const Step& step);
  void waitForReplays() noexcept;

  const Backend choice_;
  const bool debug_;
  Log log_;
  std::atomic<Use> use_{Use::kNone};
  mutable std::mutex mutex_;  // guards what follows, for report() and pool()
  std::optional<c10::MempoolId_t> pool_;
  std::unique_ptr<CaptureBackend> backend_;
  StepList list_;
  std::int64_t replays_ = 0;
  std::string last_error_;
};

}  // namespace pcg
