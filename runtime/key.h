#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace pcg {

/// The words of a key, compared in full. Two calls have equal words exactly if
/// they agree in structure, tensor metadata, host values and modes.
using KeyWords = std::vector<std::int64_t>;

/// A call's inputs taken apart: its key and its tensors in order.
struct FlatInputs {
  KeyWords words;
  std::vector<at::Tensor> tensors;

  /// The device of the first tensor that is not on the CPU.
  std::optional<c10::Device> device;

  /// Set where the inputs can be no part of a key: sparse, quantized or nested
  /// tensors, tensors on two devices, objects. A sentence for the report.
  const char* refusal = nullptr;

  void clear();
};

/// Appends one value (tensor, host scalar, list, tuple, dict, None) to `flat`.
///
/// A tensor adds dtype, device, sizes, strides and flags to the words, never
/// its address or data.
void flatten(const c10::IValue& value, FlatInputs& flat);

/// Adds the values of CPU 0-dim tensors to the words. Kernels on a GPU take
/// such a tensor's value as a parameter, which a capture would freeze; so for a
/// segment on a GPU it belongs to the key.
void addHostTensorValues(FlatInputs& flat);

/// Adds the modes that change what operators do: grad and inference mode,
/// autocast, determinism, matmul precision, default dtype.
void addModes(KeyWords& words);

/// True for a CPU tensor without dimensions.
bool isHostScalarTensor(const at::Tensor& tensor);

}  // namespace pcg
