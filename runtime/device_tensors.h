#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <unordered_set>
#include <vector>

#include "runtime/nested_values.h"

namespace pcg {

/// Tells device memory from host scalars on the host back end, where both are
/// CPU tensors: device memory is what a body gets from outside, and what
/// operators make of it or of nothing. A tensor that only wraps a host value,
/// and arithmetic on such tensors, is host memory.
/// Thread safety: none.
class DeviceTensors {
 public:
  explicit DeviceTensors(const std::vector<at::Tensor>& inputs) {
    for (const at::Tensor& tensor : inputs)
      add(tensor);
  }

  bool contains(const at::Tensor& tensor) const {
    return tensor.has_storage() &&
           storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
  }

  /// Whether an operator with these arguments works on device memory.
  bool onDevice(c10::ArrayRef<c10::IValue> arguments) const {
    bool any = false;
    bool device = false;
    forEachTensor(arguments, [&](const at::Tensor& tensor) {
      any = true;
      device |= contains(tensor);
    });
    return device || !any;
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.has_storage())
      return;
    if (storages_.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      held_.push_back(tensor.storage());  // No address is used twice.
    }
  }

 private:
  std::unordered_set<const c10::StorageImpl*> storages_;
  std::vector<c10::Storage> held_;
};

}  // namespace pcg
