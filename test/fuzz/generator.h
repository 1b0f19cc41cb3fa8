#pragma once

#include <cstdint>

#include "test/fuzz/program.h"

namespace pcg::fuzz {

/// Makes the program of a seed: well typed, and the same on every machine.
/// Sizes mostly fit; where they do not, both sides raise the same error.
Program generate(std::uint64_t seed);

}  // namespace pcg::fuzz
