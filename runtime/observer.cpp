#include "runtime/observer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <utility>

#include "passes/capture_safety_table.h"
#include "runtime/device_tensors.h"
#include "runtime/refusal.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Node;

// A composite of which the table says nothing: its parts tell what it does.
bool isTransparent(const c10::OperatorHandle& op) {
  return isComposite(op) &&
         findOperatorRule(c10::toString(op.operator_name())) == nullptr;
}

// Carried from an operator's begin to its end: arguments are gone by then.
struct OperatorInFlight final : at::ObserverContext {
  bool on_device = false;    // works on what counts as device memory
  bool transparent = false;  // see isTransparent
  bool own = false;          // the node's own, or a part of a transparent one
  bool on_gpu = false;       // has an argument in device memory
  bool on_host = false;      // has a tensor in host memory, not just a scalar
};

}  // namespace

struct WarmUpObserver::State {
  State(c10::Device where, const std::vector<at::Tensor>& inputs,
        const LatentBreaks& latent_breaks)
      : device(where), tensors(inputs), latent(latent_breaks) {}

  // The innermost node last: nodes of a block run within its owner.
  std::vector<const Node*> nodes;
  std::vector<Culprit> culprits;
  c10::Device device;
  DeviceTensors tensors;
  const LatentBreaks& latent;
  int depth = 0;  // of operators that are not transparent
  int parts = 0;  // of those that are
  at::CallbackHandle callback = 0;

  void blame(CaptureSafety why) {
    if (nodes.empty())
      return;
    for (const Culprit& culprit : culprits) {
      if (culprit.node == nodes.back())
        return;
    }
    culprits.push_back({nodes.back(), std::move(why)});
  }

  std::unique_ptr<at::ObserverContext> enter(
      const at::RecordFunction& function) {
    auto in_flight = std::make_unique<OperatorInFlight>();
    const auto inputs = function.inputs();
    // The API hands out constants in a form that its own readers do not take.
    const auto arguments = c10::ArrayRef<IValue>(
        const_cast<IValue*>(inputs.data()), inputs.size());
    const auto name = function.operator_name();
    const auto op =
        name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
    in_flight->own = depth == 0;
    if (op && !nodes.empty()) {
      if (!device.is_cpu()) {
        inspectOnDevice(*op, arguments, *in_flight);
      } else if (tensors.onDevice(arguments)) {
        in_flight->on_device = true;
        inspectOnHost(*op, arguments);
      }
      in_flight->transparent = isTransparent(*op);
    }
    ++(in_flight->transparent ? parts : depth);
    return in_flight;
  }

  // CPU kernels read scalars in places where a GPU's do not, so below an
  // operator only sizes made from data count.
  void inspectOnHost(const c10::OperatorHandle& op,
                     c10::ArrayRef<IValue> arguments) {
    if (depth == 0) {
      auto why = refusalOf(op, arguments);
      if (why && (parts == 0 || waits(why->reason)))
        blame(std::move(*why));
    } else if (op.hasTag(at::Tag::dynamic_output_shape)) {
      if (auto why = refusalByTags(op))
        blame(std::move(*why));
    }
  }

  // What an operator does to its own scratch tensors is no concern; that it
  // waits for the GPU is.
  static bool waits(Reason reason) {
    return reason == Reason::kHostRead || reason == Reason::kDynamicShape ||
           reason == Reason::kErrorCheck || reason == Reason::kDeviceTransfer;
  }

  void inspectOnDevice(const c10::OperatorHandle& op,
                       c10::ArrayRef<IValue> arguments,
                       OperatorInFlight& in_flight) {
    bool on_cpu = false;
    forEachTensor(arguments, [&](const at::Tensor& tensor) {
      if (tensor.device().is_cpu()) {
        on_cpu = true;
        in_flight.on_host |= in_flight.own && tensor.dim() > 0;
      } else {
        in_flight.on_gpu = true;
      }
    });
    if (!in_flight.on_gpu)
      return;  // The results tell.
    const std::string& base = op.operator_name().name;
    if (on_cpu && (base == "aten::copy_" || base == "aten::_to_copy")) {
      blame(unsafeBecause(Reason::kDeviceTransfer));
      return;
    }
    auto why = refusalOf(op, arguments);
    if (why && ((depth == 0 && parts == 0) || waits(why->reason))) {
      blame(std::move(*why));
    }
  }

  // An operator without arguments in device memory moved what it got there, or
  // computed in host memory: once, in the capture, and never again.
  void inspectResults(const at::RecordFunction& function,
                      c10::ArrayRef<IValue> results,
                      const OperatorInFlight& in_flight) {
    bool on_gpu = false;
    bool on_cpu = false;
    bool on_host = in_flight.on_host;
    forEachTensor(results, [&](const at::Tensor& tensor) {
      if (tensor.device().is_cpu()) {
        on_cpu = true;
        on_host |= in_flight.own && tensor.dim() > 0;
      } else {
        on_gpu = true;
      }
    });
    if (on_gpu) {
      if (on_host)
        blame(unsafeBecause(Reason::kDeviceTransfer));
    } else if (on_host ||
               (in_flight.own && on_cpu && drawsRandomNumbers(function))) {
      blame(unsafeBecause(Reason::kHostComputation));
    }
  }

  static bool drawsRandomNumbers(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    const auto op =
        name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
    return op && op->hasTag(at::Tag::nondeterministic_seeded);
  }

  void leave(const at::RecordFunction& function,
             const at::ObserverContext* context) {
    const auto* in_flight = static_cast<const OperatorInFlight*>(context);
    if (in_flight == nullptr)
      return;
    --(in_flight->transparent ? parts : depth);
    const c10::ArrayRef<IValue> results = function.outputs();
    if (in_flight->on_device) {
      forEachTensor(results,
                    [&](const at::Tensor& tensor) { tensors.add(tensor); });
    } else if (!device.is_cpu() && !in_flight->on_gpu) {
      inspectResults(function, results, *in_flight);
    }
  }
};

namespace {

// Callbacks are plain functions; this is where they find the observer of their
// thread. On the threads of the autograd engine they find none: what runs
// there is judged by the capture itself.
thread_local void* watching = nullptr;

}  // namespace

WarmUpObserver::WarmUpObserver(c10::Device device,
                               const std::vector<at::Tensor>& inputs,
                               const LatentBreaks& latent)
    : state_(std::make_unique<State>(device, inputs, latent)) {
  watching = state_.get();
  state_->callback = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function)
              -> std::unique_ptr<at::ObserverContext> {
            if (watching == nullptr)
              return nullptr;
            return static_cast<State*>(watching)->enter(function);
          },
          [](const at::RecordFunction& function, at::ObserverContext* context) {
            if (watching == nullptr)
              return;
            static_cast<State*>(watching)->leave(function, context);
          })
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

WarmUpObserver::~WarmUpObserver() {
  at::removeCallback(state_->callback);
  watching = nullptr;
}

void WarmUpObserver::before(const Node& node) {
  state_->nodes.push_back(&node);
  const auto latent = state_->latent.find(&node);
  if (latent != state_->latent.end())
    state_->blame(latent->second);
}

void WarmUpObserver::after(const Node&) {
  state_->nodes.pop_back();
}

const std::vector<Culprit>& WarmUpObserver::culprits() const {
  return state_->culprits;
}

const Node* WarmUpObserver::current() const {
  return state_->nodes.empty() ? nullptr : state_->nodes.back();
}

}  // namespace pcg
