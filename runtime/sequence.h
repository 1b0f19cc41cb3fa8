#pragma once

#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "passes/sequence_state.h"
#include "runtime/log.h"
#include "runtime/segment_runner.h"

namespace pcg {

/// The object that a partitioned module holds in `pcg_sequence`: it owns the
/// module's segments and contexts, each with its own back ends, slots and
/// captures. There are as many contexts as calls were under way at once.
///
/// Saved with the module it keeps graphs as text, bound values and options,
/// never captures; a loaded or deep-copied module captures afresh.
///
/// Thread safety: all methods may be called from any thread. A thread keeps the
/// context that it used last until another thread needs one, and at least for
/// as long as a result lies in one of its slots. Where all kMostContexts are in
/// use, a segment waits for one for up to kLongestWait, then runs eagerly.
class SegmentSequence : public torch::CustomClassHolder {
 public:
  static constexpr std::size_t kMostContexts = 8;
  static constexpr std::chrono::milliseconds kLongestWait{100};

  explicit SegmentSequence(SequenceState state);
  ~SegmentSequence() override;

  /// Runs the segment called `name`. Returns its outputs.
  /// Throws std::runtime_error for a name that it does not hold.
  std::vector<c10::IValue> run(const c10::IValue& module,
                               const c10::IValue& name,
                               std::vector<c10::IValue> inputs);

  /// JSON: `segments: [{name, nodes, captures, replays, eager_calls,
  /// reasons}]`, `backend`, `contexts`, `pool_bytes`. Segments that were split
  /// are followed by their parts.
  std::string report() const;

  /// Drops all captures, warm-ups and statistics. A call that another thread is
  /// in ends with what it began with; that goes when the call ends.
  void reset();

  const SequenceState& state() const { return state_; }

 private:
  struct Context;
  class Lease;

  Lease lease();
  std::shared_ptr<Context> takeContext();
  void giveBack(Context& context);
  std::size_t indexOf(const c10::IValue& name) const;

  const std::uint64_t id_;
  SequenceState state_;
  Backend backend_;
  Log log_;
  std::vector<std::shared_ptr<const SegmentDefinition>> definitions_;
  std::unordered_map<std::string, std::size_t> index_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Context>> contexts_;  // last taken is last
  std::condition_variable given_back_;
  std::atomic<int> waiting_{0};
  std::int64_t calls_without_context_ = 0;
};

}  // namespace pcg
