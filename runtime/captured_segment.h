#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/backend.h"
#include "runtime/call_effects.h"
#include "runtime/slots.h"

namespace pcg {

/// How one input tensor reaches a graph.
struct GraphInput {
  enum class Kind {
    kSlot,    // copied to `slot`
    kFixed,   // the graph uses the address that the key demands
    kUnread,  // host memory, whose metadata or value is in the key
  };
  Kind kind = Kind::kUnread;
  const void* address = nullptr;
  c10::Storage slot;
  std::size_t bytes = 0;
  bool write_back = false;     ///< The slot's contents, after the replay.
  bool whole_storage = false;  ///< Not only from first to last element.

  /// Where the bytes begin that a slot holds a copy of.
  const void* begin(const at::Tensor& tensor) const;
  void* mutableBegin(const at::Tensor& tensor) const;
};

/// One capture of a segment: the graph, the memory it reads and writes, and how
/// a call's results are made from it.
/// Thread safety: none.
class CapturedSegment {
 public:
  explicit CapturedSegment(std::vector<GraphInput> inputs);

  const std::vector<GraphInput>& inputs() const { return inputs_; }

  /// True where every input that the graph uses where it lies, lies there.
  bool fits(const std::vector<at::Tensor>& tensors) const;

  /// True where somebody holds a result that lies in a slot.
  bool isHeld() const;

  /// What the body is to be captured with in place of a call's `tensors`:
  /// tensors in slots, filled here, or over the caller's memory. They keep
  /// nothing of the caller's alive.
  std::vector<at::Tensor> makeArguments(const std::vector<at::Tensor>& tensors,
                                        CaptureBackend& backend) const;

  /// What a capture has yielded.
  struct Recording {
    std::unique_ptr<CapturedGraph> graph;
    std::vector<c10::IValue> outputs;
    std::vector<at::Tensor> arguments;      ///< As made by makeArguments.
    const std::vector<c10::IValue>* bound;  ///< Bound values.
    const std::vector<bool>* borrowed;      ///< See SegmentDefinition.
    const CallEffects* effects;
    c10::Device device;
    const void* slot_tag;  ///< See Slot.
    /// True for a tensor that no replay makes anew.
    std::function<bool(const at::Tensor&)> is_constant;
  };

  /// Finishes the construction: takes the graph and finds out what each output
  /// is made of. To be called once, before the first replay.
  void record(Recording recording);

  /// What of a replay can fail without the device's failing: gets the memory
  /// that it needs and fills the slots of its inputs, whose tensors in order
  /// are `tensors`. Exceptions pass through and leave nothing changed that a
  /// caller can see.
  void prepareReplay(CaptureBackend& backend,
                     const std::vector<c10::IValue>& inputs,
                     const std::vector<at::Tensor>& tensors);

  /// Replays the graph on the caller's current stream, after prepareReplay()
  /// for the same call. `inputs` and `tensors` are let go before the graph is
  /// launched, so that a loop's own result does not count as held by somebody.
  std::vector<c10::IValue> replay(CaptureBackend& backend,
                                  const CallEffects& effects,
                                  std::vector<c10::IValue> inputs,
                                  std::vector<at::Tensor>& tensors,
                                  const std::vector<c10::IValue>& bound);

 private:
  // One tensor among the outputs.
  struct Output {
    enum class Kind {
      kInput,  // the input tensor itself
      kBound,  // the bound tensor itself
      kSame,   // an earlier output itself
      kView,   // a tensor over the storage of a group
      kHost,   // host memory beside a GPU's segment: a function of the key
    };
    Kind kind = Kind::kView;
    std::size_t index = 0;  // of the input, bound value, output or group
    TensorLayout layout;
    at::Tensor host;
  };

  // One storage that outputs lie in.
  struct Group {
    enum class Kind { kSlot, kInput, kBound };
    Kind kind = Kind::kSlot;
    std::size_t index = 0;             // of the input or bound value
    std::int64_t argument_offset = 0;  // of the input during capture
    std::optional<Slot> slot;
    bool leaves_call = false;
    // What prepareReplay() got for the next replay.
    at::DataPtr result;
    at::DataPtr evacuation;
  };

  Output describe(const at::Tensor& tensor, bool leaves_call,
                  const std::vector<at::Tensor>& earlier,
                  std::vector<const c10::StorageImpl*>& storages,
                  const Recording& recording);
  Group groupOf(const at::Tensor& tensor, const Recording& recording) const;
  void releasePrepared();

  // The graph is declared last: it goes first, then what it uses.
  std::vector<GraphInput> inputs_;
  std::vector<Group> groups_;
  std::vector<Output> outputs_;
  std::vector<c10::IValue> templates_;  // structure and host values
  std::vector<std::size_t> copied_;     // inputs, in the order of copies_
  std::vector<std::size_t> written_back_;
  std::vector<bool> kept_;  // inputs that are needed behind the launch
  std::vector<CopyOperation> copies_;
  std::unique_ptr<CapturedGraph> graph_;
};

}  // namespace pcg
