#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "passes/sequence_state.h"
#include "runtime/backend.h"
#include "runtime/bound_values.h"
#include "runtime/key.h"
#include "runtime/key_constants.h"
#include "runtime/observer.h"
#include "runtime/program.h"
#include "runtime/slots.h"

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

/// What all contexts share of one segment. Immutable.
struct SegmentDefinition {
  std::string name;
  /// Inputs: those of the call, then the bound values. Outputs: the segment's.
  std::shared_ptr<const Program> program;
  std::size_t call_inputs = 0;
  std::vector<BoundValue> bound;
  std::vector<bool> borrowed;           ///< Outputs that do not leave the call.
  std::vector<bool> maybe_written;      ///< Inputs, by alias analysis.
  bool writes_inputs = false;           ///< Any of them.
  std::vector<bool> read_by_placement;  ///< Inputs: see passes/placement.h.
  std::vector<bool> weights;            ///< Call inputs bound by a parent.
  WarmUpObserver::LatentBreaks latent_breaks;
  KeyConstants::Candidates key_constants;
  std::int64_t nodes = 0;
  bool draws_random = false;
};

/// The options that a segment of a saved sequence is planned again with.
PartitionOptions planOptions(const SequenceState& state);

/// Makes a definition from a graph whose last inputs are `bound`.
std::shared_ptr<const SegmentDefinition> defineSegment(
    std::string name, std::shared_ptr<torch::jit::Graph> graph,
    std::vector<BoundValue> bound, std::vector<bool> borrowed,
    std::vector<bool> weights, const PartitionOptions& options);

/// Runs a segment's body outside a capture. Where it throws, the module has
/// been assigned the attributes that the body had passed (see
/// pcg::note_attribute): the method's own assignments are not reached any more.
std::vector<c10::IValue> runBody(
    const Program& program, const c10::IValue& module,
    std::vector<c10::IValue> inputs, NodeListener* listener = nullptr,
    const Program::SegmentHandler* segments = nullptr,
    NodeResults* results = nullptr);

/// What one thread's segments of one sequence share: options, back ends, pool.
/// Thread safety: none, except that `id` may be compared anywhere.
class ExecutionContext {
 public:
  ExecutionContext(const SequenceState& options, Backend backend);

  /// The back end for a device, created at first use; null, with a sentence in
  /// `why`, where segments on that device run eagerly.
  CaptureBackend* backendFor(c10::Device device, std::string& why);

  const SequenceState& options() const { return options_; }
  Backend backend() const { return backend_; }
  std::size_t poolBytes() const;

 private:
  const SequenceState& options_;
  Backend backend_;
  struct Entry {
    c10::Device device;
    std::unique_ptr<CaptureBackend> backend;
    std::string failure;
  };
  std::vector<Entry> backends_;
};

/// Runs one segment for one context: warms up, captures, replays, or runs the
/// body eagerly and keeps the reason.
/// Thread safety: none, except for addStatistics().
class SegmentRunner {
 public:
  SegmentRunner(std::shared_ptr<const SegmentDefinition> definition,
                ExecutionContext& context);
  ~SegmentRunner();
  SegmentRunner(const SegmentRunner&) = delete;
  SegmentRunner& operator=(const SegmentRunner&) = delete;

  /// `module` is the calling module, through which bound values are found.
  std::vector<c10::IValue> run(const c10::IValue& module,
                               std::vector<c10::IValue> inputs);

  /// Adds this segment's figures, and those of each part that it was split
  /// into, to the entry of the same name, or as a new one.
  void addStatistics(std::vector<SegmentStatistics>& all) const;

 private:
  struct Capture;
  struct Key;
  struct Composite;

  std::vector<c10::IValue> runEagerly(const c10::IValue& module,
                                      std::vector<c10::IValue> inputs,
                                      const std::string& reason);
  std::vector<c10::IValue> warmUp(const c10::IValue& module, Key& key,
                                  CaptureBackend& backend,
                                  std::vector<c10::IValue> inputs);
  std::vector<c10::IValue> replay(Key& key, Capture& capture,
                                  CaptureBackend& backend,
                                  std::vector<c10::IValue> inputs);
  /// Captures for the inputs in `flat_`. Returns null, with the key's or the
  /// segment's fate decided, where that fails.
  Capture* capture(Key& key, CaptureBackend& backend,
                   const std::vector<c10::IValue>& inputs);
  bool bindInputs(Key& key, Capture& capture, CaptureBackend& backend,
                  std::string& refusal);
  void recordOutputs(const Key& key, Capture& capture,
                     const std::vector<c10::IValue>& outputs,
                     const std::vector<at::Tensor>& arguments);
  Capture* findCapture(Key& key);
  Key& findKey();
  void makeRoom();
  void replan(const std::vector<Culprit>& culprits);
  void addAliasing(const std::vector<c10::IValue>& inputs);
  void addPlacement(const std::vector<c10::IValue>& inputs);
  void addReason(const std::string& reason);
  CaptureHints hintsFor(const std::vector<c10::IValue>& values) const;
  std::vector<c10::IValue> withBound(std::vector<c10::IValue> inputs) const;

  std::shared_ptr<const SegmentDefinition> definition_;
  ExecutionContext& context_;
  BoundValues bound_;
  FlatInputs flat_;
  std::vector<CopyOperation> copies_;
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
