#include "runtime/execution_context.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/first_line.h"

namespace pcg {

ExecutionContext::ExecutionContext(const SequenceState& options,
                                   Backend backend, Log& log)
    : options_(options), backend_(backend), log_(log) {}

CaptureBackend* ExecutionContext::backendFor(c10::Device device,
                                             std::string& why) {
  if (backend_ == Backend::kOff) {
    why = "capturing is switched off";
    return nullptr;
  }
  if (device.is_cpu() && backend_ != Backend::kHost) {
    why = "the tensors are on the CPU";
    return nullptr;
  }
  if (!device.is_cpu() && !device.is_cuda()) {
    why = "no back end for device " + device.str();
    return nullptr;
  }
  for (Entry& entry : backends_) {
    if (entry.device == device) {
      why = entry.failure;
      return entry.backend.get();
    }
  }
  Entry entry{device, nullptr, ""};
  try {
    entry.backend =
        device.is_cpu() ? makeHostBackend() : makeCudaBackend(device);
  } catch (const std::exception& error) {
    entry.failure = firstLine(error.what());
    log_.writeOnce(LogLevel::kWarning, device.str(), entry.failure);
  }
  backends_.push_back(std::move(entry));
  why = backends_.back().failure;
  return backends_.back().backend.get();
}

void ExecutionContext::remove(CaptureHolder& holder) {
  holders_.erase(std::remove(holders_.begin(), holders_.end(), &holder),
                 holders_.end());
}

bool ExecutionContext::freeMemory(CaptureBackend& backend,
                                  const CapturedSegment* needed) {
  if (rescues_ == kMostRescues)
    return false;
  ++rescues_;
  for (CaptureHolder* holder : holders_)
    holder->dropCaptures(needed);
  backend.releaseUnused();
  updatePoolBytes();
  log_.write(LogLevel::kInfo, backend.device().str(),
             "memory is short: lets go of the captures not in use");
  return true;
}

void ExecutionContext::updatePoolBytes() {
  std::size_t bytes = 0;
  for (const Entry& entry : backends_) {
    if (entry.backend)
      bytes += entry.backend->poolBytes();
  }
  pool_bytes_.store(bytes, std::memory_order_relaxed);
}

}  // namespace pcg
