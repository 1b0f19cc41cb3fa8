#include "runtime/log.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace pcg {
namespace {

constexpr std::array<const char*, 4> kWords = {"off", "warning", "info",
                                               "debug"};

std::string lineOf(LogLevel level, const std::string& segment,
                   const std::string& text) {
  return std::string("pcg: ") + kWords[static_cast<std::size_t>(level)] + ": " +
         segment + ": " + text + "\n";
}

// In one piece, so that lines of several threads do not mix.
void print(const std::string& line) {
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

LogLevel logLevelOfEnvironment() {
  const char* value = std::getenv("PCG_LOG");
  if (value == nullptr || *value == '\0')
    return LogLevel::kWarning;
  const std::string word = value;
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    if (word == kWords[i])
      return static_cast<LogLevel>(i);
  }
  throw std::runtime_error(
      "expected off, warning, info or debug in PCG_LOG, found '" + word + "'");
}

void Log::write(LogLevel level, const std::string& segment,
                const std::string& text) {
  if (says(level))
    print(lineOf(level, segment, text));
}

void Log::writeOnce(LogLevel level, const std::string& segment,
                    const std::string& text) {
  if (!says(level))
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!written_.insert(segment + ": " + text).second)
      return;
  }
  print(lineOf(level, segment, text));
}

}  // namespace pcg
