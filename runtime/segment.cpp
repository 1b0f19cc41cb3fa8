#include "runtime/segment.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "passes/key_constants.h"
#include "passes/operators.h"
#include "passes/outline.h"
#include "passes/placement.h"
#include "passes/plan.h"
#include "passes/provenance.h"
#include "passes/source_location.h"
#include "runtime/device_tensors.h"
#include "runtime/replay_check.h"

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

std::string firstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Version counters tell exactly what a call has written; tensors made in
// inference mode have none.
std::optional<std::uint32_t> versionOf(const at::Tensor& tensor) {
  if (tensor.is_inference())
    return std::nullopt;
  return static_cast<std::uint32_t>(tensor._version());
}

std::optional<std::uint32_t> versionOf(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined())
    return std::nullopt;
  return versionOf(value.toTensor());
}

// A graph's writes go past the counter by which autograd notices that a tensor
// it saved has changed.
void bumpVersion(const at::Tensor& tensor) {
  if (!tensor.is_inference())
    tensor.unsafeGetTensorImpl()->bump_version();
}

bool sharesStorage(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() ==
         b.storage().unsafeGetStorageImpl();
}

std::int64_t byteOffset(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
}

std::vector<at::Tensor> tensorsIn(const IValue& value) {
  std::vector<at::Tensor> tensors;
  forEachTensor(value,
                [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

bool isMutableContainer(const IValue& value) {
  return value.isList() || value.isGenericDict();
}

// The lists and dicts in a value, itself included.
void collectContainers(const IValue& value, std::vector<const void*>& out) {
  if (isMutableContainer(value))
    out.push_back(value.internalToPointer());
  if (value.isTuple()) {
    for (const IValue& element : value.toTupleRef().elements())
      collectContainers(element, out);
  } else if (value.isList()) {
    for (const IValue& element : value.toListRef())
      collectContainers(element, out);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict())
      collectContainers(item.value(), out);
  }
}

// Visits the lists and dicts in a value that lie in no other list or dict.
template <typename Visit>
void forEachOuterContainer(const IValue& value, const Visit& visit) {
  if (isMutableContainer(value)) {
    visit(value);
  } else if (value.isTuple()) {
    for (const IValue& element : value.toTupleRef().elements())
      forEachOuterContainer(element, visit);
  }
}

// Replaces those of them, in the same order, for which `others` holds a value.
IValue withContainers(const IValue& value, const std::vector<IValue>& others,
                      std::size_t& next) {
  if (isMutableContainer(value)) {
    const IValue& other = others.at(next++);
    return other.isNone() ? value : other;
  }
  if (!value.isTuple())
    return value;
  std::vector<IValue> elements;
  for (const IValue& element : value.toTupleRef().elements())
    elements.push_back(withContainers(element, others, next));
  return c10::ivalue::Tuple::create(std::move(elements));
}

}  // namespace

namespace {

// From here on, no dead code is eliminated. Segments hold them at top level.
void removeKeepMarkers(Graph& graph) {
  for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
    Node* node = *it;
    ++it;
    if (node->kind() == keepKind())
      node->destroy();
  }
}

}  // namespace

PartitionOptions planOptions(const SequenceState& state) {
  PartitionOptions options;
  options.min_segment_size = state.min_segment_size;
  options.graph_safe_ops = state.graph_safe_ops;
  return options;
}

std::shared_ptr<const SegmentDefinition> defineSegment(
    std::string name, std::shared_ptr<Graph> graph,
    std::vector<BoundValue> bound, std::vector<bool> borrowed,
    std::vector<bool> weights, const PartitionOptions& options) {
  removeKeepMarkers(*graph);
  auto definition = std::make_shared<SegmentDefinition>();
  definition->name = std::move(name);
  definition->call_inputs = graph->inputs().size() - bound.size();
  definition->bound = std::move(bound);
  definition->borrowed = std::move(borrowed);
  definition->borrowed.resize(graph->outputs().size(), false);
  definition->weights = std::move(weights);
  definition->weights.resize(graph->inputs().size(), false);
  definition->nodes = countNodes(*graph->block());
  definition->read_by_placement = inputsReadByPlacement(*graph);
  {
    torch::jit::AliasDb aliases(graph);
    for (const Value* input : graph->inputs()) {
      const bool written = aliases.hasWriters(input);
      definition->maybe_written.push_back(written);
      definition->writes_inputs |= written;
    }
    for (KeyConstant& found : findKeyConstants(*graph)) {
      definition->key_constants[found.node] = {
          std::move(found.sources), found.glue,
          !aliases.hasWriters(found.node->output())};
    }
  }
  for (const PlannedBreak& latent : latentBreaks(*graph, options)) {
    definition->latent_breaks[latent.node] = latent.why;
  }
  definition->draws_random = drawsRandomNumbers(*graph->block());
  definition->program = std::make_shared<Program>(std::move(graph));
  return definition;
}

namespace {

// Where freezing has taken an object away, it has found that nobody reads it.
void assign(const IValue& module, const AttributeNotes::Note& note) {
  IValue object = module;
  std::size_t begin = 0;
  for (std::size_t end = note.path.find('.'); end != std::string::npos;
       begin = end + 1, end = note.path.find('.', begin)) {
    const std::string name = note.path.substr(begin, end - begin);
    if (!object.toObjectRef().type()->findAttributeSlot(name))
      return;
    object = object.toObjectRef().getAttr(name);
  }
  const std::string name = note.path.substr(begin);
  if (object.toObjectRef().type()->findAttributeSlot(name))
    object.toObject()->setAttr(name, note.value);
}

}  // namespace

std::vector<IValue> runBody(const Program& program, const IValue& module,
                            std::vector<IValue> inputs, NodeListener* listener,
                            const Program::SegmentHandler* segments,
                            NodeResults* results) {
  const AttributeNotes notes;
  try {
    return program.run(std::move(inputs), listener, segments, results);
  } catch (...) {
    for (const AttributeNotes::Note& note : notes.notes())
      assign(module, note);
    throw;
  }
}

// ---- ExecutionContext -------------------------------------------------------

ExecutionContext::ExecutionContext(const SequenceState& options,
                                   Backend backend)
    : options_(options), backend_(backend) {}

CaptureBackend* ExecutionContext::backendFor(c10::Device device,
                                             std::string& why) {
  if (backend_ == Backend::kOff) {
    why = "capturing is switched off";
    return nullptr;
  }
  if (device.is_cpu() && backend_ != Backend::kHost) {
    why = "the tensors are on the CPU";
    return nullptr;
  }
  if (!device.is_cpu() && !device.is_cuda()) {
    why = "no back end for device " + device.str();
    return nullptr;
  }
  for (Entry& entry : backends_) {
    if (entry.device == device) {
      why = entry.failure;
      return entry.backend.get();
    }
  }
  Entry entry{device, nullptr, ""};
  try {
    entry.backend =
        device.is_cpu() ? makeHostBackend() : makeCudaBackend(device);
  } catch (const std::exception& error) {
    entry.failure = firstLine(error.what());
  }
  backends_.push_back(std::move(entry));
  why = backends_.back().failure;
  return backends_.back().backend.get();
}

std::size_t ExecutionContext::poolBytes() const {
  std::size_t bytes = 0;
  for (const Entry& entry : backends_) {
    if (entry.backend)
      bytes += entry.backend->poolBytes();
  }
  return bytes;
}

// ---- keys and captures ------------------------------------------------------

struct SegmentRunner::Capture {
  // How one input tensor reaches the graph.
  struct Input {
    enum class Kind {
      kSlot,    // copied to `slot` unless it lies there
      kFixed,   // the graph uses the address that the key demands
      kUnread,  // host memory, whose metadata or value is in the key
    };
    Kind kind = Kind::kUnread;
    const void* address = nullptr;
    c10::Storage slot;
    std::size_t bytes = 0;
    bool write_back = false;
    bool whole_storage = false;

    // Where the bytes begin that a slot holds a copy of.
    const void* begin(const at::Tensor& tensor) const {
      return whole_storage ? tensor.storage().data() : tensor.const_data_ptr();
    }
    void* mutableBegin(const at::Tensor& tensor) const {
      return whole_storage ? tensor.storage().mutable_data()
                           : tensor.mutable_data_ptr();
    }
  };

  // One tensor among the outputs.
  struct Output {
    enum class Kind {
      kInput,  // the input tensor itself
      kBound,  // the bound tensor itself
      kSame,   // an earlier output itself
      kView,   // a tensor over the storage of `group`
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
  };

  // Declared before the graph: the graph goes first, then what it uses.
  std::vector<Input> inputs;
  std::vector<Group> groups;
  std::vector<Output> outputs;
  std::vector<IValue> templates;
  std::unique_ptr<CapturedGraph> graph;
};

struct SegmentRunner::Key {
  enum class State { kNew, kSeen, kEager };

  KeyWords words;
  State state = State::kNew;
  std::string eager_reason;

  // Learnt by the warm-up call.
  std::vector<const void*> addresses;
  std::vector<bool> written;
  std::vector<std::size_t> written_bound;  // of the bound values
  std::vector<bool> weights;
  std::vector<bool> placed;  // read by where they lie in their storage
  std::vector<bool> moving;  // known to change their address
  KeyConstants constants;
  // Lists and dicts among the outputs: which argument each of them is.
  std::vector<std::optional<std::size_t>> passed;
  bool passes_any = false;

  std::vector<std::unique_ptr<Capture>> captures;
  std::int64_t replays = 0;
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
      bound_(definition_->bound) {}

SegmentRunner::~SegmentRunner() = default;

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
  const std::lock_guard<std::mutex> lock(report_mutex_);
  if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) {
    reasons_.push_back(reason);
  }
}

std::vector<IValue> SegmentRunner::runEagerly(const IValue& module,
                                              std::vector<IValue> inputs,
                                              const std::string& reason) {
  if (!reason.empty())
    addReason(reason);
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
  Capture* found = findCapture(key);
  if (found == nullptr) {
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
        replay(key, *found, *backend, std::move(inputs));
    check.compare(results, arguments);
    return results;
  }
  return replay(key, *found, *backend, std::move(inputs));
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
    key->state = Key::State::kEager;
    key->eager_reason =
        "key churn: the shapes or scalars of this segment's inputs change too "
        "often for captures to pay";
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
    keys_.pop_back();
  }
}

std::vector<IValue> SegmentRunner::warmUp(const IValue& module, Key& key,
                                          CaptureBackend& backend,
                                          std::vector<IValue> inputs) {
  key.addresses.clear();
  std::vector<std::optional<std::uint32_t>> versions;
  for (const at::Tensor& tensor : flat_.tensors) {
    key.addresses.push_back(tensor.const_data_ptr());
    versions.push_back(versionOf(tensor));
  }
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
  std::vector<std::optional<std::uint32_t>> bound_versions;
  for (const IValue& value : bound_.values())
    bound_versions.push_back(versionOf(value));

  std::vector<IValue> outputs;
  std::vector<Culprit> culprits;
  std::vector<IValue> arguments = withBound(std::move(inputs));
  std::vector<const void*>
      whole;  // arguments that are a list or dict, else null
  std::vector<const void*> containers;
  for (const IValue& argument : arguments) {
    whole.push_back(isMutableContainer(argument) ? argument.internalToPointer()
                                                 : nullptr);
    collectContainers(argument, containers);
  }
  const CaptureHints hints = hintsFor(arguments);
  KeyConstants::Recorder recorder(definition_->key_constants);
  backend.warmUp([&] {
    WarmUpObserver observer(backend.device(), hints.inputs,
                            definition_->latent_breaks);
    outputs = runBody(*definition_->program, module, std::move(arguments),
                      &observer, /*segments=*/nullptr, &recorder);
    culprits = observer.culprits();
  });
  key.constants = KeyConstants::from(std::move(recorder), backend, culprits);
  eager_calls_.fetch_add(1, std::memory_order_relaxed);

  key.written.clear();
  for (std::size_t i = 0; i < flat_.tensors.size(); ++i) {
    const auto version = versionOf(flat_.tensors[i]);
    key.written.push_back(version && versions[i] ? *version != *versions[i]
                                                 : maybe_written[i]);
  }
  key.written_bound.clear();
  for (std::size_t i = 0; i < bound_versions.size(); ++i) {
    if (versionOf(bound_.values()[i]) != bound_versions[i])
      key.written_bound.push_back(i);
  }
  key.state = Key::State::kSeen;
  const auto stayEager = [&](const char* reason) {
    key.state = Key::State::kEager;
    key.eager_reason = reason;
  };
  forEachTensor(c10::ArrayRef<IValue>(outputs), [&](const at::Tensor& tensor) {
    if (key.state == Key::State::kEager)
      return;
    if (tensor.requires_grad()) {
      stayEager("autograd: a result requires a gradient");
    } else if (tensor.layout() != c10::kStrided || tensor.is_quantized() ||
               tensor.is_nested()) {
      stayEager("a result is sparse, quantized or nested");
    }
  });
  key.passed.clear();
  key.passes_any = false;
  for (const IValue& output : outputs) {
    forEachOuterContainer(output, [&](const IValue& container) {
      const auto same =
          std::find(whole.begin(), whole.end(), container.internalToPointer());
      key.passed.emplace_back();
      if (same != whole.end()) {
        key.passed.back() = static_cast<std::size_t>(same - whole.begin());
        key.passes_any = true;
        return;
      }
      std::vector<const void*> made;
      collectContainers(container, made);
      for (const void* one : made) {
        if (std::find(containers.begin(), containers.end(), one) !=
            containers.end()) {
          stayEager("a result holds a list or dict that something else holds");
        }
        containers.push_back(one);
      }
    });
  }
  if (at::GradMode::is_enabled()) {
    // Inputs that required a gradient before the call never come here.
    const auto cameToNeedOne = [](const at::Tensor& tensor) {
      return tensor.requires_grad();
    };
    bool needed =
        std::any_of(flat_.tensors.begin(), flat_.tensors.end(), cameToNeedOne);
    for (const std::size_t i : key.written_bound)
      needed |= bound_.values()[i].toTensor().requires_grad();
    if (needed)
      stayEager("autograd: what is written requires a gradient");
  }
  if (key.state == Key::State::kEager)
    return outputs;
  if (!culprits.empty())
    replan(culprits);
  return outputs;
}

SegmentRunner::Capture* SegmentRunner::findCapture(Key& key) {
  for (auto& capture : key.captures) {
    bool fits = true;
    for (std::size_t i = 0; i < capture->inputs.size() && fits; ++i) {
      const Capture::Input& input = capture->inputs[i];
      fits = input.kind != Capture::Input::Kind::kFixed ||
             input.address == flat_.tensors[i].const_data_ptr();
    }
    if (fits)
      return capture.get();
  }
  // What was taken to stay in place has moved: from now on it is copied.
  for (auto& capture : key.captures) {
    for (std::size_t i = 0; i < capture->inputs.size(); ++i) {
      const Capture::Input& input = capture->inputs[i];
      if (input.kind == Capture::Input::Kind::kFixed &&
          input.address != flat_.tensors[i].const_data_ptr() &&
          !key.weights[i]) {
        key.moving[i] = true;
      }
    }
  }
  return nullptr;
}

bool SegmentRunner::bindInputs(Key& key, Capture& capture,
                               CaptureBackend& backend, std::string& refusal) {
  const auto& tensors = flat_.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    Capture::Input input;
    input.address = tensor.const_data_ptr();
    input.whole_storage = key.placed[i];
    input.bytes =
        input.whole_storage ? tensor.storage().nbytes() : extentBytes(tensor);
    if (tensor.device() != backend.device()) {
      capture.inputs.push_back(std::move(input));
      continue;
    }
    // Memory that two inputs share is right only where it lies, if one of them
    // is written.
    bool pinned = false;
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      pinned |= j != i && (key.written[i] || key.written[j]) &&
                tensors[j].device() == tensor.device() &&
                sharesStorage(tensor, tensors[j]);
    }
    const auto& bound = bound_.values();
    for (std::size_t j = 0; j < bound.size(); ++j) {
      const bool written =
          key.written[i] ||
          definition_->maybe_written[definition_->call_inputs + j];
      forEachTensor(bound[j], [&](const at::Tensor& other) {
        pinned |= written && sharesStorage(tensor, other);
      });
    }
    const bool ours = isSlotOf(tensor, &context_);
    const bool stays =
        key.weights[i] || (!key.moving[i] && input.address == key.addresses[i]);
    if (pinned || stays || (ours && !key.moving[i])) {
      if (pinned && key.moving[i] && key.captures.size() >= kMostVariants) {
        refusal =
            "inputs share memory that is written, at an address that changes";
        return false;
      }
      input.kind = Capture::Input::Kind::kFixed;
    } else {
      input.kind = Capture::Input::Kind::kSlot;
      input.write_back = key.written[i];
      input.slot =
          c10::Storage(c10::Storage::use_byte_size_t(), input.bytes,
                       backend.allocateSlot(input.bytes), nullptr, false);
    }
    capture.inputs.push_back(std::move(input));
  }
  return true;
}

SegmentRunner::Capture* SegmentRunner::capture(
    Key& key, CaptureBackend& backend, const std::vector<IValue>& inputs) {
  if (key.captures.size() >= kMostVariants) {
    key.captures.erase(key.captures.begin());
  }
  auto result = std::make_unique<Capture>();
  std::string refusal;
  if (!bindInputs(key, *result, backend, refusal)) {
    key.state = Key::State::kEager;
    key.eager_reason = refusal;
    return nullptr;
  }
  backend.enterStream();
  // A graph knows addresses. A storage over the same memory, rather than the
  // caller's, so that neither its life nor its later moves matter.
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> pins;
  const auto pinned = [&pins](const c10::Storage& storage) {
    for (const auto& [known, pin] : pins) {
      if (known == storage.unsafeGetStorageImpl())
        return pin;
    }
    auto* data = const_cast<void*>(storage.data());
    pins.emplace_back(
        storage.unsafeGetStorageImpl(),
        c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                     at::DataPtr(data, storage.device()), nullptr, false));
    return pins.back().second;
  };
  std::vector<at::Tensor> arguments;
  std::vector<CopyOperation> copies;
  for (std::size_t i = 0; i < flat_.tensors.size(); ++i) {
    const at::Tensor& tensor = flat_.tensors[i];
    const Capture::Input& input = result->inputs[i];
    TensorLayout layout = TensorLayout::of(tensor);
    switch (input.kind) {
      case Capture::Input::Kind::kSlot:
        if (!input.whole_storage)
          layout.offset = 0;
        arguments.push_back(tensorOver(input.slot, layout));
        copies.push_back(
            {input.slot.mutable_data(), input.begin(tensor), input.bytes});
        break;
      case Capture::Input::Kind::kFixed:
        arguments.push_back(tensorOver(pinned(tensor.storage()), layout));
        break;
      case Capture::Input::Kind::kUnread:
        arguments.push_back(isHostScalarTensor(tensor) ? tensor.clone()
                                                       : tensor);
        break;
    }
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      arguments.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    // Without a tape, all that it does is to be read by the body.
    if (tensor.requires_grad())
      arguments.back().set_requires_grad(true);
  }
  backend.copy(copies);

  // Knows the innermost node at work, also while an exception passes.
  struct Tracker final : NodeListener {
    void before(const Node& node) override { nodes.push_back(&node); }
    void after(const Node&) override { nodes.pop_back(); }
    std::vector<const Node*> nodes;
  } tracker;
  std::vector<IValue> outputs;
  std::string failure;
  const Node* culprit = nullptr;
  // Another thread can break a capture by what it does meanwhile; only a node
  // that fails twice is one that a capture cannot hold.
  for (int attempt = 0; attempt < 2 && !result->graph; ++attempt) {
    std::vector<IValue> values;
    std::size_t next = 0;
    for (const IValue& input : inputs) {
      values.push_back(withTensors(input, arguments, next));
    }
    values = withBound(std::move(values));
    CaptureHints hints = hintsFor(values);
    key.constants.addTo(hints.inputs);
    KeyConstants::Presets presets(key.constants);
    tracker.nodes.clear();
    outputs.clear();
    const Node* earlier = culprit;
    culprit = nullptr;
    try {
      result->graph = backend.capture(
          [&] {
            outputs = definition_->program->run(std::move(values), &tracker,
                                                /*segments=*/nullptr, &presets);
          },
          hints);
    } catch (const c10::OutOfMemoryError& error) {
      failure = firstLine(error.what());
      break;
    } catch (const std::exception& error) {
      failure = firstLine(error.what());
      if (!tracker.nodes.empty())
        culprit = tracker.nodes.back();
      if (attempt == 1 && culprit != earlier)
        culprit = nullptr;
    }
  }
  if (!result->graph) {
    if (culprit != nullptr) {
      replan({{culprit,
               {CaptureClass::kUnsafe, Reason::kNone,
                "could not be captured: " + failure}}});
    } else {
      key.state = Key::State::kEager;
      key.eager_reason = "capture failed: " + failure;
    }
    return nullptr;
  }
  recordOutputs(key, *result, outputs, arguments);
  captures_.fetch_add(1, std::memory_order_relaxed);
  // Captures that expect an address which is known to change serve no more.
  key.captures.erase(
      std::remove_if(
          key.captures.begin(), key.captures.end(),
          [&](const auto& old) {
            for (std::size_t i = 0; i < old->inputs.size(); ++i) {
              if (key.moving[i] &&
                  old->inputs[i].kind == Capture::Input::Kind::kFixed &&
                  result->inputs[i].kind == Capture::Input::Kind::kSlot) {
                return true;
              }
            }
            return false;
          }),
      key.captures.end());
  key.captures.push_back(std::move(result));
  return key.captures.back().get();
}

void SegmentRunner::recordOutputs(const Key& key, Capture& capture,
                                  const std::vector<IValue>& outputs,
                                  const std::vector<at::Tensor>& arguments) {
  capture.templates = outputs;
  std::vector<at::Tensor> seen;
  std::vector<const c10::StorageImpl*> storages;
  const auto& bound = bound_.values();
  for (std::size_t position = 0; position < outputs.size(); ++position) {
    for (const at::Tensor& tensor : tensorsIn(outputs[position])) {
      Capture::Output output;
      const auto same = [&](const at::Tensor& other) {
        return other.is_same(tensor);
      };
      const auto earlier = std::find_if(seen.begin(), seen.end(), same);
      const auto argument =
          std::find_if(arguments.begin(), arguments.end(), same);
      const auto weight =
          std::find_if(bound.begin(), bound.end(), [&](const IValue& value) {
            return value.isTensor() && value.toTensor().is_same(tensor);
          });
      const bool leaves = !definition_->borrowed[position];
      if (earlier != seen.end()) {
        output.kind = Capture::Output::Kind::kSame;
        output.index = static_cast<std::size_t>(earlier - seen.begin());
        const Capture::Output& first = capture.outputs[output.index];
        if (first.kind == Capture::Output::Kind::kView && leaves) {
          capture.groups[first.index].leaves_call = true;
        }
      } else if (argument != arguments.end()) {
        output.kind = Capture::Output::Kind::kInput;
        output.index = static_cast<std::size_t>(argument - arguments.begin());
      } else if (weight != bound.end()) {
        output.kind = Capture::Output::Kind::kBound;
        output.index = static_cast<std::size_t>(weight - bound.begin());
      } else if (tensor.device() != *flat_.device) {
        output.kind = Capture::Output::Kind::kHost;
        output.host = tensor.clone();
      } else {
        const auto* storage = tensor.storage().unsafeGetStorageImpl();
        const auto known = std::find(storages.begin(), storages.end(), storage);
        if (known == storages.end()) {
          Capture::Group group;
          for (std::size_t i = 0; i < arguments.size(); ++i) {
            if (sharesStorage(arguments[i], tensor)) {
              group.kind = Capture::Group::Kind::kInput;
              group.index = i;
              group.argument_offset = arguments[i].storage_offset();
              break;
            }
          }
          for (std::size_t i = 0;
               i < bound.size() && group.kind == Capture::Group::Kind::kSlot;
               ++i) {
            if (bound[i].isTensor() && bound[i].toTensor().defined() &&
                sharesStorage(bound[i].toTensor(), tensor)) {
              group.kind = Capture::Group::Kind::kBound;
              group.index = i;
            }
          }
          if (group.kind == Capture::Group::Kind::kSlot) {
            group.slot.emplace(tensor.storage(), &context_);
            // No replay makes a constant anew: nobody else may write it.
            group.leaves_call = key.constants.holds(tensor);
          }
          storages.push_back(storage);
          capture.groups.push_back(std::move(group));
          output.index = capture.groups.size() - 1;
        } else {
          output.index = static_cast<std::size_t>(known - storages.begin());
        }
        capture.groups[output.index].leaves_call |= leaves;
        output.layout = TensorLayout::of(tensor);
      }
      seen.push_back(tensor);
      capture.outputs.push_back(std::move(output));
    }
  }
  // The templates only keep structure and host values.
  const std::vector<at::Tensor> placeholders(seen.size(), at::empty({0}));
  std::size_t next = 0;
  for (IValue& value : capture.templates) {
    value = withTensors(value, placeholders, next);
  }
}

std::vector<IValue> SegmentRunner::replay(Key& key, Capture& capture,
                                          CaptureBackend& backend,
                                          std::vector<IValue> inputs) {
  backend.enterStream();
  copies_.clear();
  std::vector<CopyOperation> write_backs;
  for (std::size_t i = 0; i < capture.inputs.size(); ++i) {
    const Capture::Input& input = capture.inputs[i];
    if (input.kind != Capture::Input::Kind::kSlot || input.bytes == 0)
      continue;
    const at::Tensor& tensor = flat_.tensors[i];
    copies_.push_back(
        {input.slot.mutable_data(), input.begin(tensor), input.bytes});
    if (input.write_back) {
      write_backs.push_back(
          {input.mutableBegin(tensor), input.slot.mutable_data(), input.bytes});
    }
  }
  if (!copies_.empty())
    backend.copy(copies_);

  // Inputs that results lie in are needed again; all others are let go, so
  // that a loop's own result does not count as held by somebody.
  std::vector<at::Tensor> kept(flat_.tensors.size());
  for (const Capture::Output& output : capture.outputs) {
    if (output.kind == Capture::Output::Kind::kInput) {
      kept[output.index] = flat_.tensors[output.index];
    }
  }
  for (const Capture::Group& group : capture.groups) {
    if (group.kind == Capture::Group::Kind::kInput) {
      kept[group.index] = flat_.tensors[group.index];
    }
  }
  for (std::size_t i = 0; i < capture.inputs.size(); ++i) {
    // Written through, or read where they lie: alive until the launch.
    if (capture.inputs[i].write_back ||
        capture.inputs[i].kind == Capture::Input::Kind::kFixed) {
      kept[i] = flat_.tensors[i];
    }
  }
  std::vector<at::Tensor> written;
  for (std::size_t i = 0; i < key.written.size(); ++i) {
    if (key.written[i])
      written.push_back(flat_.tensors[i]);
  }
  for (const std::size_t i : key.written_bound)
    written.push_back(bound_.values()[i].toTensor());
  std::vector<IValue> passed;
  if (key.passes_any) {
    for (const std::optional<std::size_t>& index : key.passed) {
      passed.push_back(!index ? IValue()
                       : *index < inputs.size()
                           ? inputs[*index]
                           : bound_.values()[*index - inputs.size()]);
    }
  }
  std::vector<IValue>().swap(inputs);
  flat_.tensors.clear();
  for (Capture::Group& group : capture.groups) {
    if (group.slot && group.slot->isHeld())
      group.slot->evacuate(backend);
  }

  capture.graph->replay();
  replays_.fetch_add(1, std::memory_order_relaxed);
  ++key.replays;
  if (!write_backs.empty())
    backend.copy(write_backs);
  for (const at::Tensor& tensor : written)
    bumpVersion(tensor);

  // Storages first: several outputs may lie in one.
  std::vector<c10::Storage> storages;
  copies_.clear();
  for (Capture::Group& group : capture.groups) {
    switch (group.kind) {
      case Capture::Group::Kind::kInput:
        storages.push_back(kept[group.index].storage());
        break;
      case Capture::Group::Kind::kBound:
        storages.push_back(bound_.values()[group.index].toTensor().storage());
        break;
      case Capture::Group::Kind::kSlot:
        if (!group.leaves_call) {
          storages.push_back(group.slot->handOut());
          break;
        }
        const std::size_t bytes = group.slot->bytes();
        at::DataPtr memory = backend.allocate(bytes);
        if (bytes != 0) {
          copies_.push_back({memory.get(), group.slot->data(), bytes});
        }
        storages.push_back(c10::Storage(
            c10::Storage::use_byte_size_t(), bytes, std::move(memory),
            c10::GetAllocator(backend.device().type()), /*resizable=*/true));
        break;
    }
  }
  if (!copies_.empty())
    backend.copy(copies_);

  std::vector<at::Tensor> tensors;
  for (const Capture::Output& output : capture.outputs) {
    switch (output.kind) {
      case Capture::Output::Kind::kInput:
        tensors.push_back(kept[output.index]);
        break;
      case Capture::Output::Kind::kBound:
        tensors.push_back(bound_.values()[output.index].toTensor());
        break;
      case Capture::Output::Kind::kSame:
        tensors.push_back(tensors[output.index]);
        break;
      case Capture::Output::Kind::kHost:
        tensors.push_back(output.host.clone());
        break;
      case Capture::Output::Kind::kView: {
        const Capture::Group& group = capture.groups[output.index];
        if (group.kind != Capture::Group::Kind::kInput) {
          tensors.push_back(tensorOver(storages[output.index], output.layout));
          break;
        }
        TensorLayout layout = output.layout;
        layout.offset +=
            kept[group.index].storage_offset() - group.argument_offset;
        tensors.push_back(tensorOver(storages[output.index], layout));
        break;
      }
    }
  }
  std::vector<IValue> results;
  std::size_t next = 0;
  for (const IValue& value : capture.templates) {
    results.push_back(withTensors(value, tensors, next));
  }
  if (key.passes_any) {
    next = 0;
    for (IValue& result : results)
      result = withContainers(result, passed, next);
  }
  return results;
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
