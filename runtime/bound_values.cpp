#include "runtime/bound_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/class_type.h>

#include <cstring>
#include <sstream>

namespace pcg {
namespace {

using c10::IValue;

void appendLayout(const at::Tensor& tensor, std::vector<std::int64_t>& layout) {
  layout.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
  layout.push_back(tensor.requires_grad() ? 1 : 0);
  layout.insert(layout.end(), tensor.sizes().begin(), tensor.sizes().end());
  layout.insert(layout.end(), tensor.strides().begin(), tensor.strides().end());
}

bool sameLayout(const at::Tensor& tensor,
                const std::vector<std::int64_t>& layout) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  if (layout.size() != 2 + sizes.size() + strides.size())
    return false;
  if (layout[0] != static_cast<std::int64_t>(tensor.scalar_type()) ||
      layout[1] != (tensor.requires_grad() ? 1 : 0)) {
    return false;
  }
  std::size_t next = 2;
  for (const auto size : sizes) {
    if (layout[next++] != size)
      return false;
  }
  for (const auto stride : strides) {
    if (layout[next++] != stride)
      return false;
  }
  return true;
}

bool sameScalar(const IValue& a, const IValue& b) {
  if (a.isNone())
    return b.isNone();
  if (a.isBool())
    return b.isBool() && a.toBool() == b.toBool();
  if (a.isInt())
    return b.isInt() && a.toInt() == b.toInt();
  if (a.isDouble()) {
    // By bits: zeros of two signs are equal and yet not the same.
    const double left = a.toDouble();
    if (!b.isDouble())
      return false;
    const double right = b.toDouble();
    return std::memcmp(&left, &right, sizeof(left)) == 0;
  }
  if (a.isString()) {
    return b.isString() && a.toStringRef() == b.toStringRef();
  }
  return false;
}

const void* address(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.const_data_ptr() : nullptr;
}

const c10::ivalue::Object* objectIn(const IValue& value) {
  return value.isObject() ? &value.toObjectRef() : nullptr;
}

}  // namespace

const IValue& BoundValues::Guard::slot(
    const c10::ivalue::Object* module) const {
  switch (owner) {
    case Owner::kModule:
      return module->slots()[index];
    case Owner::kSubmodule:
      return submodule->slots()[index];
    case Owner::kStored:
      break;
  }
  return *stored;
}

bool BoundValues::Guard::sameSlot(const Guard& other) const {
  return owner == other.owner && submodule == other.submodule &&
         index == other.index && stored == other.stored;
}

BoundValues::BoundValues(const std::vector<BoundValue>& specification)
    : specification_(&specification) {}

std::int64_t BoundValues::refresh(const IValue& module) {
  if (specification_->empty())
    return 0;
  if (current_ >= 0 && unchanged(objectIn(module)))
    return current_;
  resolve(module);
  FlatInputs flat;
  for (const IValue& value : values_) {
    flatten(value, flat);
    if (value.isTensor() && value.toTensor().defined()) {
      flat.words.push_back(
          reinterpret_cast<std::int64_t>(address(value.toTensor())));
    }
  }
  device_ = flat.device;
  refusal_ = flat.refusal;
  for (std::size_t i = 0; i < variants_.size(); ++i) {
    if (variants_[i] == flat.words) {
      return current_ = static_cast<std::int64_t>(i);
    }
  }
  variants_.push_back(std::move(flat.words));
  return current_ = static_cast<std::int64_t>(variants_.size()) - 1;
}

bool BoundValues::unchanged(const c10::ivalue::Object* module) const {
  const void* type = module == nullptr ? nullptr : module->type().get();
  if (type != module_type_)
    return false;
  for (const Guard& guard : guards_) {
    const IValue& now = guard.slot(module);
    if (now.isTensor()) {
      const at::Tensor& tensor = now.toTensor();
      if (tensor.unsafeGetTensorImpl() != guard.object ||
          address(tensor) != guard.data || !sameLayout(tensor, guard.layout)) {
        return false;
      }
    } else if (now.isObject()) {
      if (&now.toObjectRef() != guard.object)
        return false;
    } else if (guard.object != nullptr || !sameScalar(now, guard.scalar)) {
      return false;
    }
  }
  return true;
}

void BoundValues::guard(Guard place, const IValue& slot) {
  for (const Guard& known : guards_) {
    if (known.sameSlot(place))
      return;
  }
  if (slot.isTensor()) {
    const at::Tensor& tensor = slot.toTensor();
    place.object = tensor.unsafeGetTensorImpl();
    place.data = address(tensor);
    if (tensor.defined())
      appendLayout(tensor, place.layout);
  } else if (slot.isObject()) {
    place.object = &slot.toObjectRef();
    submodules_.push_back(slot);
  } else {
    place.scalar = slot;
  }
  guards_.push_back(std::move(place));
}

void BoundValues::resolve(const IValue& module) {
  guards_.clear();
  submodules_.clear();
  values_.clear();
  const c10::ivalue::Object* top = objectIn(module);
  module_type_ = top == nullptr ? nullptr : top->type().get();
  for (const BoundValue& bound : *specification_) {
    const IValue* slot = nullptr;
    if (!bound.path.empty() && top != nullptr) {
      const c10::ivalue::Object* object = top;
      std::istringstream parts(bound.path);
      std::string name;
      while (object != nullptr && std::getline(parts, name, '.')) {
        const auto index = object->type()->findAttributeSlot(name);
        slot = index ? &object->slots()[*index] : nullptr;
        if (slot == nullptr)
          break;
        guard({object == top ? Guard::Owner::kModule : Guard::Owner::kSubmodule,
               object == top ? nullptr : object, *index, nullptr},
              *slot);
        object = objectIn(*slot);
      }
    }
    // The path is gone from a frozen module; its value is the stored one.
    if (slot == nullptr) {
      slot = &bound.value;
      guard({Guard::Owner::kStored, nullptr, 0, slot}, *slot);
    }
    values_.push_back(*slot);
  }
}

}  // namespace pcg
