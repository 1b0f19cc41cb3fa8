#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>

namespace pcg {

/// How much is said, each level including those before it.
enum class LogLevel : std::uint8_t {
  kOff,
  kWarning,  ///< A capture that was to be expected is lost, and why.
  kInfo,     ///< Captures, and every reason for running eagerly.
  kDebug,    ///< Warm-ups, evictions, changed addresses.
};

/// The level that `PCG_LOG` names: off, warning, info or debug; warning where
/// it is unset or empty. Throws std::runtime_error for another word.
LogLevel logLevelOfEnvironment();

/// Writes lines to stderr for one sequence: `pcg: warning: <segment>: <text>`.
/// Thread safety: all methods may be called from any thread.
class Log {
 public:
  explicit Log(LogLevel level) : level_(level) {}

  /// To be asked before a text is made that costs time.
  bool says(LogLevel level) const { return level <= level_; }

  void write(LogLevel level, const std::string& segment,
             const std::string& text);

  /// As write(), but no text twice for a segment, at whatever level: the
  /// contexts of several threads tend to meet the same obstacle.
  void writeOnce(LogLevel level, const std::string& segment,
                 const std::string& text);

 private:
  LogLevel level_;
  std::mutex mutex_;
  std::unordered_set<std::string> written_;
};

}  // namespace pcg
