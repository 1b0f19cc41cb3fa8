#include "runtime/nested_values.h"

#include <utility>

namespace pcg {

using c10::IValue;

std::vector<at::Tensor> tensorsIn(const IValue& value) {
  std::vector<at::Tensor> tensors;
  forEachTensor(value,
                [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

bool isMutableContainer(const IValue& value) {
  return value.isList() || value.isGenericDict();
}

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

IValue withContainers(const IValue& value, c10::ArrayRef<IValue> others,
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

IValue withTensors(const IValue& value, c10::ArrayRef<at::Tensor> tensors,
                   std::size_t& next) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? IValue(tensors.at(next++)) : value;
  }
  if (value.isTuple()) {
    std::vector<IValue> elements;
    for (const IValue& element : value.toTupleRef().elements()) {
      elements.push_back(withTensors(element, tensors, next));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.type()->containedType(0));
    for (const IValue& element : value.toListRef()) {
      list.push_back(withTensors(element, tensors, next));
    }
    return list;
  }
  if (value.isGenericDict()) {
    const auto old = value.toGenericDict();
    c10::impl::GenericDict dict(old.keyType(), old.valueType());
    for (const auto& item : old) {
      IValue key = withTensors(item.key(), tensors, next);
      dict.insert(std::move(key), withTensors(item.value(), tensors, next));
    }
    return dict;
  }
  return value;
}

}  // namespace pcg
