#include "runtime/captured_segment.h"

#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

#include "runtime/key.h"
#include "runtime/nested_values.h"

namespace pcg {
namespace {

using c10::IValue;

// What a call of a usual segment needs lies on the stack.
template <typename T>
using CallVector = c10::SmallVector<T, 8>;

// A graph's writes go past the counter by which autograd notices that a tensor
// it saved has changed.
void bumpVersion(const at::Tensor& tensor) {
  if (!tensor.is_inference())
    tensor.unsafeGetTensorImpl()->bump_version();
}

// The caller's memory, kept by nobody: a graph knows addresses, so neither the
// life of the caller's storages nor their later moves matter.
class PinnedStorages {
 public:
  c10::Storage over(const c10::Storage& storage) {
    for (const auto& [known, pinned] : pinned_) {
      if (known == storage.unsafeGetStorageImpl())
        return pinned;
    }
    auto* data = const_cast<void*>(storage.data());
    pinned_.emplace_back(
        storage.unsafeGetStorageImpl(),
        c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                     at::DataPtr(data, storage.device()), nullptr, false));
    return pinned_.back().second;
  }

 private:
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> pinned_;
};

}  // namespace

const void* GraphInput::begin(const at::Tensor& tensor) const {
  return whole_storage ? tensor.storage().data() : tensor.const_data_ptr();
}

void* GraphInput::mutableBegin(const at::Tensor& tensor) const {
  return whole_storage ? tensor.storage().mutable_data()
                       : tensor.mutable_data_ptr();
}

CapturedSegment::CapturedSegment(std::vector<GraphInput> inputs)
    : inputs_(std::move(inputs)) {}

bool CapturedSegment::fits(const std::vector<at::Tensor>& tensors) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].kind == GraphInput::Kind::kFixed &&
        inputs_[i].address != tensors[i].const_data_ptr()) {
      return false;
    }
  }
  return true;
}

bool CapturedSegment::isHeld() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const Group& group) {
    return group.slot && group.slot->isHeld();
  });
}

std::vector<at::Tensor> CapturedSegment::makeArguments(
    const std::vector<at::Tensor>& tensors, CaptureBackend& backend) const {
  PinnedStorages pinned;
  std::vector<at::Tensor> arguments;
  std::vector<CopyOperation> copies;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const GraphInput& input = inputs_[i];
    TensorLayout layout = TensorLayout::of(tensor);
    switch (input.kind) {
      case GraphInput::Kind::kSlot:
        if (!input.whole_storage)
          layout.offset = 0;
        arguments.push_back(tensorOver(input.slot, layout));
        copies.push_back(
            {input.slot.mutable_data(), input.begin(tensor), input.bytes});
        break;
      case GraphInput::Kind::kFixed:
        arguments.push_back(tensorOver(pinned.over(tensor.storage()), layout));
        break;
      case GraphInput::Kind::kUnread:
        arguments.push_back(isHostScalarTensor(tensor) ? tensor.clone()
                                                       : tensor);
        break;
    }
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      arguments.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    // Without a tape, all that it does is to be read by the body.
    if (tensor.requires_grad())
      arguments.back().set_requires_grad(true);
  }
  backend.copy(copies);
  return arguments;
}

// ---- what outputs are made of -----------------------------------------------

CapturedSegment::Group CapturedSegment::groupOf(
    const at::Tensor& tensor, const Recording& recording) const {
  Group group;
  for (std::size_t i = 0; i < recording.arguments.size(); ++i) {
    if (!sharesStorage(recording.arguments[i], tensor))
      continue;
    group.kind = Group::Kind::kInput;
    group.index = i;
    group.argument_offset = recording.arguments[i].storage_offset();
    return group;
  }
  for (std::size_t i = 0; i < recording.bound->size(); ++i) {
    const IValue& value = (*recording.bound)[i];
    if (!value.isTensor() || !value.toTensor().defined() ||
        !sharesStorage(value.toTensor(), tensor)) {
      continue;
    }
    group.kind = Group::Kind::kBound;
    group.index = i;
    return group;
  }
  group.slot.emplace(tensor.storage(), recording.slot_tag);
  // No replay makes a constant anew: nobody else may write it.
  group.leaves_call = recording.is_constant(tensor);
  return group;
}

CapturedSegment::Output CapturedSegment::describe(
    const at::Tensor& tensor, bool leaves_call,
    const std::vector<at::Tensor>& earlier,
    std::vector<const c10::StorageImpl*>& storages,
    const Recording& recording) {
  const auto same = [&](const at::Tensor& other) {
    return other.is_same(tensor);
  };
  Output output;
  const auto known = std::find_if(earlier.begin(), earlier.end(), same);
  if (known != earlier.end()) {
    output.kind = Output::Kind::kSame;
    output.index = static_cast<std::size_t>(known - earlier.begin());
    const Output& first = outputs_[output.index];
    if (first.kind == Output::Kind::kView && leaves_call)
      groups_[first.index].leaves_call = true;
    return output;
  }
  const auto& arguments = recording.arguments;
  const auto argument = std::find_if(arguments.begin(), arguments.end(), same);
  if (argument != arguments.end()) {
    output.kind = Output::Kind::kInput;
    output.index = static_cast<std::size_t>(argument - arguments.begin());
    return output;
  }
  const auto& bound = *recording.bound;
  const auto weight =
      std::find_if(bound.begin(), bound.end(), [&](const IValue& value) {
        return value.isTensor() && same(value.toTensor());
      });
  if (weight != bound.end()) {
    output.kind = Output::Kind::kBound;
    output.index = static_cast<std::size_t>(weight - bound.begin());
    return output;
  }
  if (tensor.device() != recording.device) {
    output.kind = Output::Kind::kHost;
    output.host = tensor.clone();
    return output;
  }
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  const auto group = std::find(storages.begin(), storages.end(), storage);
  output.index = static_cast<std::size_t>(group - storages.begin());
  if (group == storages.end()) {
    storages.push_back(storage);
    groups_.push_back(groupOf(tensor, recording));
  }
  groups_[output.index].leaves_call |= leaves_call;
  output.layout = TensorLayout::of(tensor);
  return output;
}

void CapturedSegment::record(Recording recording) {
  graph_ = std::move(recording.graph);
  templates_ = std::move(recording.outputs);
  std::vector<at::Tensor> seen;
  std::vector<const c10::StorageImpl*> storages;
  for (std::size_t i = 0; i < templates_.size(); ++i) {
    const bool leaves_call = !(*recording.borrowed)[i];
    forEachTensor(templates_[i], [&](const at::Tensor& tensor) {
      outputs_.push_back(
          describe(tensor, leaves_call, seen, storages, recording));
      seen.push_back(tensor);
    });
  }
  const std::vector<at::Tensor> placeholders(seen.size(), at::empty({0}));
  std::size_t next = 0;
  for (IValue& value : templates_)
    value = withTensors(value, placeholders, next);

  kept_.resize(inputs_.size());
  for (const Output& output : outputs_) {
    if (output.kind == Output::Kind::kInput)
      kept_[output.index] = true;
  }
  for (const Group& group : groups_) {
    if (group.kind == Group::Kind::kInput)
      kept_[group.index] = true;
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const GraphInput& input = inputs_[i];
    // Written through, or read where they lie: alive until the launch.
    if (input.write_back || input.kind == GraphInput::Kind::kFixed ||
        recording.effects->written[i]) {
      kept_[i] = true;
    }
    if (input.kind != GraphInput::Kind::kSlot || input.bytes == 0)
      continue;
    copied_.push_back(i);
    if (input.write_back)
      written_back_.push_back(i);
  }
}

// ---- replay -----------------------------------------------------------------

void CapturedSegment::releasePrepared() {
  for (Group& group : groups_) {
    group.result.clear();
    group.evacuation.clear();
  }
}

void CapturedSegment::prepareReplay(CaptureBackend& backend,
                                    const std::vector<IValue>& inputs,
                                    const std::vector<at::Tensor>& tensors) {
  backend.enterStream();
  try {
    for (Group& group : groups_) {
      if (!group.slot)
        continue;
      if (group.leaves_call) {
        group.result = backend.allocate(group.slot->bytes());
      } else if (group.slot->staysHeld(tensors, kept_, inputs)) {
        group.evacuation = backend.allocate(group.slot->bytes());
      }
    }
    copies_.clear();
    for (const std::size_t i : copied_) {
      const GraphInput& input = inputs_[i];
      copies_.push_back(
          {input.slot.mutable_data(), input.begin(tensors[i]), input.bytes});
    }
    if (!copies_.empty())
      backend.copy(copies_);
  } catch (...) {
    releasePrepared();
    throw;
  }
}

std::vector<IValue> CapturedSegment::replay(CaptureBackend& backend,
                                            const CallEffects& effects,
                                            std::vector<IValue> inputs,
                                            std::vector<at::Tensor>& tensors,
                                            const std::vector<IValue>& bound) {
  CallVector<at::Tensor> kept(tensors.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept_[i])
      kept[i] = std::move(tensors[i]);
  }
  CallVector<IValue> passed;
  if (effects.passes_any) {
    for (const std::optional<std::size_t>& index : effects.passed) {
      passed.push_back(!index ? IValue()
                       : *index < inputs.size()
                           ? inputs[*index]
                           : bound[*index - inputs.size()]);
    }
  }
  std::vector<IValue>().swap(inputs);
  tensors.clear();
  for (Group& group : groups_) {
    if (group.slot)
      group.slot->evacuate(backend, std::move(group.evacuation));
  }

  graph_->replay();
  copies_.clear();
  for (const std::size_t i : written_back_) {
    const GraphInput& input = inputs_[i];
    copies_.push_back(
        {input.mutableBegin(kept[i]), input.slot.mutable_data(), input.bytes});
  }
  if (!copies_.empty())
    backend.copy(copies_);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (effects.written[i])
      bumpVersion(kept[i]);
  }
  for (const std::size_t i : effects.written_bound)
    bumpVersion(bound[i].toTensor());

  // Storages first: several outputs may lie in one.
  CallVector<c10::Storage> storages;
  copies_.clear();
  for (Group& group : groups_) {
    switch (group.kind) {
      case Group::Kind::kInput:
        storages.push_back(kept[group.index].storage());
        break;
      case Group::Kind::kBound:
        storages.push_back(bound[group.index].toTensor().storage());
        break;
      case Group::Kind::kSlot:
        if (!group.leaves_call) {
          storages.push_back(group.slot->handOut());
          break;
        }
        const std::size_t bytes = group.slot->bytes();
        at::DataPtr memory = std::move(group.result);
        if (bytes != 0)
          copies_.push_back({memory.get(), group.slot->data(), bytes});
        storages.push_back(c10::Storage(
            c10::Storage::use_byte_size_t(), bytes, std::move(memory),
            c10::GetAllocator(backend.device().type()), /*resizable=*/true));
        break;
    }
  }
  if (!copies_.empty())
    backend.copy(copies_);

  CallVector<at::Tensor> made;
  for (const Output& output : outputs_) {
    switch (output.kind) {
      case Output::Kind::kInput:
        made.push_back(kept[output.index]);
        break;
      case Output::Kind::kBound:
        made.push_back(bound[output.index].toTensor());
        break;
      case Output::Kind::kSame:
        made.push_back(made[output.index]);
        break;
      case Output::Kind::kHost:
        made.push_back(output.host.clone());
        break;
      case Output::Kind::kView: {
        const Group& group = groups_[output.index];
        if (group.kind != Group::Kind::kInput) {
          made.push_back(tensorOver(storages[output.index], output.layout));
          break;
        }
        TensorLayout layout = output.layout;
        layout.offset +=
            kept[group.index].storage_offset() - group.argument_offset;
        made.push_back(tensorOver(storages[output.index], layout));
        break;
      }
    }
  }
  std::vector<IValue> results;
  results.reserve(templates_.size());
  std::size_t next = 0;
  for (const IValue& value : templates_)
    results.push_back(withTensors(value, made, next));
  if (effects.passes_any) {
    next = 0;
    for (IValue& result : results)
      result = withContainers(result, passed, next);
  }
  return results;
}

}  // namespace pcg
