#pragma once

#include <iosfwd>

namespace pcg {

/// The program pcg-run: reads the command line `argv[1]` to `argv[argc - 1]`,
/// calls a model, and writes its report to `out` and everything else to `err`.
/// `pcg-run --help` documents options, inputs and the exit code, which is
/// returned. With `terminal`, progress is a line that is written over.
///
/// Throws nothing. Not thread safe: sets PCG_BACKEND and PCG_VERIFY, as far as
/// the command line asks for it, until it returns, and seeds torch's
/// generators.
int runPcgRun(int argc, const char* const* argv, std::ostream& out,
              std::ostream& err, bool terminal);

}  // namespace pcg
