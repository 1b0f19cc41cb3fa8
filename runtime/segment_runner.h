#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "runtime/bound_values.h"
#include "runtime/call_effects.h"
#include "runtime/captured_segment.h"
#include "runtime/execution_context.h"
#include "runtime/key.h"
#include "runtime/log.h"
#include "runtime/observer.h"
#include "runtime/segment_definition.h"

namespace pcg {

/// What report() tells of one segment, summed over contexts.
struct SegmentStatistics {
  std::string name;
  std::int64_t nodes = 0;
  std::int64_t captures = 0;
  std::int64_t replays = 0;
  std::int64_t eager_calls = 0;  ///< Bodies run node by node, warm-ups too.
  std::vector<std::string> reasons;
};

/// Runs one segment for one context: warms up, captures, replays, or runs the
/// body eagerly and keeps the reason.
/// Thread safety: none, except for addStatistics().
class SegmentRunner final : public CaptureHolder {
 public:
  SegmentRunner(std::shared_ptr<const SegmentDefinition> definition,
                ExecutionContext& context);
  ~SegmentRunner() override;
  SegmentRunner(const SegmentRunner&) = delete;
  SegmentRunner& operator=(const SegmentRunner&) = delete;

  /// `module` is the calling module, through which bound values are found.
  std::vector<c10::IValue> run(const c10::IValue& module,
                               std::vector<c10::IValue> inputs);

  /// True where somebody holds a result that lies in a slot.
  bool isHeld() const;

  void dropCaptures(const CapturedSegment* needed) override;

  /// Adds this segment's figures, and those of each part that it was split
  /// into, to the entry of the same name, or as a new one.
  void addStatistics(std::vector<SegmentStatistics>& all) const;

 private:
  struct Key;
  struct Composite;

  std::vector<c10::IValue> runEagerly(const c10::IValue& module,
                                      std::vector<c10::IValue> inputs,
                                      const std::string& reason);
  std::vector<c10::IValue> warmUp(const c10::IValue& module, Key& key,
                                  CaptureBackend& backend,
                                  std::vector<c10::IValue> inputs);
  /// Before a capture on a thread other than that of warmUp(): libraries keep
  /// handles by thread, and make them at first use.
  std::vector<c10::IValue> warmUpThread(const c10::IValue& module, Key& key,
                                        CaptureBackend& backend,
                                        std::vector<c10::IValue> inputs);
  /// Keeps what a warm-up call has shown. Exceptions, which here are not those
  /// of the body, do not pass: another call warms up again.
  void learn(Key& key, CaptureBackend& backend, const EffectsWatch& watch,
             KeyConstants::Recorder recorder, std::vector<Culprit> culprits,
             const std::vector<c10::IValue>& outputs);
  /// Replays, or runs the body where memory for a replay is short.
  std::vector<c10::IValue> replay(const c10::IValue& module, Key& key,
                                  CapturedSegment& capture,
                                  CaptureBackend& backend,
                                  std::vector<c10::IValue> inputs);
  /// Captures for the inputs in `flat_`. Returns null, with the key's or the
  /// segment's fate decided, where that fails; no exception passes.
  CapturedSegment* capture(Key& key, CaptureBackend& backend,
                           const std::vector<c10::IValue>& inputs);
  /// One attempt. Returns null, with the key's fate decided, where an input
  /// cannot be bound. Exceptions pass through, of a body's node with `listener`
  /// still in it.
  std::unique_ptr<CapturedSegment> tryCapture(
      Key& key, CaptureBackend& backend, const std::vector<c10::IValue>& inputs,
      NodeListener& listener);
  /// True where an input tensor shares memory that is written, which is right
  /// only where it lies.
  bool mustStayInPlace(const Key& key, std::size_t index) const;
  /// How each tensor in `flat_` reaches a graph; none, with the key's fate
  /// decided, where one cannot.
  std::optional<std::vector<GraphInput>> bindInputs(Key& key,
                                                    CaptureBackend& backend);
  CapturedSegment* findCapture(Key& key);
  /// Lets go of captures that expect an address which is known to change,
  /// where `latest` copies instead: they serve no more.
  static void dropOutdated(Key& key, const CapturedSegment& latest);
  Key& findKey();
  void makeRoom();
  void replan(const std::vector<Culprit>& culprits);
  void addAliasing(const std::vector<c10::IValue>& inputs);
  void addPlacement(const std::vector<c10::IValue>& inputs);
  void addReason(const std::string& reason);
  /// Gives up on a key whose captures were to be expected.
  void lose(Key& key, std::string reason);
  void say(LogLevel level, const std::string& text) const;
  CaptureHints hintsFor(const std::vector<c10::IValue>& values) const;
  std::vector<c10::IValue> withBound(std::vector<c10::IValue> inputs) const;

  std::shared_ptr<const SegmentDefinition> definition_;
  ExecutionContext& context_;
  BoundValues bound_;
  FlatInputs flat_;
  std::vector<std::unique_ptr<Key>> keys_;  // most recently used first
  std::unique_ptr<Composite> composite_;
  std::int64_t evictions_ = 0;

  std::atomic<std::int64_t> captures_{0};
  std::atomic<std::int64_t> replays_{0};
  std::atomic<std::int64_t> eager_calls_{0};
  mutable std::mutex report_mutex_;  // guards reasons_ and composite_'s set
  std::vector<std::string> reasons_;
};

}  // namespace pcg
