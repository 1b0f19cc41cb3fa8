// The emulating back end: records the operators that a body dispatches on CPU
// tensors and replays them into the same memory.
//
// It listens at two keys of the dispatcher, which it includes on the capturing
// thread while a capture lasts. The lower one stands below autograd and
// autocast and above all that computes, where a GPU would see its kernels: it
// meets what a composite operator is made of, the casts of autocast, and what
// derivative formulas save and call. The upper one meets operators as they are
// called: composite ones are judged there by their name, and those of others
// than aten recorded, since they may compute past the dispatcher.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "passes/capture_safety_table.h"
#include "runtime/backend.h"
#include "runtime/device_tensors.h"
#include "runtime/fault_injection.h"
#include "runtime/refusal.h"

namespace pcg {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using Arguments = c10::ArrayRef<IValue>;
using Stack = torch::jit::Stack;

// No tensor has these keys. The lower one is of torchdistx, which is gone.
constexpr DispatchKey kUpperKey = DispatchKey::TESTING_ONLY_GenericMode;
constexpr DispatchKey kLowerKey = DispatchKey::Fake;

DispatchKeySet keysBelow(DispatchKeySet keys, DispatchKey key) {
  return keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, key);
}

const c10::StorageImpl* storageOf(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl()
                              : nullptr;
}

// Containers are shared values, and operators may change a tensor's own sizes:
// what is recorded must not change later.
IValue snapshotOf(const IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    return at::Tensor(
        value.toTensor().unsafeGetTensorImpl()->shallow_copy_and_detach(
            c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
  }
  if (!value.isList())
    return value;
  c10::impl::GenericList list(value.type()->containedType(0));
  for (const IValue& element : value.toListRef()) {
    list.push_back(snapshotOf(element));
  }
  return list;
}

// ---- what a replay does -----------------------------------------------------

// One dispatched operator, as it was called.
struct Call {
  c10::OperatorHandle op;
  DispatchKeySet keys;
  Stack arguments;
  // Results in memory of their own, by position; those that alias an argument,
  // or were written in place, are not here.
  std::vector<std::pair<std::size_t, at::Tensor>> fresh;

  void run(Stack& stack) const {
    stack.assign(arguments.begin(), arguments.end());
    op.redispatchBoxed(keys, &stack);
    std::size_t position = 0;
    auto next = fresh.begin();
    forEachTensor(Arguments(stack), [&](const at::Tensor& now) {
      if (next != fresh.end() && next->first == position) {
        if (next->second.numel() != 0)
          next->second.copy_(now);
        ++next;
      }
      ++position;
    });
  }
};

// Memory as it was when the body began to write it.
struct Restore {
  c10::Storage storage;
  std::vector<char> bytes;

  explicit Restore(c10::Storage where) : storage(std::move(where)) {
    const auto* data = static_cast<const char*>(storage.data());
    bytes.assign(data, data + storage.nbytes());
  }

  void run(Stack&) const {
    if (bytes.empty())
      return;
    std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
  }
};

using Step = std::variant<Call, Restore>;

class HostGraph final : public CapturedGraph {
 public:
  HostGraph(std::vector<Step> steps, std::size_t bytes,
            std::shared_ptr<std::size_t> pool)
      : steps_(std::move(steps)), bytes_(bytes), pool_(std::move(pool)) {
    *pool_ += bytes_;
  }
  ~HostGraph() override { *pool_ -= bytes_; }

  void replay() override {
    // Device work knows neither gradients nor casts.
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    Stack stack;
    for (const Step& step : steps_) {
      std::visit([&](const auto& action) { action.run(stack); }, step);
    }
  }

  bool isEmpty() const override { return steps_.empty(); }

  std::int64_t size() const override {
    return std::count_if(steps_.begin(), steps_.end(), [](const Step& step) {
      return std::holds_alternative<Call>(step);
    });
  }

 private:
  std::vector<Step> steps_;
  std::size_t bytes_;
  std::shared_ptr<std::size_t> pool_;
};

// ---- what a capture does ----------------------------------------------------

bool writes(const c10::AliasInfo& alias) {
  return alias.isWrite() || std::any_of(alias.containedTypes().begin(),
                                        alias.containedTypes().end(), writes);
}

bool writes(const c10::Argument& argument) {
  if (argument.alias_info() != nullptr && writes(*argument.alias_info())) {
    return true;
  }
  // Normalization updates its statistics without saying so.
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

// Whether a write leaves nothing of what the memory held.
bool overwrites(const c10::OperatorHandle& op, const c10::Argument& argument,
                const at::Tensor& tensor) {
  const std::string& name = op.operator_name().name;
  return (argument.is_out() || name == "aten::fill_" || name == "aten::copy_" ||
          name == "aten::zero_") &&
         tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().nbytes();
}

bool isForeign(const c10::OperatorHandle& op) {
  return op.operator_name().name.rfind("aten::", 0) != 0;
}

// Whether the table says all there is to say about an operator, given that it
// does not refuse the arguments.
bool isKnown(const c10::OperatorHandle& op) {
  const OperatorRule* rule =
      findOperatorRule(c10::toString(op.operator_name()));
  return rule != nullptr && rule->condition != Condition::kRuntime;
}

bool onlyReserves(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.rfind("aten::empty", 0) == 0 ||
         name.rfind("aten::new_empty", 0) == 0;
}

class Recorder {
 public:
  explicit Recorder(const CaptureHints& hints)
      : device_(hints.inputs), any_input_(hints.any_input) {
    for (const at::Tensor& tensor : hints.inputs) {
      if (tensor.has_storage())
        outside_.insert(storageOf(tensor));
    }
  }

  void dispatchAbove(const c10::OperatorHandle& op, DispatchKeySet keys,
                     Stack* stack) {
    keys = keysBelow(keys, kUpperKey);
    if (depth_ > 0 || !isComposite(op)) {
      op.redispatchBoxed(keys, stack);
      return;
    }
    const Arguments arguments = argumentsOf(op, *stack);
    meet(arguments);
    if (isForeign(op) && !keys.has_any(c10::autocast_dispatch_keyset) &&
        !isDifferentiable(arguments)) {
      dispatch(op, keys, stack);
      return;
    }
    if (device_.onDevice(arguments))
      refuse(op, arguments);
    const Nested part(composite_, 1);
    const Nested vouched(vouched_, isKnown(op) ? 1 : 0);
    op.redispatchBoxed(keys, stack);
  }

  void dispatchBelow(const c10::OperatorHandle& op, DispatchKeySet keys,
                     Stack* stack) {
    keys = keysBelow(keys, kLowerKey);
    if (depth_ > 0 || isComposite(op)) {
      // What CPU kernels call is their own affair.
      op.redispatchBoxed(keys, stack);
    } else if (vouched_ > 0 && op.hasTag(at::Tag::data_dependent_output)) {
      // A check that only CPU tensors undergo.
      op.redispatchBoxed(keys, stack);
    } else {
      dispatch(op, keys, stack);
    }
  }

  // A capture runs nothing; this one did, and puts back what lies outside. Two
  // storages may cover the same bytes: the older copy is the true one.
  void restoreOutside() {
    Stack stack;
    for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept)
      kept->run(stack);
  }

  std::vector<Step> takeSteps() { return std::move(steps_); }

  std::size_t bytes() const { return bytes_; }

 private:
  // Counts how deep below certain operators the thread is.
  class Nested {
   public:
    Nested(int& depth, int levels) : depth_(depth), levels_(levels) {
      depth_ += levels_;
    }
    ~Nested() { depth_ -= levels_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    int& depth_;
    int levels_;
  };

  // A composite operator's parts are how a CPU goes about it: of what they do,
  // only reading data on the host counts, and below one that the table knows
  // to be safe, only sizes that a replay would freeze.
  bool counts(Reason reason) const {
    switch (reason) {
      case Reason::kDynamicShape:
        return true;
      case Reason::kHostRead:
      case Reason::kErrorCheck:
        return vouched_ == 0;
      default:
        return composite_ == 0;
    }
  }

  void refuse(const c10::OperatorHandle& op, Arguments arguments) const {
    const auto why = refusalOf(op, arguments);
    if (!why || !counts(why->reason))
      return;
    throw CaptureError(op.operator_name().name + " " + why->sentence);
  }

  // Takes tensors that nobody announced for device memory from outside.
  void meet(Arguments arguments) {
    if (!any_input_)
      return;
    forEachTensor(arguments, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage() || device_.contains(tensor) ||
          isBornHere(storageOf(tensor)) ||
          tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        return;
      }
      device_.add(tensor);
      outside_.insert(storageOf(tensor));
    });
  }

  // Of host memory.
  bool isBornHere(const c10::StorageImpl* storage) const {
    return std::any_of(host_.begin(), host_.end(), [&](const auto& known) {
      return known.unsafeGetStorageImpl() == storage;
    });
  }

  static Arguments argumentsOf(const c10::OperatorHandle& op,
                               const Stack& stack) {
    return torch::jit::last(stack, op.schema().arguments().size());
  }

  static bool isDifferentiable(Arguments arguments) {
    bool requires_grad = false;
    forEachTensor(arguments, [&](const at::Tensor& tensor) {
      requires_grad |= tensor.requires_grad();
    });
    return requires_grad && at::GradMode::is_enabled();
  }

  void dispatch(const c10::OperatorHandle& op, DispatchKeySet keys,
                Stack* stack) {
    const Arguments arguments = argumentsOf(op, *stack);
    meet(arguments);
    const bool on_device = device_.onDevice(arguments);
    if (on_device)
      refuse(op, arguments);
    // The call takes its arguments off the stack.
    const Stack before(arguments.begin(), arguments.end());
    const bool any_written = prepareWrites(op, before, on_device);
    {
      const Nested nested(depth_, 1);
      op.redispatchBoxed(keys, stack);
    }
    const auto results = torch::jit::last(*stack, op.schema().returns().size());
    if (!on_device) {
      // Arithmetic on wrapped host values happens once, as it would beside a
      // real capture.
      forEachTensor(results, [&](const at::Tensor& tensor) {
        if (aliasesAny(tensor, before))
          return;
        host_.push_back(tensor.storage());
      });
      return;
    }
    Call call{op, keys & c10::after_ADInplaceOrView_keyset, {}, {}};
    std::size_t position = 0;
    forEachTensor(results, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage() || tensor.layout() != c10::kStrided) {
        throw CaptureError(op.operator_name().name + " " +
                           describe(Reason::kStorageLayout));
      }
      if (!aliasesAny(tensor, before)) {
        call.fresh.emplace_back(position, snapshotOf(tensor).toTensor());
        own(tensor);
      }
      device_.add(tensor);
      ++position;
    });
    if (onlyReserves(op)) {
      for (const auto& item : call.fresh) {
        reserved_.insert(storageOf(item.second));
      }
      return;
    }
    // Views come out the same each time.
    if (!any_written && position > 0 && call.fresh.empty())
      return;
    for (const IValue& argument : before) {
      call.arguments.push_back(snapshotOf(argument));
    }
    steps_.emplace_back(std::move(call));
  }

  static bool aliasesAny(const at::Tensor& tensor, const Stack& arguments) {
    bool found = false;
    forEachTensor(Arguments(arguments), [&](const at::Tensor& argument) {
      found |= tensor.has_storage() && storageOf(tensor) == storageOf(argument);
    });
    return found;
  }

  void own(const at::Tensor& tensor) {
    if (!device_.contains(tensor))
      bytes_ += tensor.storage().nbytes();
  }

  // Looks after memory that an operator is about to write. Returns whether
  // there is any.
  bool prepareWrites(const c10::OperatorHandle& op, const Stack& arguments,
                     bool on_device) {
    bool any = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& declared = op.schema().arguments()[i];
      if (!writes(declared))
        continue;
      forEachTensor(arguments[i], [&](const at::Tensor& tensor) {
        any = true;
        if (tensor.has_storage()) {
          prepareWrite(op, declared, tensor, on_device);
        }
      });
    }
    return any;
  }

  void prepareWrite(const c10::OperatorHandle& op,
                    const c10::Argument& declared, const at::Tensor& tensor,
                    bool on_device) {
    const c10::StorageImpl* storage = storageOf(tensor);
    if (outside_.count(storage) != 0) {
      if (kept_storages_.insert(storage).second) {
        kept_.emplace_back(tensor.storage());
      }
      return;
    }
    if (reserved_.erase(storage) != 0) {
      // It may have been filled past the dispatcher, as `torch.tensor` does.
      if (!overwrites(op, declared, tensor)) {
        steps_.emplace_back(Restore(tensor.storage()));
      }
      return;
    }
    if (device_.contains(tensor))
      return;
    if (!isBornHere(storage)) {
      throw CaptureError(op.operator_name().name + " " +
                         describe(Reason::kOuterWrite));
    }
    if (on_device) {
      // From here on it is device memory, which each replay starts afresh.
      steps_.emplace_back(Restore(tensor.storage()));
      own(tensor);
      device_.add(tensor);
    }
  }

  DeviceTensors device_;
  bool any_input_;
  std::unordered_set<const c10::StorageImpl*> outside_;
  std::vector<Restore> kept_;
  std::unordered_set<const c10::StorageImpl*> kept_storages_;
  // Memory whose content no recorded operator has written yet.
  std::unordered_set<const c10::StorageImpl*> reserved_;
  std::vector<c10::Storage> host_;
  std::vector<Step> steps_;
  std::size_t bytes_ = 0;
  int depth_ = 0;      // below recorded operators
  int composite_ = 0;  // below composite ones
  int vouched_ = 0;    // below those that the table knows to be safe
};

thread_local Recorder* recording = nullptr;

void dispatchAbove(const c10::OperatorHandle& op, DispatchKeySet keys,
                   Stack* stack) {
  if (recording != nullptr) {
    recording->dispatchAbove(op, keys, stack);
  } else {
    op.redispatchBoxed(keysBelow(keys, kUpperKey), stack);
  }
}

void dispatchBelow(const c10::OperatorHandle& op, DispatchKeySet keys,
                   Stack* stack) {
  if (recording != nullptr) {
    recording->dispatchBelow(op, keys, stack);
  } else {
    op.redispatchBoxed(keysBelow(keys, kLowerKey), stack);
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&dispatchAbove>());
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&dispatchBelow>());
}

// Draws during a capture do not count: the replay draws.
class GeneratorKept {
 public:
  GeneratorKept() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~GeneratorKept() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  GeneratorKept(const GeneratorKept&) = delete;
  GeneratorKept& operator=(const GeneratorKept&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

// While it lives, the thread records.
class Recording {
 public:
  explicit Recording(Recorder& recorder)
      : recorder_(recorder), keys_(DispatchKeySet({kUpperKey, kLowerKey})) {
    recording = &recorder;
  }
  ~Recording() {
    recording = nullptr;
    recorder_.restoreOutside();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Recorder& recorder_;
  GeneratorKept generator_;
  c10::impl::IncludeDispatchKeyGuard keys_;
};

class HostCapture final : public OpenCapture {
 public:
  HostCapture(const CaptureHints& hints, std::shared_ptr<std::size_t> pool)
      : recorder_(hints), pool_(std::move(pool)) {
    if (recording != nullptr)
      throw CaptureError("this thread is capturing already");
    faultPoint(FaultKind::kCaptureBegin);
    active_.emplace(recorder_);
  }

  std::unique_ptr<CapturedGraph> finish() override {
    faultPoint(FaultKind::kCaptureEnd);
    active_.reset();
    return std::make_unique<HostGraph>(recorder_.takeSteps(), recorder_.bytes(),
                                       pool_);
  }

  // The recorder says by CaptureError what it refuses.
  bool isRefusal(const std::exception&) const override { return false; }

 private:
  Recorder recorder_;
  std::shared_ptr<std::size_t> pool_;
  std::optional<Recording> active_;
};

class HostBackend final : public CaptureBackend {
 public:
  c10::Device device() const override { return c10::kCPU; }

  void warmUp(const std::function<void()>& body) override { body(); }

  std::unique_ptr<OpenCapture> beginCapture(
      const CaptureHints& hints) override {
    return std::make_unique<HostCapture>(hints, pool_);
  }

  void synchronize() override {}
  void waitForReplays() override {}

  void copy(const std::vector<CopyOperation>& operations) override {
    for (const CopyOperation& operation : operations) {
      if (operation.bytes == 0)
        continue;
      std::memcpy(operation.destination, operation.source, operation.bytes);
    }
  }

  at::DataPtr allocate(std::size_t bytes) override {
    faultPoint(FaultKind::kAllocation);
    return c10::GetAllocator(c10::kCPU)->allocate(bytes);
  }

  at::DataPtr allocateSlot(std::size_t bytes) override {
    return allocate(bytes);
  }

  void enterStream() override {}

  void releaseUnused() override {}

  std::size_t poolBytes() const override { return *pool_; }

 private:
  // Shared with the graphs, which may outlive the backend.
  std::shared_ptr<std::size_t> pool_ = std::make_shared<std::size_t>(0);
};

}  // namespace

bool isCapturingOnHost() {
  return recording != nullptr;
}

std::unique_ptr<CaptureBackend> makeHostBackend() {
  return std::make_unique<HostBackend>();
}

}  // namespace pcg
