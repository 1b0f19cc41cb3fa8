#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pcg::fuzz {

/// Random numbers that are the same on every machine (SplitMix64). The
/// distributions of <random> are not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  /// A number from 0 to `bound` - 1. REQUIRES: bound > 0.
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(next() % bound);
  }

  /// True in `percent` of all cases.
  bool chance(std::size_t percent) { return below(100) < percent; }

  /// REQUIRES: `from` is not empty.
  template <typename T>
  const T& oneOf(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace pcg::fuzz
