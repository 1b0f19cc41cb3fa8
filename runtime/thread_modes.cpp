#include "runtime/thread_modes.h"

#include <ATen/autocast_mode.h>

namespace pcg {

ThreadModes ThreadModes::current() {
  return {};
}

ThreadModes::ThreadModes()
    : autograd_(c10::AutogradState::get_tls_state()),
      keys_(c10::impl::tls_local_dispatch_key_set()),
      cast_cache_(at::autocast::is_autocast_cache_enabled()) {
  for (std::size_t i = 0; i < kCastDevices.size(); ++i)
    cast_to_[i] = at::autocast::get_autocast_dtype(kCastDevices[i]);
}

void ThreadModes::apply() const {
  c10::AutogradState::set_tls_state(autograd_);
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
  at::autocast::set_autocast_cache_enabled(cast_cache_);
  for (std::size_t i = 0; i < kCastDevices.size(); ++i)
    at::autocast::set_autocast_dtype(kCastDevices[i], cast_to_[i]);
}

ThreadModes::Scope::Scope(const ThreadModes& modes)
    : before_(ThreadModes::current()) {
  modes.apply();
}

ThreadModes::Scope::~Scope() {
  before_.apply();
}

}  // namespace pcg
