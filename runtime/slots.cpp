#include "runtime/slots.h"

#include <c10/core/TensorImpl.h>

#include <utility>

namespace pcg {

Slot::Slot(c10::Storage owner, const void* tag)
    : owner_(std::make_shared<Owner>(Owner{std::move(owner), tag})) {}

void Slot::release(void* context) {
  delete static_cast<std::shared_ptr<Owner>*>(context);
}

const c10::Storage& Slot::handOut() {
  // Whoever resized or replaced the storage has left the slot's memory.
  if (handed_out_ && handed_out_.data() != data())
    handed_out_ = c10::Storage();
  if (!handed_out_) {
    auto* context = new std::shared_ptr<Owner>(owner_);
    handed_out_ =
        c10::Storage(c10::Storage::use_byte_size_t(), bytes(),
                     at::DataPtr(data(), context, &Slot::release, device()),
                     owner_->owner.allocator(), /*resizable=*/true);
  }
  return handed_out_;
}

bool Slot::isHeld() const {
  return handed_out_ && handed_out_.use_count() > 1;
}

bool Slot::staysHeld(const std::vector<at::Tensor>& tensors,
                     const std::vector<bool>& kept,
                     const std::vector<c10::IValue>& values) const {
  if (!isHeld())
    return false;
  std::size_t holders = handed_out_.use_count() - 1;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.storage().unsafeGetStorageImpl() !=
        handed_out_.unsafeGetStorageImpl()) {
      continue;
    }
    std::size_t references = 0;
    bool stays = false;
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      if (!tensors[j].is_same(tensor))
        continue;
      stays |= kept[j] || j < i;  // An earlier one has been counted.
      ++references;
    }
    for (const c10::IValue& value : values) {
      if (value.isTensor() && value.toTensor().is_same(tensor))
        ++references;
    }
    if (!stays && tensor.use_count() == references)
      --holders;
  }
  return holders > 0;
}

void Slot::evacuate(CaptureBackend& backend, at::DataPtr fresh) {
  if (!isHeld())
    return;
  if (handed_out_.data() == data()) {
    if (!fresh)
      fresh = backend.allocate(bytes());
    if (bytes() != 0)
      backend.copy({{fresh.get(), data(), bytes()}});
    handed_out_.set_data_ptr_noswap(std::move(fresh));
  }
  handed_out_ = c10::Storage();
}

bool isSlotOf(const at::Tensor& tensor, const void* tag) {
  const at::DataPtr& pointer = tensor.storage().data_ptr();
  if (pointer.get_deleter() != &Slot::release)
    return false;
  const auto* owner =
      static_cast<const std::shared_ptr<Slot::Owner>*>(pointer.get_context());
  return (*owner)->tag == tag &&
         tensor.storage().data() == (*owner)->owner.data();
}

TensorLayout TensorLayout::of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(),
          tensor.dtype(),       tensor.is_conj(),       tensor.is_neg()};
}

at::Tensor tensorOver(const c10::Storage& storage, const TensorLayout& layout) {
  const auto key = storage.device_type() == c10::DeviceType::CUDA
                       ? c10::DispatchKey::CUDA
                       : c10::DispatchKey::CPU;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), layout.dtype);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(layout.sizes, layout.strides, layout.offset);
  if (layout.conjugate)
    tensor._set_conj(true);
  if (layout.negative)
    tensor._set_neg(true);
  return tensor;
}

std::size_t extentBytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0)
    return 0;
  std::int64_t last = 0;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    last += (sizes[i] - 1) * strides[i];
  }
  return static_cast<std::size_t>(last + 1) * tensor.itemsize();
}

}  // namespace pcg
