#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/sequence_state.h"
#include "runtime/key.h"

namespace pcg {

/// The weights and other module attributes of one segment, as the calling
/// module holds them now.
///
/// Attributes are looked up once; later calls compare the slots that hold them.
/// A value counts as changed when another object is assigned, when a tensor's
/// memory, sizes, strides or type change (`module.to`, `.data =`), or when a
/// submodule on the path is replaced. In-place changes of a tensor's data are
/// no change: graphs read the memory itself.
/// Thread safety: none.
class BoundValues {
 public:
  explicit BoundValues(const std::vector<BoundValue>& specification);

  /// Brings the values up to date with the calling module and returns a number
  /// that is the same exactly for equal values and addresses.
  std::int64_t refresh(const c10::IValue& module);

  /// Valid after refresh.
  const std::vector<c10::IValue>& values() const { return values_; }
  const std::optional<c10::Device>& device() const { return device_; }
  const char* refusal() const { return refusal_; }

 private:
  // One slot that holds a value or a submodule on the way to one.
  struct Guard {
    // The slot's place: a slot of the calling module, of a submodule, or a
    // stored value. Slots of the calling module are found through the module
    // that a call passes, never by a kept address: nothing here may keep that
    // module alive, since it holds the sequence that holds this.
    enum class Owner { kModule, kSubmodule, kStored };
    Owner owner;
    const c10::ivalue::Object* submodule;
    std::size_t index;
    const c10::IValue* stored;

    const void* object = nullptr;  ///< TensorImpl or submodule; else null.
    const void* data = nullptr;    ///< Tensor memory.
    std::vector<std::int64_t> layout = {};
    c10::IValue scalar = {};

    const c10::IValue& slot(const c10::ivalue::Object* module) const;
    bool sameSlot(const Guard& other) const;
  };

  bool unchanged(const c10::ivalue::Object* module) const;
  void resolve(const c10::IValue& module);
  void guard(Guard place, const c10::IValue& slot);

  const std::vector<BoundValue>* specification_;
  std::vector<Guard> guards_;
  std::vector<c10::IValue> submodules_;  // keeps their slots in place
  std::vector<c10::IValue> values_;
  std::optional<c10::Device> device_;
  const char* refusal_ = nullptr;
  const void* module_type_ = nullptr;
  std::vector<KeyWords> variants_;
  std::int64_t current_ = -1;
};

}  // namespace pcg
