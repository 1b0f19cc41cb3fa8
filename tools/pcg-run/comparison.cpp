#include "tools/pcg-run/comparison.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pcg::run {
namespace {

using c10::IValue;

bool isPlain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided &&
         !tensor.is_quantized() && !tensor.is_meta() && tensor.has_storage();
}

// ---- copies -----------------------------------------------------------------

using Storages = std::unordered_map<const void*, c10::Storage>;

at::Tensor copyTensor(const at::Tensor& tensor, Storages& storages) {
  if (!tensor.defined())
    return tensor;
  if (!isPlain(tensor))
    return tensor.detach().clone();
  auto [place, added] = storages.try_emplace(
      tensor.storage().unsafeGetStorageImpl(), c10::Storage());
  if (added) {
    const auto size = static_cast<std::int64_t>(tensor.storage().nbytes());
    place->second = at::empty({0}, tensor.options().dtype(at::kByte))
                        .set_(tensor.storage(), 0, {size}, {1})
                        .clone()
                        .storage();
  }
  at::Tensor copy = at::empty({0}, tensor.options().requires_grad(false));
  copy.set_(place->second, tensor.storage_offset(), tensor.sizes(),
            tensor.strides());
  if (tensor.is_conj())
    copy = copy.conj();
  if (tensor.is_neg())
    copy = copy._neg_view();
  return copy.requires_grad_(tensor.requires_grad());
}

IValue copyValue(const IValue& value, Storages& storages) {
  if (value.isTensor())
    return copyTensor(value.toTensor(), storages);
  if (value.isTuple()) {
    std::vector<IValue> items;
    for (const IValue& item : value.toTupleRef().elements())
      items.push_back(copyValue(item, storages));
    const auto type = value.type()->cast<c10::TupleType>();
    return type && type->schema()
               ? c10::ivalue::Tuple::createNamed(std::move(items), type)
               : c10::ivalue::Tuple::create(std::move(items));
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& item : value.toListRef())
      list.push_back(copyValue(item, storages));
    return list;
  }
  if (value.isGenericDict()) {
    const auto old = value.toGenericDict();
    c10::impl::GenericDict dict(old.keyType(), old.valueType());
    for (const auto& item : old)
      dict.insert(item.key(), copyValue(item.value(), storages));
    return dict;
  }
  return value;
}

// ---- differences ------------------------------------------------------------

std::string described(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.scalar_type() << tensor.sizes();
  if (tensor.layout() == c10::kStrided)
    out << " with strides " << tensor.strides();
  out << " on " << tensor.device();
  if (tensor.requires_grad())
    out << ", requires grad";
  return out.str();
}

// One row of bytes an element.
at::Tensor bytesOf(const at::Tensor& tensor) {
  const at::Tensor plain =
      tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  const auto width = static_cast<std::int64_t>(plain.element_size());
  return at::empty({0}, at::kByte)
      .set_(plain.storage(), plain.storage_offset() * width,
            {plain.numel(), width}, {width, 1});
}

std::string tensorDifference(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) {
    return std::string("expected ") + (a.defined() ? "a" : "no") +
           " tensor, found " + (b.defined() ? "one" : "none");
  }
  if (!a.defined())
    return "";
  const std::string expected = described(a);
  const std::string found = described(b);
  if (expected != found || a.layout() != b.layout())
    return "expected " + expected + ", found " + found;
  if (a.is_meta())
    return "";
  if (a.layout() == c10::kSparse) {
    const at::Tensor x = a.coalesce();
    const at::Tensor y = b.coalesce();
    const std::string indices =
        tensorDifference(x.indices().detach(), y.indices().detach());
    return indices.empty()
               ? tensorDifference(x.values().detach(), y.values().detach())
               : "indices: " + indices;
  }
  if (a.is_quantized())
    return tensorDifference(a.int_repr(), b.int_repr());
  if (!isPlain(a) || !isPlain(b))
    return tensorDifference(a.to_dense().detach(), b.to_dense().detach());
  const at::Tensor differs = bytesOf(a).ne(bytesOf(b)).any(1);
  const auto count = differs.sum().item<std::int64_t>();
  if (count == 0)
    return "";
  std::ostringstream out;
  out << count << " of " << a.numel()
      << (a.numel() == 1 ? " element differs" : " elements differ");
  if (!c10::isComplexType(a.scalar_type())) {
    const auto picked = [&](const at::Tensor& tensor) {
      return tensor.detach().cpu().to(at::kDouble).flatten().index({differs});
    };
    const at::Tensor gap = (picked(a) - picked(b)).abs();
    const at::Tensor finite = gap.index({gap.isfinite()});
    if (finite.numel() > 0)
      out << ", by at most " << finite.max().item<double>();
    if (finite.numel() < gap.numel())
      out << ", some by an infinity or NaN";
  }
  return out.str();
}

std::string at(const std::string& place, const std::string& inner) {
  if (inner.empty())
    return "";
  return place + (inner[0] == '[' || inner[0] == '.' ? "" : ": ") + inner;
}

std::string shown(const IValue& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string itemsDifference(const std::vector<IValue>& a,
                            const std::vector<IValue>& b) {
  if (a.size() != b.size()) {
    return "expected " + std::to_string(a.size()) + " elements, found " +
           std::to_string(b.size());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::string inner =
        at("[" + std::to_string(i) + "]", difference(a[i], b[i]));
    if (!inner.empty())
      return inner;
  }
  return "";
}

std::string dictDifference(const IValue& expected, const IValue& found) {
  const auto a = expected.toGenericDict();
  const auto b = found.toGenericDict();
  std::vector<IValue> keys;
  std::vector<IValue> other_keys;
  for (const auto& item : a)
    keys.push_back(item.key());
  for (const auto& item : b)
    other_keys.push_back(item.key());
  // Dicts keep their order, which callers see.
  std::string inner = at("keys", itemsDifference(keys, other_keys));
  for (std::size_t i = 0; inner.empty() && i < keys.size(); ++i) {
    inner = at("[" + shown(keys[i]) + "]",
               difference(a.at(keys[i]), b.at(keys[i])));
  }
  return inner;
}

std::string objectDifference(const IValue& expected, const IValue& found) {
  const auto& a = expected.toObjectRef();
  const auto& b = found.toObjectRef();
  const auto type = a.type();
  if (type->name() != b.type()->name()) {
    return "expected an object of " + type->repr_str() + ", found one of " +
           b.type()->repr_str();
  }
  if (a.slots().size() != b.slots().size())
    return "objects of different classes with one name";
  for (std::size_t i = 0; i < a.slots().size(); ++i) {
    if (a.slots()[i].isCapsule() && b.slots()[i].isCapsule())
      continue;  // C++ objects: nothing is known of what they hold.
    std::string inner = at("." + type->getAttributeName(i),
                           difference(a.slots()[i], b.slots()[i]));
    if (!inner.empty())
      return inner;
  }
  return "";
}

// ---- shared memory ----------------------------------------------------------

void addStorages(const IValue& value, std::vector<const void*>& storages) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    // Empty tensors may share the address of nothing.
    storages.push_back(isPlain(tensor) && tensor.storage().nbytes() > 0
                           ? tensor.storage().unsafeGetStorageImpl()
                           : nullptr);
  } else if (value.isTuple()) {
    for (const IValue& item : value.toTupleRef().elements())
      addStorages(item, storages);
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef())
      addStorages(item, storages);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict())
      addStorages(item.value(), storages);
  }
}

}  // namespace

IValue copyOf(const IValue& value) {
  Storages storages;
  return copyValue(value, storages);
}

std::string difference(const IValue& expected, const IValue& found) {
  if (expected.isTensor() && found.isTensor())
    return tensorDifference(expected.toTensor(), found.toTensor());
  if (expected.tagKind() != found.tagKind())
    return "expected " + expected.tagKind() + ", found " + found.tagKind();
  if (expected.isTuple()) {
    return itemsDifference(expected.toTupleRef().elements().vec(),
                           found.toTupleRef().elements().vec());
  }
  if (expected.isList()) {
    return itemsDifference(expected.toListRef().vec(), found.toListRef().vec());
  }
  if (expected.isGenericDict())
    return dictDifference(expected, found);
  if (expected.isObject())
    return objectDifference(expected, found);
  if (expected.isCapsule())
    return "";
  if (expected.isDouble()) {
    return tensorDifference(at::scalar_tensor(expected.toDouble(), at::kDouble),
                            at::scalar_tensor(found.toDouble(), at::kDouble))
                   .empty()
               ? ""
               : "expected " + shown(expected) + ", found " + shown(found);
  }
  if (expected.isFuture() || expected == found)
    return "";
  return "expected " + shown(expected) + ", found " + shown(found);
}

std::string sharing(const IValue& value) {
  std::vector<const void*> storages;
  addStorages(value, storages);
  std::unordered_map<const void*, std::size_t> first;
  std::string text;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const std::size_t number =
        storages[i] == nullptr ? i
                               : first.emplace(storages[i], i).first->second;
    text += (text.empty() ? "" : " ") + std::to_string(number);
  }
  return text;
}

std::string stateDifference(const torch::jit::Module& expected,
                            const torch::jit::Module& found) {
  std::map<std::string, IValue> others;
  for (const auto& item : found.named_attributes(/*recurse=*/true))
    others.emplace(item.name, item.value);
  for (const auto& item : expected.named_attributes(/*recurse=*/true)) {
    const auto other = others.find(item.name);
    if (other == others.end() || item.value.isObject())
      continue;
    std::string inner =
        at("." + item.name, difference(item.value, other->second));
    if (!inner.empty())
      return inner.substr(1);
  }
  return "";
}

}  // namespace pcg::run
