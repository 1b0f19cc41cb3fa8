#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>

namespace pcg {

/// The modes of a thread that change what operators compute: grad, inference
/// and autocast mode, and dispatch keys.
class ThreadModes {
 public:
  /// Those of the calling thread.
  static ThreadModes current();

  void setAutogradThreads(bool enabled) {
    autograd_.set_multithreading_enabled(enabled);
  }

  /// Puts modes in force for the calling thread.
  class Scope;

 private:
  ThreadModes();
  void apply() const;

  static constexpr std::array<c10::DeviceType, 2> kCastDevices{
      c10::DeviceType::CPU, c10::DeviceType::CUDA};

  c10::AutogradState autograd_;
  c10::impl::LocalDispatchKeySet keys_;
  std::array<c10::ScalarType, kCastDevices.size()> cast_to_{};
  bool cast_cache_;
};

class ThreadModes::Scope {
 public:
  explicit Scope(const ThreadModes& modes);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const ThreadModes before_;
};

}  // namespace pcg
