#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace pcg::run {

/// The middle of some times and how far they spread, in seconds.
struct Summary {
  double median = 0;
  double lower = 0;  ///< A quarter of the times is below.
  double upper = 0;  ///< A quarter is above.
};

/// `times` must not be empty.
Summary summarize(std::vector<double> times);

/// Says how far work is: nothing in the first two seconds, then a line at most
/// once a second on a terminal, each over the last, and every ten seconds
/// elsewhere.
class Progress {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  Progress(std::ostream& err, bool terminal, Clock clock);
  /// Ends a line that stands on the terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& what);

 private:
  std::ostream& err_;
  const bool terminal_;
  Clock clock_;
  std::chrono::steady_clock::time_point next_;
  std::size_t width_ = 0;
};

}  // namespace pcg::run
