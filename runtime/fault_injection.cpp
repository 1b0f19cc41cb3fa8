#include "runtime/fault_injection.h"

#include <utility>

namespace pcg {

namespace detail {
std::atomic<const FaultFunction*> fault_function{nullptr};
}

FaultInjection::FaultInjection(FaultFunction function)
    : function_(std::move(function)) {
  detail::fault_function.store(&function_, std::memory_order_relaxed);
}

FaultInjection::~FaultInjection() {
  detail::fault_function.store(nullptr, std::memory_order_relaxed);
}

}  // namespace pcg
