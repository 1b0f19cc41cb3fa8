#pragma once

#include <pcg/sequence.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "runtime/operator_watch.h"
#include "runtime/sequence_steps.h"

namespace pcg {

/// A PiecewiseGraph under way: cuts what its thread does into steps, and adds
/// them to the sequence at the end, all or none.
/// Thread safety: for the thread that made it.
class CaptureSession {
 public:
  CaptureSession(CUDAGraphSequence::Steps& sequence,
                 PiecewiseGraphOptions options);
  ~CaptureSession();
  CaptureSession(const CaptureSession&) = delete;
  CaptureSession& operator=(const CaptureSession&) = delete;

  /// The calling thread's; null where it has none.
  static CaptureSession* current();

  /// True in captured code, false in a break.
  bool isRecording() const { return open_ != nullptr; }

  /// What these throw ends the session, with nothing added.
  void recordBreak(detail::Break call);
  void split();
  void finish();

 private:
  void begin();
  void endGraph();
  void drop() noexcept;
  template <typename Work>
  void allOrNothing(const Work& work);

  class ThreadSettings;

  CUDAGraphSequence::Steps& sequence_;
  PiecewiseGraphOptions options_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::optional<CUDAGraphSequence::Steps::InUse> use_;
  CaptureBackend& backend_;
  StepList list_;
  StoragesUsed used_;
  std::unique_ptr<OpenCapture> open_;
  // A failure may come from within a backward pass, which puts back what a
  // thread had before: these two go when the session goes.
  std::unique_ptr<ThreadSettings> settings_;
  std::unique_ptr<OperatorWatch> watch_;
  std::string end_;  // how it ended; "" before
};

}  // namespace pcg
