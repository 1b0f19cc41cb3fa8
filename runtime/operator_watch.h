#pragma once

#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <ATen/record_function.h>

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace pcg {

/// Storages that captured work uses, told apart by where they come from.
/// Thread safety: none.
class StoragesUsed {
 public:
  /// Those that existed before the capture, held.
  std::vector<c10::Storage> takeOutside() { return std::move(outside_); }

  /// True for a storage that captured work has used, whoever made it.
  bool contains(const c10::Storage& storage) const;

  void read(const c10::Storage& storage);
  void made(const c10::Storage& storage);

 private:
  // A weak reference keeps the address from being used again.
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::unordered_map<const c10::StorageImpl*, Weak> made_here_;
  std::unordered_set<const c10::StorageImpl*> outside_known_;
  std::vector<c10::Storage> outside_;
};

/// Between resume() and pause(), it tells of each operator that the calling
/// thread dispatches (at::RecordFunction, thread local), and notes the storages
/// of its arguments and results in `used`.
///
/// To be made and destroyed outside backward passes: those restore at their end
/// the callbacks that a thread had at their beginning.
/// Thread safety: use on one thread only, one at a time.
class OperatorWatch {
 public:
  /// Both have to outlive the watch.
  OperatorWatch(StoragesUsed& used, std::function<void()> on_operator);
  ~OperatorWatch();

  void resume();
  void pause();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

 private:
  StoragesUsed& used_;
  std::function<void()> on_operator_;
  at::CallbackHandle callback_;
};

}  // namespace pcg
