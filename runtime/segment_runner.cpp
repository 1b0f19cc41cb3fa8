#include "runtime/segment_runner.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "passes/operators.h"
#include "passes/outline.h"
#include "passes/plan.h"
#include "passes/source_location.h"
#include "runtime/call_effects.h"
#include "runtime/device_tensors.h"
#include "runtime/fault_injection.h"
#include "runtime/first_line.h"
#include "runtime/key_constants.h"
#include "runtime/nested_values.h"
#include "runtime/replay_check.h"
#include "runtime/slots.h"
#include "runtime/trace.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace attr = torch::jit::attr;

// Which part of a split segment a `pcg::segment` node stands for.
const c10::Symbol kPartAttribute = c10::Symbol::attr("part");

// Captures of one key at different addresses of pinned memory.
constexpr std::size_t kMostVariants = 4;

// A segment whose captures are evicted this often before they were replayed
// twice is not worth capturing.
constexpr std::int64_t kChurnLimit = 32;

// How often what may be another's doing is tried.
constexpr int kMostAttempts = 2;

// Without figures: reasons that differ would be kept each.
const char* const kOutOfMemory =
    "out of memory: no room for a capture or its results";

std::int64_t byteOffset(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
}

}  // namespace

// ---- keys and captures ------------------------------------------------------

struct SegmentRunner::Key {
  enum class State { kNew, kSeen, kEager };

  KeyWords words;
  State state = State::kNew;
  std::string eager_reason;

  // Learnt by the warm-up call; by input tensor, but for the effects.
  CallEffects effects;
  KeyConstants constants;
  std::vector<const void*> addresses;
  std::vector<bool> weights;
  std::vector<bool> placed;  // read by where they lie in their storage
  std::vector<bool> moving;  // known to change their address

  std::vector<std::thread::id> warm_on;

  bool isWarmOnThisThread() const {
    return std::find(warm_on.begin(), warm_on.end(),
                     std::this_thread::get_id()) != warm_on.end();
  }

  std::vector<std::unique_ptr<CapturedSegment>> captures;
  std::int64_t replays = 0;
  int failures = 0;  // to learn from a warm-up call
};

// A segment that was cut again because nodes in it could not be captured.
struct SegmentRunner::Composite {
  std::unique_ptr<Program> program;
  std::vector<std::unique_ptr<SegmentRunner>> parts;
};

SegmentRunner::SegmentRunner(
    std::shared_ptr<const SegmentDefinition> definition,
    ExecutionContext& context)
    : definition_(std::move(definition)),
      context_(context),
      bound_(definition_->bound) {
  context_.add(*this);
}

SegmentRunner::~SegmentRunner() {
  context_.remove(*this);
}

std::vector<IValue> SegmentRunner::withBound(std::vector<IValue> inputs) const {
  const auto& bound = bound_.values();
  inputs.insert(inputs.end(), bound.begin(), bound.end());
  return inputs;
}

CaptureHints SegmentRunner::hintsFor(const std::vector<IValue>& values) const {
  CaptureHints hints;
  hints.draws_random = definition_->draws_random;
  forEachTensor(c10::ArrayRef<IValue>(values), [&](const at::Tensor& tensor) {
    hints.inputs.push_back(tensor);
  });
  return hints;
}

void SegmentRunner::addReason(const std::string& reason) {
  {
    const std::lock_guard<std::mutex> lock(report_mutex_);
    if (std::find(reasons_.begin(), reasons_.end(), reason) != reasons_.end())
      return;
    reasons_.push_back(reason);
  }
  context_.log().writeOnce(LogLevel::kInfo, definition_->name, reason);
}

void SegmentRunner::lose(Key& key, std::string reason) {
  key.state = Key::State::kEager;
  key.eager_reason = std::move(reason);
  context_.log().writeOnce(LogLevel::kWarning, definition_->name,
                           key.eager_reason);
}

void SegmentRunner::say(LogLevel level, const std::string& text) const {
  context_.log().write(level, definition_->name, text);
}

std::vector<IValue> SegmentRunner::runEagerly(const IValue& module,
                                              std::vector<IValue> inputs,
                                              const std::string& reason) {
  if (!reason.empty())
    addReason(reason);
  const TraceRange range(definition_->ranges.eager.c_str());
  eager_calls_.fetch_add(1, std::memory_order_relaxed);
  return runBody(*definition_->program, module, withBound(std::move(inputs)));
}

std::vector<IValue> SegmentRunner::run(const IValue& module,
                                       std::vector<IValue> inputs) {
  const std::int64_t bound = bound_.refresh(module);
  if (composite_) {
    const Program::SegmentHandler handler =
        [&](const Node& node, std::vector<IValue> part_inputs) {
          const auto index = static_cast<std::size_t>(node.i(kPartAttribute));
          return composite_->parts[index]->run(module, std::move(part_inputs));
        };
    return runBody(*composite_->program, module, withBound(std::move(inputs)),
                   nullptr, &handler);
  }

  flat_.clear();
  addModes(flat_.words);
  flat_.words.push_back(bound);
  flat_.device = bound_.device();
  for (const IValue& input : inputs)
    flatten(input, flat_);
  if (flat_.refusal != nullptr || bound_.refusal() != nullptr) {
    return runEagerly(
        module, std::move(inputs),
        flat_.refusal != nullptr ? flat_.refusal : bound_.refusal());
  }
  if (flat_.device) {
    addHostTensorValues(flat_);
  } else {
    flat_.device = c10::Device(c10::kCPU);
  }
  std::string why;
  CaptureBackend* backend = context_.backendFor(*flat_.device, why);
  if (backend == nullptr)
    return runEagerly(module, std::move(inputs), why);
  if (isCapturing(*flat_.device)) {
    return runEagerly(module, std::move(inputs),
                      "the caller's stream is being captured");
  }
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& tensor : flat_.tensors) {
      if (tensor.requires_grad()) {
        return runEagerly(module, std::move(inputs),
                          "autograd: an input requires a gradient");
      }
    }
  }

  if (definition_->writes_inputs)
    addAliasing(inputs);
  addPlacement(inputs);
  Key& key = findKey();
  switch (key.state) {
    case Key::State::kEager:
      return runEagerly(module, std::move(inputs), key.eager_reason);
    case Key::State::kNew:
      return warmUp(module, key, *backend, std::move(inputs));
    case Key::State::kSeen:
      break;
  }
  CapturedSegment* found = findCapture(key);
  if (found == nullptr) {
    if (!key.isWarmOnThisThread())
      return warmUpThread(module, key, *backend, std::move(inputs));
    found = capture(key, *backend, inputs);
    if (found == nullptr) {
      if (composite_)
        return run(module, std::move(inputs));
      return runEagerly(module, std::move(inputs), key.eager_reason);
    }
  }
  // Random numbers would be drawn twice.
  if (verifiesReplays() && !definition_->draws_random) {
    const std::vector<IValue> arguments = withBound(inputs);
    const ReplayCheck check(*definition_, arguments);
    std::vector<IValue> results =
        replay(module, key, *found, *backend, std::move(inputs));
    check.compare(results, arguments);
    return results;
  }
  return replay(module, key, *found, *backend, std::move(inputs));
}

// Where one of two tensors that share memory is written, a capture is right
// only for calls whose tensors share it in the same way.
void SegmentRunner::addAliasing(const std::vector<IValue>& inputs) {
  std::vector<std::pair<at::Tensor, bool>> all;
  const auto add = [&](const IValue& value, bool written) {
    forEachTensor(value, [&](const at::Tensor& tensor) {
      all.emplace_back(tensor, written);
    });
  };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add(inputs[i], definition_->maybe_written[i]);
  const std::size_t count = all.size();
  const auto& bound = bound_.values();
  for (std::size_t i = 0; i < bound.size(); ++i)
    add(bound[i], definition_->maybe_written[inputs.size() + i]);
  // How bound values lie to each other follows from their number in the key.
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      const auto& [left, left_written] = all[i];
      const auto& [right, right_written] = all[j];
      if ((!left_written && !right_written) || !sharesStorage(left, right))
        continue;
      flat_.words.push_back(static_cast<std::int64_t>(i));
      flat_.words.push_back(static_cast<std::int64_t>(j));
      flat_.words.push_back(byteOffset(right) - byteOffset(left));
    }
  }
}

void SegmentRunner::addPlacement(const std::vector<IValue>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!definition_->read_by_placement[i])
      continue;
    forEachTensor(inputs[i], [&](const at::Tensor& tensor) {
      flat_.words.push_back(tensor.storage_offset());
      flat_.words.push_back(
          static_cast<std::int64_t>(tensor.storage().nbytes()));
    });
  }
}

SegmentRunner::Key& SegmentRunner::findKey() {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i]->words != flat_.words)
      continue;
    if (i != 0)
      std::rotate(keys_.begin(), keys_.begin() + i, keys_.begin() + i + 1);
    return *keys_.front();
  }
  makeRoom();
  auto key = std::make_unique<Key>();
  key->words = flat_.words;
  if (evictions_ >= kChurnLimit) {
    lose(*key,
         "key churn: the shapes or scalars of this segment's inputs change too "
         "often for captures to pay");
  }
  keys_.insert(keys_.begin(), std::move(key));
  return *keys_.front();
}

void SegmentRunner::makeRoom() {
  const auto most = static_cast<std::size_t>(
      std::max<std::int64_t>(1, context_.options().max_keys_per_segment));
  while (keys_.size() >= most) {
    const Key& victim = *keys_.back();
    if (victim.replays >= 2) {
      evictions_ = 0;
    } else if (victim.state != Key::State::kEager) {
      ++evictions_;
    }
    const bool captured = !victim.captures.empty();
    keys_.pop_back();
    if (captured)
      context_.updatePoolBytes();
    say(LogLevel::kDebug, "lets go of the key used least recently");
  }
}

std::vector<IValue> SegmentRunner::warmUp(const IValue& module, Key& key,
                                          CaptureBackend& backend,
                                          std::vector<IValue> inputs) {
  const TraceRange range(definition_->ranges.warm_up.c_str());
  say(LogLevel::kDebug, "warms up for a new key");
  key.addresses.clear();
  for (const at::Tensor& tensor : flat_.tensors)
    key.addresses.push_back(tensor.const_data_ptr());
  // What holds for a container holds for the tensors in it.
  std::vector<bool> maybe_written;
  key.weights.clear();
  key.placed.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t count = tensorsIn(inputs[i]).size();
    maybe_written.insert(maybe_written.end(), count,
                         definition_->maybe_written[i]);
    key.weights.insert(key.weights.end(), count, definition_->weights[i]);
    key.placed.insert(key.placed.end(), count,
                      definition_->read_by_placement[i]);
  }
  key.moving.assign(flat_.tensors.size(), false);

  const std::size_t bound_begin = inputs.size();
  std::vector<IValue> arguments = withBound(std::move(inputs));
  const EffectsWatch watch(flat_.tensors, std::move(maybe_written), arguments,
                           bound_begin);
  const CaptureHints hints = hintsFor(arguments);
  KeyConstants::Recorder recorder(definition_->key_constants);
  std::vector<IValue> outputs;
  std::vector<Culprit> culprits;
  backend.warmUp([&] {
    WarmUpObserver observer(backend.device(), hints.inputs,
                            definition_->latent_breaks);
    outputs = runBody(*definition_->program, module, std::move(arguments),
                      &observer, /*segments=*/nullptr, &recorder);
    culprits = observer.culprits();
  });
  eager_calls_.fetch_add(1, std::memory_order_relaxed);
  learn(key, backend, watch, std::move(recorder), std::move(culprits), outputs);
  return outputs;
}

void SegmentRunner::learn(Key& key, CaptureBackend& backend,
                          const EffectsWatch& watch,
                          KeyConstants::Recorder recorder,
                          std::vector<Culprit> culprits,
                          const std::vector<IValue>& outputs) {
  try {
    key.constants = KeyConstants::from(std::move(recorder), backend, culprits);
    if (const char* refusal = watch.finish(outputs, key.effects)) {
      key.state = Key::State::kEager;
      key.eager_reason = refusal;
      return;
    }
    key.state = Key::State::kSeen;
    key.warm_on.push_back(std::this_thread::get_id());
    if (!culprits.empty())
      replan(culprits);
  } catch (const c10::OutOfMemoryError& error) {
    say(LogLevel::kInfo, firstLine(error.what()));
    if (!context_.freeMemory(backend, nullptr))
      lose(key, kOutOfMemory);
  } catch (const std::exception& error) {
    if (++key.failures == kMostAttempts)
      lose(key, std::string("cannot be prepared: ") + firstLine(error.what()));
  }
}

// What is known of the key stays as it is: captures may depend on it.
std::vector<IValue> SegmentRunner::warmUpThread(const IValue& module, Key& key,
                                                CaptureBackend& backend,
                                                std::vector<IValue> inputs) {
  const TraceRange range(definition_->ranges.warm_up.c_str());
  say(LogLevel::kDebug, "warms up on another thread");
  std::vector<IValue> outputs;
  backend.warmUp([&] {
    outputs =
        runBody(*definition_->program, module, withBound(std::move(inputs)));
  });
  eager_calls_.fetch_add(1, std::memory_order_relaxed);
  key.warm_on.push_back(std::this_thread::get_id());
  return outputs;
}

CapturedSegment* SegmentRunner::findCapture(Key& key) {
  for (const auto& capture : key.captures) {
    if (capture->fits(flat_.tensors))
      return capture.get();
  }
  // What was taken to stay in place has moved: from now on it is copied.
  for (const auto& capture : key.captures) {
    for (std::size_t i = 0; i < capture->inputs().size(); ++i) {
      const GraphInput& input = capture->inputs()[i];
      if (input.kind == GraphInput::Kind::kFixed &&
          input.address != flat_.tensors[i].const_data_ptr() &&
          !key.weights[i] && !key.moving[i]) {
        key.moving[i] = true;
        say(LogLevel::kDebug, "copies an input whose address changes");
      }
    }
  }
  return nullptr;
}

bool SegmentRunner::mustStayInPlace(const Key& key, std::size_t index) const {
  const at::Tensor& tensor = flat_.tensors[index];
  for (std::size_t i = 0; i < flat_.tensors.size(); ++i) {
    const at::Tensor& other = flat_.tensors[i];
    if (i != index && (key.effects.written[index] || key.effects.written[i]) &&
        other.device() == tensor.device() && sharesStorage(tensor, other)) {
      return true;
    }
  }
  bool shared = false;
  const auto& bound = bound_.values();
  for (std::size_t i = 0; i < bound.size(); ++i) {
    if (!key.effects.written[index] &&
        !definition_->maybe_written[definition_->call_inputs + i]) {
      continue;
    }
    forEachTensor(bound[i], [&](const at::Tensor& other) {
      shared |= sharesStorage(tensor, other);
    });
  }
  return shared;
}

std::optional<std::vector<GraphInput>> SegmentRunner::bindInputs(
    Key& key, CaptureBackend& backend) {
  std::vector<GraphInput> inputs;
  for (std::size_t i = 0; i < flat_.tensors.size(); ++i) {
    const at::Tensor& tensor = flat_.tensors[i];
    GraphInput& input = inputs.emplace_back();
    input.address = tensor.const_data_ptr();
    input.whole_storage = key.placed[i];
    input.bytes =
        input.whole_storage ? tensor.storage().nbytes() : extentBytes(tensor);
    if (tensor.device() != backend.device())
      continue;
    const bool pinned = mustStayInPlace(key, i);
    const bool ours = isSlotOf(tensor, &context_);
    const bool stays =
        key.weights[i] || (!key.moving[i] && input.address == key.addresses[i]);
    if (pinned || stays || (ours && !key.moving[i])) {
      if (pinned && key.moving[i] && key.captures.size() >= kMostVariants) {
        lose(key,
             "inputs share memory that is written, at an address that changes");
        return std::nullopt;
      }
      input.kind = GraphInput::Kind::kFixed;
    } else {
      input.kind = GraphInput::Kind::kSlot;
      input.write_back = key.effects.written[i];
      input.slot =
          c10::Storage(c10::Storage::use_byte_size_t(), input.bytes,
                       backend.allocateSlot(input.bytes), nullptr, false);
    }
  }
  return inputs;
}

std::unique_ptr<CapturedSegment> SegmentRunner::tryCapture(
    Key& key, CaptureBackend& backend, const std::vector<IValue>& inputs,
    NodeListener& listener) {
  auto graph_inputs = bindInputs(key, backend);
  if (!graph_inputs)
    return nullptr;
  auto result = std::make_unique<CapturedSegment>(std::move(*graph_inputs));
  backend.enterStream();
  std::vector<at::Tensor> arguments =
      result->makeArguments(flat_.tensors, backend);
  std::vector<IValue> values;
  std::size_t next = 0;
  for (const IValue& input : inputs)
    values.push_back(withTensors(input, arguments, next));
  values = withBound(std::move(values));
  CaptureHints hints = hintsFor(values);
  key.constants.addTo(hints.inputs);
  KeyConstants::Presets presets(key.constants);
  std::vector<IValue> outputs;
  std::unique_ptr<CapturedGraph> graph = backend.capture(
      [&] {
        outputs = definition_->program->run(std::move(values), &listener,
                                            /*segments=*/nullptr, &presets);
      },
      hints);
  result->record({std::move(graph), std::move(outputs), std::move(arguments),
                  &bound_.values(), &definition_->borrowed, &key.effects,
                  *flat_.device, &context_, [&key](const at::Tensor& tensor) {
                    return key.constants.holds(tensor);
                  }});
  return result;
}

CapturedSegment* SegmentRunner::capture(Key& key, CaptureBackend& backend,
                                        const std::vector<IValue>& inputs) {
  const TraceRange range(definition_->ranges.capture.c_str());
  if (key.captures.size() >= kMostVariants)
    key.captures.erase(key.captures.begin());

  // Knows the innermost node at work, also while an exception passes.
  struct Tracker final : NodeListener {
    void before(const Node& node) override {
      nodes.push_back(&node);
      faultPoint(FaultKind::kNode);
    }
    void after(const Node&) override { nodes.pop_back(); }
    std::vector<const Node*> nodes;
  } tracker;
  std::unique_ptr<CapturedSegment> result;
  std::string failure;
  const Node* culprit = nullptr;
  // Another thread can break a capture by what it does meanwhile; only a node
  // that fails twice is one that a capture cannot hold.
  for (int attempt = 0; attempt < kMostAttempts && !result; ++attempt) {
    tracker.nodes.clear();
    const Node* earlier = std::exchange(culprit, nullptr);
    try {
      result = tryCapture(key, backend, inputs, tracker);
      if (!result)
        return nullptr;
    } catch (const c10::OutOfMemoryError& error) {
      say(LogLevel::kInfo, firstLine(error.what()));
      failure = kOutOfMemory;
      if (attempt == 0 && !context_.freeMemory(backend, nullptr))
        break;
    } catch (const std::exception& error) {
      failure = "capture failed: " + firstLine(error.what());
      if (!tracker.nodes.empty() &&
          (attempt == 0 || tracker.nodes.back() == earlier)) {
        culprit = tracker.nodes.back();
      }
    }
  }
  if (!result && culprit != nullptr) {
    try {
      say(LogLevel::kWarning,
          "is cut again: " + describeNode(*culprit) + ": " + failure);
      replan({{culprit,
               {CaptureClass::kUnsafe, Reason::kNone,
                "could not be captured: " + failure}}});
      return nullptr;
    } catch (const std::exception& error) {
      failure += "; nor can it be cut again: " + firstLine(error.what());
    }
  }
  if (!result) {
    lose(key, failure);
    return nullptr;
  }
  captures_.fetch_add(1, std::memory_order_relaxed);
  context_.updatePoolBytes();
  if (context_.log().says(LogLevel::kInfo)) {
    say(LogLevel::kInfo, "captured; " + std::to_string(context_.poolBytes()) +
                             " bytes in the pool");
  }
  dropOutdated(key, *result);
  key.captures.push_back(std::move(result));
  return key.captures.back().get();
}

void SegmentRunner::dropOutdated(Key& key, const CapturedSegment& latest) {
  const auto outdated = [&](const std::unique_ptr<CapturedSegment>& capture) {
    for (std::size_t i = 0; i < capture->inputs().size(); ++i) {
      if (key.moving[i] &&
          capture->inputs()[i].kind == GraphInput::Kind::kFixed &&
          latest.inputs()[i].kind == GraphInput::Kind::kSlot) {
        return true;
      }
    }
    return false;
  };
  key.captures.erase(
      std::remove_if(key.captures.begin(), key.captures.end(), outdated),
      key.captures.end());
}

std::vector<IValue> SegmentRunner::replay(const IValue& module, Key& key,
                                          CapturedSegment& capture,
                                          CaptureBackend& backend,
                                          std::vector<IValue> inputs) {
  const TraceRange range(definition_->ranges.replay.c_str());
  std::string failure;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    try {
      capture.prepareReplay(backend, inputs, flat_.tensors);
      failure.clear();
      break;
    } catch (const c10::OutOfMemoryError& error) {
      say(LogLevel::kInfo, firstLine(error.what()));
      failure = kOutOfMemory;
      if (attempt == 0 && !context_.freeMemory(backend, &capture))
        break;
    } catch (const std::exception& error) {
      failure = "cannot be replayed: " + firstLine(error.what());
    }
  }
  if (!failure.empty())
    return runEagerly(module, std::move(inputs), failure);
  std::vector<IValue> results = capture.replay(
      backend, key.effects, std::move(inputs), flat_.tensors, bound_.values());
  replays_.fetch_add(1, std::memory_order_relaxed);
  ++key.replays;
  return results;
}

void SegmentRunner::dropCaptures(const CapturedSegment* needed) {
  for (const auto& key : keys_) {
    auto& captures = key->captures;
    captures.erase(std::remove_if(captures.begin(), captures.end(),
                                  [&](const auto& capture) {
                                    return capture.get() != needed &&
                                           !capture->isHeld();
                                  }),
                   captures.end());
  }
}

// ---- replanning -------------------------------------------------------------

namespace {

// Marks in `copy` the nodes that stand where `culprits` stand in `original`.
void markCulprits(const Block* original, Block* copy,
                  const std::vector<Culprit>& culprits) {
  auto left = original->nodes().begin();
  for (Node* node : copy->nodes()) {
    const Node* counterpart = *left;
    ++left;
    for (const Culprit& culprit : culprits) {
      if (culprit.node != counterpart)
        continue;
      node->i_(noGraphAttribute(), 1);
      node->s_(noGraphTagAttribute(), culprit.why.sentence);
    }
    for (std::size_t i = 0; i < node->blocks().size(); ++i) {
      markCulprits(counterpart->blocks()[i], node->blocks()[i], culprits);
    }
  }
}

}  // namespace

void SegmentRunner::replan(const std::vector<Culprit>& culprits) {
  for (const Culprit& culprit : culprits) {
    addReason(describeNode(*culprit.node) + " " + culprit.why.sentence);
  }
  auto graph = definition_->program->graph()->copy();
  markCulprits(definition_->program->graph()->block(), graph->block(),
               culprits);
  const PartitionOptions options = planOptions(context_.options());
  outline(*graph, plan(*graph, options));

  auto composite = std::make_unique<Composite>();
  const std::vector<Node*> nodes = segmentNodes(*graph);
  const auto inputs = graph->inputs();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Node* node = nodes[i];
    node->i_(kPartAttribute, static_cast<std::int64_t>(i));
    std::vector<bool> weights;
    for (const Value* input : node->inputs()) {
      const auto it = std::find(inputs.begin(), inputs.end(), input);
      const auto index = static_cast<std::size_t>(it - inputs.begin());
      weights.push_back(
          it != inputs.end() &&
          (index >= definition_->call_inputs || definition_->weights[index]));
    }
    composite->parts.push_back(std::make_unique<SegmentRunner>(
        defineSegment(definition_->name + "." + std::to_string(i),
                      node->g(attr::Subgraph)->copy(), {}, {},
                      std::move(weights), options),
        context_));
  }
  composite->program = std::make_unique<Program>(std::move(graph));
  {
    const std::lock_guard<std::mutex> lock(report_mutex_);
    composite_ = std::move(composite);
  }
  keys_.clear();
}

bool SegmentRunner::isHeld() const {
  if (composite_) {
    const auto& parts = composite_->parts;
    return std::any_of(parts.begin(), parts.end(),
                       [](const auto& part) { return part->isHeld(); });
  }
  return std::any_of(keys_.begin(), keys_.end(), [](const auto& key) {
    return std::any_of(key->captures.begin(), key->captures.end(),
                       [](const auto& capture) { return capture->isHeld(); });
  });
}

void SegmentRunner::addStatistics(std::vector<SegmentStatistics>& all) const {
  auto it = std::find_if(all.begin(), all.end(), [&](const auto& known) {
    return known.name == definition_->name;
  });
  if (it == all.end()) {
    it = all.emplace(all.end());
    it->name = definition_->name;
    it->nodes = definition_->nodes;
  }
  it->captures += captures_.load(std::memory_order_relaxed);
  it->replays += replays_.load(std::memory_order_relaxed);
  it->eager_calls += eager_calls_.load(std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(report_mutex_);
  for (const std::string& reason : reasons_) {
    if (std::find(it->reasons.begin(), it->reasons.end(), reason) ==
        it->reasons.end()) {
      it->reasons.push_back(reason);
    }
  }
  if (!composite_)
    return;
  for (const auto& part : composite_->parts)
    part->addStatistics(all);
}

}  // namespace pcg
