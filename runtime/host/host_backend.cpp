// The emulating back end: records the operators that a body dispatches on CPU
// tensors and replays them into the same memory.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstring>
#include <utility>
#include <vector>

#include "runtime/backend.h"
#include "runtime/device_tensors.h"
#include "runtime/refusal.h"

namespace pcg {
namespace {

using c10::DispatchKey;
using c10::IValue;
using Stack = torch::jit::Stack;

// A key that no tensor has and no library uses: it sees every operator that the
// capturing thread dispatches, above autograd and all others.
constexpr DispatchKey kRecordingKey = DispatchKey::TESTING_ONLY_GenericMode;

// One dispatched operator, as it was called.
struct Call {
  c10::OperatorHandle op;
  std::vector<IValue> arguments;
  // Results in memory of their own; those that alias an argument, or were
  // written in place, are not here.
  std::vector<std::pair<std::size_t, at::Tensor>> fresh;
};

// Containers are shared values: what is recorded must not change later.
IValue snapshotOf(const IValue& value) {
  if (!value.isList()) return value;
  c10::impl::GenericList list(value.type()->containedType(0));
  for (const IValue& element : value.toListRef()) list.push_back(element);
  return list;
}

// Bytes of memory that the body must not be seen to have written.
class Untouched {
 public:
  void keep(const c10::Storage& storage) {
    const auto* data = static_cast<const char*>(storage.data());
    for (const auto& [known, bytes] : kept_) {
      if (known.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
        return;
      }
    }
    kept_.emplace_back(storage,
                       std::vector<char>(data, data + storage.nbytes()));
  }

  void restore() {
    for (auto& [storage, bytes] : kept_) {
      if (!bytes.empty()) {
        std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
      }
    }
  }

 private:
  std::vector<std::pair<c10::Storage, std::vector<char>>> kept_;
};

class Recorder {
 public:
  explicit Recorder(const std::vector<at::Tensor>& inputs)
      : device_(inputs) {
    for (const at::Tensor& tensor : inputs) outside_.push_back(tensor.storage());
  }

  void dispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                Stack* stack) {
    const auto below =
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                   kRecordingKey);
    const std::size_t count = op.schema().arguments().size();
    const auto arguments = c10::ArrayRef<IValue>(*stack).slice(
        stack->size() - count, count);
    if (depth_ > 0 || !device_.onDevice(arguments)) {
      // What CPU kernels call is their own affair, and arithmetic on wrapped
      // host values happens once, as it would beside a real capture.
      Nested nested(depth_);
      op.redispatchBoxed(below, stack);
      return;
    }
    if (const auto why = refusalOf(op, arguments)) {
      throw CaptureError(op.operator_name().name + " " + why->sentence);
    }
    Call call{op, {}, {}};
    for (const IValue& argument : arguments) {
      call.arguments.push_back(snapshotOf(argument));
    }
    keepWritten(op, call.arguments);
    {
      Nested nested(depth_);
      op.redispatchBoxed(below, stack);
    }
    const std::size_t results = op.schema().returns().size();
    const auto outputs = c10::ArrayRef<IValue>(*stack).slice(
        stack->size() - results, results);
    std::size_t position = 0;
    const bool uninitialized =
        op.operator_name().name.find("empty") != std::string::npos;
    forEachTensor(outputs, [&](const at::Tensor& tensor) {
      // Memory that was only reserved may be filled past the dispatcher, as
      // `torch.tensor` does; a replay leaves it as it is.
      if (!uninitialized && !aliases(tensor, call.arguments)) {
        call.fresh.emplace_back(position, tensor);
      }
      device_.add(tensor);
      ++position;
    });
    calls_.push_back(std::move(call));
  }

  void restoreOutside() { untouched_.restore(); }
  std::vector<Call> takeCalls() { return std::move(calls_); }

 private:
  // Counts how deep below a recorded operator the thread is.
  class Nested {
   public:
    explicit Nested(int& depth) : depth_(depth) { ++depth_; }
    ~Nested() { --depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    int& depth_;
  };

  static bool aliases(const at::Tensor& tensor,
                      const std::vector<IValue>& arguments) {
    bool found = false;
    forEachTensor(c10::ArrayRef<IValue>(arguments), [&](const at::Tensor& t) {
      found |= t.has_storage() && tensor.has_storage() &&
               t.storage().unsafeGetStorageImpl() ==
                   tensor.storage().unsafeGetStorageImpl();
    });
    return found;
  }

  // A capture runs nothing; this one does, so it puts back what lies outside.
  void keepWritten(const c10::OperatorHandle& op,
                   const std::vector<IValue>& arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = op.schema().arguments()[i].alias_info();
      // Normalization updates its statistics without saying so.
      const bool written = (alias != nullptr && alias->isWrite()) ||
                           op.operator_name().name.find("norm") !=
                               std::string::npos;
      if (!written) continue;
      forEachTensor(arguments[i], [&](const at::Tensor& tensor) {
        for (const c10::Storage& storage : outside_) {
          if (storage.unsafeGetStorageImpl() ==
              tensor.storage().unsafeGetStorageImpl()) {
            untouched_.keep(storage);
          }
        }
      });
    }
  }

  DeviceTensors device_;
  std::vector<c10::Storage> outside_;
  Untouched untouched_;
  std::vector<Call> calls_;
  int depth_ = 0;
};

thread_local Recorder* recording = nullptr;

void recordCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                Stack* stack) {
  if (recording != nullptr) {
    recording->dispatch(op, keys, stack);
    return;
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                 kRecordingKey),
      stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&recordCall>());
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

class HostGraph final : public CapturedGraph {
 public:
  explicit HostGraph(std::vector<Call> calls) : calls_(std::move(calls)) {}

  void replay() override {
    // Device work knows neither gradients nor casts.
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    Stack stack;
    for (const Call& call : calls_) {
      stack.assign(call.arguments.begin(), call.arguments.end());
      for (IValue& argument : stack) argument = snapshotOf(argument);
      call.op.callBoxed(&stack);
      std::size_t position = 0;
      auto next = call.fresh.begin();
      forEachTensor(c10::ArrayRef<IValue>(stack), [&](const at::Tensor& now) {
        if (next != call.fresh.end() && next->first == position) {
          if (next->second.numel() != 0) next->second.copy_(now);
          ++next;
        }
        ++position;
      });
    }
  }

  std::int64_t size() const override {
    return static_cast<std::int64_t>(calls_.size());
  }

 private:
  std::vector<Call> calls_;
};

class HostBackend final : public CaptureBackend {
 public:
  c10::Device device() const override { return c10::kCPU; }

  void warmUp(const std::function<void()>& body) override { body(); }

  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& body,
                                         const CaptureHints& hints) override {
    Recorder recorder(hints.inputs);
    struct Recording {
      explicit Recording(Recorder& recorder) : recorder_(recorder) {
        recording = &recorder;
      }
      ~Recording() {
        recording = nullptr;
        recorder_.restoreOutside();
      }
      Recorder& recorder_;
    };
    {
      const GeneratorKept generator;
      const Recording active(recorder);
      const c10::impl::IncludeDispatchKeyGuard guard(kRecordingKey);
      body();
    }
    return std::make_unique<HostGraph>(recorder.takeCalls());
  }

  void copy(const std::vector<CopyOperation>& operations) override {
    for (const CopyOperation& operation : operations) {
      if (operation.bytes == 0) continue;
      std::memcpy(operation.destination, operation.source, operation.bytes);
    }
  }

  at::DataPtr allocate(std::size_t bytes) override {
    return c10::GetAllocator(c10::kCPU)->allocate(bytes);
  }

  void enterStream() override {}

  std::size_t poolBytes() const override { return 0; }
};

}  // namespace

std::unique_ptr<CaptureBackend> makeHostBackend() {
  return std::make_unique<HostBackend>();
}

}  // namespace pcg
