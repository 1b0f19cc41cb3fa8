#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace pcg {

struct SegmentDefinition;

/// True where the environment variable PCG_VERIFY was `1` when it was first
/// asked for.
bool verifiesReplays();

/// Holds one replay against the segment's body, run eagerly on copies of what
/// the replay got. For finding faults: it makes a call slower than eager.
/// Thread safety: none.
class ReplayCheck {
 public:
  /// Copies `arguments` (inputs, then bound values; tensors that share memory
  /// share it again) and runs the body on them.
  ReplayCheck(const SegmentDefinition& segment,
              const c10::ArrayRef<c10::IValue>& arguments);

  /// Throws std::runtime_error that names segment, value and node where a
  /// result, or an argument afterwards, is not equal in every bit. Operators
  /// whose results vary from run to run, as atomic additions do, fail too.
  void compare(const std::vector<c10::IValue>& results,
               const c10::ArrayRef<c10::IValue>& arguments) const;

 private:
  const SegmentDefinition& segment_;
  std::vector<c10::IValue> arguments_;
  std::vector<c10::IValue> expected_;
};

}  // namespace pcg
