#include "runtime/call_effects.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "runtime/nested_values.h"

namespace pcg {
namespace {

using c10::IValue;

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

const char* refuseResults(const std::vector<IValue>& outputs) {
  const char* refusal = nullptr;
  forEachTensor(c10::ArrayRef<IValue>(outputs), [&](const at::Tensor& tensor) {
    if (refusal != nullptr)
      return;
    if (tensor.requires_grad()) {
      refusal = "autograd: a result requires a gradient";
    } else if (tensor.layout() != c10::kStrided || tensor.is_quantized() ||
               tensor.is_nested()) {
      refusal = "a result is sparse, quantized or nested";
    }
  });
  return refusal;
}

}  // namespace

EffectsWatch::EffectsWatch(std::vector<at::Tensor> tensors,
                           std::vector<bool> maybe_written,
                           c10::ArrayRef<IValue> arguments,
                           std::size_t bound_begin)
    : tensors_(std::move(tensors)),
      maybe_written_(std::move(maybe_written)),
      bound_(arguments.slice(bound_begin).vec()) {
  for (const at::Tensor& tensor : tensors_)
    versions_.push_back(versionOf(tensor));
  for (const IValue& value : bound_)
    bound_versions_.push_back(versionOf(value));
  for (const IValue& argument : arguments) {
    whole_.push_back(isMutableContainer(argument) ? argument.internalToPointer()
                                                  : nullptr);
    collectContainers(argument, containers_);
  }
}

const char* EffectsWatch::finish(const std::vector<IValue>& outputs,
                                 CallEffects& effects) const {
  effects = CallEffects();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto version = versionOf(tensors_[i]);
    effects.written.push_back(version && versions_[i]
                                  ? *version != *versions_[i]
                                  : maybe_written_[i]);
  }
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    if (versionOf(bound_[i]) != bound_versions_[i])
      effects.written_bound.push_back(i);
  }
  const char* refusal = refuseResults(outputs);
  std::vector<const void*> containers = containers_;
  for (const IValue& output : outputs) {
    forEachOuterContainer(output, [&](const IValue& container) {
      const auto same = std::find(whole_.begin(), whole_.end(),
                                  container.internalToPointer());
      effects.passed.emplace_back();
      if (same != whole_.end()) {
        effects.passed.back() = static_cast<std::size_t>(same - whole_.begin());
        effects.passes_any = true;
        return;
      }
      std::vector<const void*> made;
      collectContainers(container, made);
      for (const void* one : made) {
        if (std::find(containers.begin(), containers.end(), one) !=
            containers.end()) {
          refusal = "a result holds a list or dict that something else holds";
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
    bool needed = std::any_of(tensors_.begin(), tensors_.end(), cameToNeedOne);
    for (const std::size_t i : effects.written_bound)
      needed |= bound_[i].toTensor().requires_grad();
    if (needed)
      refusal = "autograd: what is written requires a gradient";
  }
  return refusal;
}

}  // namespace pcg
