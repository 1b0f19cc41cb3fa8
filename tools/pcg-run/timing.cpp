#include "tools/pcg-run/timing.h"

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <utility>

namespace pcg::run {
namespace {

// Between neighbours, as most statistics programs do it.
double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) *
                             (sorted[above] - sorted[below]);
}

}  // namespace

Summary summarize(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {quantile(times, 0.5), quantile(times, 0.25), quantile(times, 0.75)};
}

Progress::Progress(std::ostream& err, bool terminal, Clock clock)
    : err_(err),
      terminal_(terminal),
      clock_(std::move(clock)),
      next_(clock_() + std::chrono::seconds(2)) {}

Progress::~Progress() {
  if (width_ > 0)
    err_ << '\r' << std::string(width_, ' ') << '\r' << std::flush;
}

void Progress::show(const std::string& what) {
  const auto now = clock_();
  if (now < next_)
    return;
  next_ = now + std::chrono::seconds(terminal_ ? 1 : 10);
  const std::string line = "pcg-run: " + what;
  if (!terminal_) {
    err_ << line << '\n' << std::flush;
    return;
  }
  const std::size_t blanks = std::max(width_, line.size()) - line.size();
  err_ << '\r' << line << std::string(blanks, ' ') << std::flush;
  width_ = line.size();
}

}  // namespace pcg::run
