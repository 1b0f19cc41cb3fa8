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
/// What torch's executors do by themselves is no difference. Both drop draws of
/// random numbers that nothing reads, each after passes of its own. The plain
/// one, under which most programs run, is made comparable by putting the
/// original through those passes that pcg applies first. The default one runs
/// programs without draws and without gradients only: it marks results as
/// requiring one that do not. It also folds `torch.ones(2)` into one tensor for
/// all calls, which then is everybody's; so under it aliasing is not compared,
/// and callers neither keep results nor write attributes that programs assign.
/// And its compiler fails an assertion of its own where a block is left early
/// around a `with`; such programs are kCompiler and passed over.
/// Stops at the first difference.
Outcome runLockstep(const Program& program);

}  // namespace pcg::fuzz
