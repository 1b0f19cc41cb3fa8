#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <vector>

namespace pcg {

/// Calls `visit` with each defined tensor in the values, in order.
template <typename Visit>
void forEachTensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined())
      visit(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements())
      forEachTensor(element, visit);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef())
      forEachTensor(element, visit);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) {
      forEachTensor(item.key(), visit);
      forEachTensor(item.value(), visit);
    }
  }
}

template <typename Visit>
void forEachTensor(c10::ArrayRef<c10::IValue> values, const Visit& visit) {
  for (const c10::IValue& value : values)
    forEachTensor(value, visit);
}

/// The defined tensors in a value, in order.
std::vector<at::Tensor> tensorsIn(const c10::IValue& value);

/// True for a list or dict.
bool isMutableContainer(const c10::IValue& value);

/// Appends the lists and dicts in a value, itself included.
void collectContainers(const c10::IValue& value, std::vector<const void*>& out);

/// Visits the lists and dicts in a value that lie in no other list or dict.
template <typename Visit>
void forEachOuterContainer(const c10::IValue& value, const Visit& visit) {
  if (isMutableContainer(value)) {
    visit(value);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements())
      forEachOuterContainer(element, visit);
  }
}

/// Replaces, of the lists and dicts that forEachOuterContainer visits, those
/// for which `others`, from `next` on and in the same order, has a value that
/// is not None.
c10::IValue withContainers(const c10::IValue& value,
                           c10::ArrayRef<c10::IValue> others,
                           std::size_t& next);

/// Rebuilds `value` with its defined tensors replaced, in forEachTensor's
/// order, by those at `next` on. Containers are new.
c10::IValue withTensors(const c10::IValue& value,
                        c10::ArrayRef<at::Tensor> tensors, std::size_t& next);

}  // namespace pcg
