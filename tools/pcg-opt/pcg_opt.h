#pragma once

#include <iosfwd>

namespace pcg {

/// The program pcg-opt: reads the command line `argv[1]` to `argv[argc - 1]`,
/// standard input `in` where the command line does not name a file, and writes
/// results to `out` and everything else to `err`. `pcg-opt --help` documents
/// options, formats and the exit code, which is returned.
///
/// Throws nothing. Not thread safe: passes use torch's global state.
int runPcgOpt(int argc, const char* const* argv, std::istream& in,
              std::ostream& out, std::ostream& err);

}  // namespace pcg
