#pragma once

#include <atomic>
#include <functional>

namespace pcg {

/// Where a test can make the runtime fail.
enum class FaultKind {
  kNode,          ///< Before each node that runs in a capture.
  kCaptureBegin,  ///< Before the device is told of a capture.
  kCaptureEnd,    ///< After the body, while the capture is still under way.
  kAllocation,    ///< Before a back end allocates slots or results.
};

/// Called at each point; what it throws is what the runtime fails with.
using FaultFunction = std::function<void(FaultKind)>;

namespace detail {
extern std::atomic<const FaultFunction*> fault_function;
}

/// One relaxed load where no fault is installed, as outside of tests.
inline void faultPoint(FaultKind kind) {
  const auto* function = detail::fault_function.load(std::memory_order_relaxed);
  if (function != nullptr)
    (*function)(kind);
}

/// Installs a function for as long as it lives. One at a time in a process.
/// Thread safety: no other thread may run segments when it comes or goes;
/// meanwhile `function` is called by whichever thread reaches a point.
class FaultInjection {
 public:
  explicit FaultInjection(FaultFunction function);
  ~FaultInjection();
  FaultInjection(const FaultInjection&) = delete;
  FaultInjection& operator=(const FaultInjection&) = delete;

 private:
  FaultFunction function_;
};

}  // namespace pcg
