#include "runtime/break_results.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "runtime/slots.h"

namespace pcg {
namespace {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined())
    return "no tensor";
  std::ostringstream text;
  text << "a tensor " << tensor.dtype() << tensor.sizes() << " on "
       << tensor.device();
  return text.str();
}

bool fits(const at::Tensor& kept, const at::Tensor& result) {
  if (kept.defined() != result.defined())
    return false;
  return !kept.defined() ||
         (kept.sizes() == result.sizes() && kept.dtype() == result.dtype() &&
          kept.device() == result.device() && kept.layout() == result.layout());
}

}  // namespace

BreakResults::BreakResults(std::string name, CaptureBackend& backend)
    : name_(std::move(name)), backend_(backend) {}

void BreakResults::keepFrom(std::function<bool(const at::Tensor&)> stays) {
  stays_ = std::move(stays);
}

void BreakResults::keepDone() {
  stays_ = nullptr;
  backend_.copy(copies_);
  copies_.clear();
  copied_.clear();
}

at::Tensor BreakResults::keep(const at::Tensor& result) {
  Kept& kept = kept_.emplace_back();
  if (!result.defined())
    return result;
  if (!result.has_storage() || result.layout() != c10::kStrided) {
    throw CaptureError("the break " + name_ + " returned " + describe(result) +
                       " that is no strided tensor, so a replay cannot fill "
                       "it; return its parts");
  }
  refuseTape(result, "returned");
  if (stays_(result)) {
    kept.handed_out = result;
    kept.tensor = tensorOver(result.storage(), TensorLayout::of(result));
    return result;
  }
  kept.tensor = makeSlot(result);
  kept.is_slot = true;
  copy(kept.tensor, result);
  kept.handed_out =
      tensorOver(kept.tensor.storage(), TensorLayout::of(kept.tensor));
  return kept.handed_out;
}

void BreakResults::refuseTapesFrom(std::uint64_t first_node) {
  first_node_ = first_node;
}

void BreakResults::refuseTape(const at::Tensor& tensor,
                              const char* action) const {
  const auto& tape = tensor.grad_fn();
  if (tape == nullptr || tape->sequence_nr() < first_node_)
    return;
  throw CaptureError(
      "the break " + name_ + " " + action + " " + describe(tensor) +
      " so that it is part of a new gradient tape, which no replay could "
      "extend; work on a detached tensor, or write a torch::autograd::Function "
      "and break in its forward and backward");
}

at::Tensor BreakResults::makeSlot(const at::Tensor& result) {
  if (result.device() != backend_.device()) {
    return at::empty_strided(result.sizes(), result.strides(),
                             result.options().requires_grad(false));
  }
  const std::size_t bytes = extentBytes(result);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             backend_.allocateSlot(bytes), nullptr,
                             /*resizable=*/false);
  TensorLayout layout = TensorLayout::of(result);
  layout.offset = 0;
  return tensorOver(storage, layout);
}

// Byte by byte where the layouts agree, on the device as many as there are in
// one launch.
void BreakResults::copy(const at::Tensor& slot, const at::Tensor& result) {
  if (result.numel() == 0)
    return;
  if (result.device() == backend_.device() &&
      result.is_conj() == slot.is_conj() && result.is_neg() == slot.is_neg() &&
      slot.strides() == result.strides() && !sharesStorage(slot, result)) {
    copies_.push_back({slot.mutable_data_ptr(), result.const_data_ptr(),
                       extentBytes(result)});
    copied_.push_back(result);
    return;
  }
  const at::NoGradGuard no_grad;
  slot.copy_(sharesStorage(slot, result) ? result.clone() : result);
}

void BreakResults::updateFrom() {
  copies_.clear();
  copied_.clear();
}

void BreakResults::updateDone() {
  backend_.copy(copies_);
  copies_.clear();
  copied_.clear();
}

void BreakResults::update(const at::Tensor& known, const at::Tensor& result) {
  const Kept& kept = *std::find_if(
      kept_.begin(), kept_.end(),
      [&](const Kept& each) { return each.handed_out.is_same(known); });
  if (!fits(kept.tensor, result)) {
    refuse(describe(result) + " where it was " + describe(kept.tensor) +
           " at the capture");
  }
  if (!kept.tensor.defined())
    return;
  if (kept.is_slot) {
    copy(kept.tensor, result);
  } else if (kept.tensor.const_data_ptr() != result.const_data_ptr() ||
             kept.tensor.is_conj() != result.is_conj() ||
             kept.tensor.is_neg() != result.is_neg() ||
             kept.tensor.strides() != result.strides()) {
    refuse(
        "memory of its own where it was memory of an argument, or of "
        "captured code, at the capture; return a clone in all cases");
  }
}

void BreakResults::refuse(const std::string& what) {
  copies_.clear();
  copied_.clear();
  throw std::runtime_error("the break " + name_ + " returned " + what +
                           "; capture again for results of another form");
}

}  // namespace pcg
