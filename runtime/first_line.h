#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace pcg {

/// Up to the first line break.
inline std::string firstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Of what an exception says, without torch's backtrace.
inline std::string firstLine(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return firstLine(std::string(torch_error != nullptr
                                   ? torch_error->what_without_backtrace()
                                   : error.what()));
}

}  // namespace pcg
