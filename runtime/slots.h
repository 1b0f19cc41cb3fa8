#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/backend.h"

namespace pcg {

/// Memory that a captured graph writes and that is handed out by each replay.
///
/// What is handed out is a storage of its own over the slot's memory. If
/// somebody still holds it, or a view of it, when the graph is about to be
/// replayed, its contents move to fresh memory first: holders never see later
/// replays. The memory lives as long as the slot or any such storage.
/// Thread safety: none.
class Slot {
 public:
  /// `owner` keeps the memory alive; `tag` tells the slots of one context.
  Slot(c10::Storage owner, const void* tag);

  void* data() const { return owner_->owner.mutable_data(); }
  std::size_t bytes() const { return owner_->owner.nbytes(); }
  c10::Device device() const { return owner_->owner.device(); }

  /// The storage to hand out next. The same object until it was evacuated.
  const c10::Storage& handOut();

  /// True where the storage handed out last is still in use.
  bool isHeld() const;

  /// True where it will still be in use once the caller has let go of
  /// `values`, and of those of `tensors` that are not `kept`: one reference
  /// each, `values` counting where they are tensors themselves. Of tensors
  /// in containers it may say so in error.
  bool staysHeld(const std::vector<at::Tensor>& tensors,
                 const std::vector<bool>& kept,
                 const std::vector<c10::IValue>& values) const;

  /// Moves the held storage to `fresh` memory of the slot's size, or to newly
  /// allocated memory where that is null, on the current stream. Does nothing
  /// where none is held.
  void evacuate(CaptureBackend& backend, at::DataPtr fresh);

 private:
  struct Owner {
    c10::Storage owner;
    const void* tag;
  };
  friend bool isSlotOf(const at::Tensor&, const void*);

  static void release(void* context);

  std::shared_ptr<Owner> owner_;
  c10::Storage handed_out_;
};

/// True where the tensor lies in a slot that was made with `tag`.
bool isSlotOf(const at::Tensor& tensor, const void* tag);

/// True where both lie in one storage. Both have to have one.
inline bool sharesStorage(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() ==
         b.storage().unsafeGetStorageImpl();
}

/// What places a tensor in a storage.
struct TensorLayout {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  ///< In elements.
  caffe2::TypeMeta dtype;
  bool conjugate = false;
  bool negative = false;

  static TensorLayout of(const at::Tensor& tensor);
};

/// A tensor over `storage`, sharing neither metadata nor version counter with
/// any other.
at::Tensor tensorOver(const c10::Storage& storage, const TensorLayout& layout);

/// Bytes from a tensor's first element to behind its last, as the strides
/// place them; 0 for an empty tensor.
std::size_t extentBytes(const at::Tensor& tensor);

}  // namespace pcg
