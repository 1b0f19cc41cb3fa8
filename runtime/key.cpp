#include "runtime/key.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

namespace pcg {
namespace {

using c10::IValue;

// Distinct for every kind of value, so that no sequence of words reads as two
// different structures.
enum Tag : std::int64_t {
  kTensor = 1,
  kUndefined,
  kNone,
  kInt,
  kBool,
  kFloat,
  kComplex,
  kString,
  kDevice,
  kList,
  kTuple,
  kDict,
  kUninitialized,
};

std::int64_t bits(double value) {
  std::int64_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

void appendBytes(const void* data, std::size_t size, KeyWords& words) {
  words.push_back(static_cast<std::int64_t>(size));
  const std::size_t first = words.size();
  words.resize(first + (size + 7) / 8, 0);
  if (size != 0)
    std::memcpy(words.data() + first, data, size);
}

void appendTensor(const at::Tensor& tensor, FlatInputs& flat) {
  KeyWords& words = flat.words;
  if (!tensor.defined()) {
    words.push_back(kUndefined);
    return;
  }
  if (tensor.layout() != c10::kStrided || tensor.is_nested() ||
      tensor.is_quantized() || !tensor.has_storage()) {
    flat.refusal = "an input is sparse, quantized, nested or has no storage";
    return;
  }
  const c10::Device device = tensor.device();
  if (!device.is_cpu()) {
    if (!flat.device) {
      flat.device = device;
    } else if (*flat.device != device) {
      flat.refusal = "the inputs are on more than one device";
      return;
    }
  }
  words.push_back(kTensor);
  words.push_back(
      static_cast<std::int64_t>(tensor.scalar_type()) |
      static_cast<std::int64_t>(device.type()) << 8 |
      static_cast<std::int64_t>(static_cast<std::uint8_t>(device.index()))
          << 16 |
      static_cast<std::int64_t>(tensor.requires_grad()) << 24 |
      static_cast<std::int64_t>(tensor.is_conj()) << 25 |
      static_cast<std::int64_t>(tensor.is_neg()) << 26 |
      static_cast<std::int64_t>(tensor.is_inference()) << 27 |
      static_cast<std::int64_t>(
          tensor.unsafeGetTensorImpl()->is_wrapped_number())
          << 28);
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  words.push_back(static_cast<std::int64_t>(sizes.size()));
  words.insert(words.end(), sizes.begin(), sizes.end());
  words.insert(words.end(), strides.begin(), strides.end());
  flat.tensors.push_back(tensor);
}

}  // namespace

void FlatInputs::clear() {
  words.clear();
  tensors.clear();
  device.reset();
  refusal = nullptr;
}

void flatten(const IValue& value, FlatInputs& flat) {
  KeyWords& words = flat.words;
  if (value.isTensor()) {
    appendTensor(value.toTensor(), flat);
  } else if (value.isNone()) {
    words.push_back(kNone);
  } else if (value.isInt()) {
    words.push_back(kInt);
    words.push_back(value.toInt());
  } else if (value.isBool()) {
    words.push_back(kBool);
    words.push_back(value.toBool() ? 1 : 0);
  } else if (value.isDouble()) {
    words.push_back(kFloat);
    words.push_back(bits(value.toDouble()));
  } else if (value.isComplexDouble()) {
    words.push_back(kComplex);
    words.push_back(bits(value.toComplexDouble().real()));
    words.push_back(bits(value.toComplexDouble().imag()));
  } else if (value.isString()) {
    words.push_back(kString);
    appendBytes(value.toStringRef().data(), value.toStringRef().size(), words);
  } else if (value.isDevice()) {
    words.push_back(kDevice);
    words.push_back(static_cast<std::int64_t>(value.toDevice().type()));
    words.push_back(value.toDevice().index());
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    words.push_back(kTuple);
    words.push_back(static_cast<std::int64_t>(elements.size()));
    for (const IValue& element : elements)
      flatten(element, flat);
  } else if (value.isList()) {
    const auto elements = value.toListRef();
    words.push_back(kList);
    words.push_back(static_cast<std::int64_t>(elements.size()));
    for (const IValue& element : elements)
      flatten(element, flat);
  } else if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    words.push_back(kDict);
    words.push_back(static_cast<std::int64_t>(dict.size()));
    for (const auto& item : dict) {
      flatten(item.key(), flat);
      flatten(item.value(), flat);
    }
  } else {
    flat.refusal = "an input is an object that can be no part of a key";
  }
}

bool isHostScalarTensor(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.dim() == 0;
}

void addHostTensorValues(FlatInputs& flat) {
  for (const at::Tensor& tensor : flat.tensors) {
    if (isHostScalarTensor(tensor)) {
      appendBytes(tensor.const_data_ptr(), tensor.itemsize(), flat.words);
    }
  }
}

void addModes(KeyWords& words) {
  const auto& context = at::globalContext();
  words.push_back(
      static_cast<std::int64_t>(at::GradMode::is_enabled()) |
      static_cast<std::int64_t>(c10::InferenceMode::is_enabled()) << 1 |
      static_cast<std::int64_t>(at::autocast::is_autocast_enabled(at::kCUDA))
          << 2 |
      static_cast<std::int64_t>(at::autocast::is_autocast_enabled(at::kCPU))
          << 3 |
      static_cast<std::int64_t>(context.deterministicAlgorithms()) << 4 |
      static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype()) << 8 |
      static_cast<std::int64_t>(context.float32MatmulPrecision()) << 16);
}

}  // namespace pcg
