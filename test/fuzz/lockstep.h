#pragma once

#include <cstdint>

#include "test/fuzz/compare.h"
#include "test/fuzz/program.h"

namespace pcg::fuzz {

/// What came of one program.
struct Outcome {
  Difference difference;
  std::int64_t calls = 0;
  std::int64_t raised = 0;  ///< Calls that raised, alike on both sides.
  std::int64_t segments = 0;
  std::int64_t replays = 0;
};

/// Builds a program twice, partitions one for the host back end and makes the
/// program's calls on both, side by side. After each call everything within
/// the caller's reach is compared (see compare.h): the result, the arguments,
/// all attributes and the results of earlier calls, some of which the caller
/// has overwritten; the exception, if any; and the default generator's state.
/// Of an exception its class and the first line of its message count: call
/// stacks name the code that runs, which differs.
///
/// Two things that torch does by itself are no differences. Its executors drop
/// a draw of random numbers that nothing reads, but see more of those after
/// inlining; so the original is inlined and cleaned up as torch's default
/// executor would. That executor also folds `torch.ones(2)` into one tensor for
/// all calls, which then is everybody's; under it, aliasing is not compared,
/// and callers neither keep results nor write attributes that programs assign.
/// Stops at the first difference.
Outcome runLockstep(const Program& program);

}  // namespace pcg::fuzz
