#include "runtime/backend.h"

#include <c10/util/Exception.h>

#include "runtime/first_line.h"

namespace pcg {

std::unique_ptr<CapturedGraph> CaptureBackend::capture(
    const std::function<void()>& body, const CaptureHints& hints) {
  const auto open = beginCapture(hints);
  try {
    body();
  } catch (const c10::OutOfMemoryError&) {
    throw;  // Says nothing about the body, captured or not.
  } catch (const std::exception& error) {
    if (open->isRefusal(error))
      throw CaptureError(firstLine(error));
    throw;
  }
  return open->finish();
}

}  // namespace pcg
