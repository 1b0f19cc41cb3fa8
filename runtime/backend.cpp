#include "runtime/backend.h"

#include <c10/util/Exception.h>

#include <string>

namespace pcg {
namespace {

std::string firstLine(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

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
