#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace pcg {

namespace detail {

/// Throws CaptureError where the calling thread records a graph: a value that
/// is read there would be the same at every replay.
void refuseFrozenRead();

template <typename T>
inline constexpr bool kNever = false;

}  // namespace detail

/// A value on the host that a break computes anew at each replay, such as the
/// result of `.item()`.
///
///     pcg::HostValue<double> norm = pcg::no_graph(computeNorm, gradients);
///     pcg::no_graph(clip, gradients, norm);   // gets the norm of this replay
///
/// Captured code would keep the value of the capture for ever, so it cannot
/// read one: there is no conversion to T, and value() throws. Copies share the
/// value. Thread safety: as for the sequence whose break computes it.
template <typename T>
class HostValue {
 public:
  static_assert(std::is_copy_constructible_v<T>,
                "a break's host value has to be copyable");

  explicit HostValue(T value) : value_(std::make_shared<T>(std::move(value))) {}

  /// The value of the last run of its break. Throws CaptureError in captured
  /// code.
  const T& value() const {
    detail::refuseFrozenRead();
    return *value_;
  }

  /// As value(), also in captured code, which keeps what it reads here: the
  /// caller says that all replays may use the value of the capture.
  const T& frozen() const { return *value_; }

  template <typename U>
  operator U() const {
    static_assert(
        detail::kNever<U>,
        "a break's host value may be another one at each replay: pass "
        "the HostValue to no_graph, read .value() outside captured "
        "code, or use .frozen() to keep the capture's value");
  }

  /// For pcg: what the break has computed last.
  void set(T value) { *value_ = std::move(value); }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace pcg
