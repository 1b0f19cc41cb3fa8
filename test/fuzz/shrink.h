#pragma once

#include <functional>

#include "test/fuzz/program.h"

namespace pcg::fuzz {

/// Whether a smaller program still fails as the first one did.
using StillFails = std::function<bool(const Program&)>;

/// Makes a failing program smaller: fewer calls, actions, options, statements,
/// attributes, functions, parameters and results; branches and loops replaced
/// by their blocks, expressions by a part of them, a variable or a constant.
/// Each step is kept where `still_fails` holds; the loop ends where no step is,
/// or where `out_of_time` says so.
Program shrink(Program program, const StillFails& still_fails,
               const std::function<bool()>& out_of_time);

}  // namespace pcg::fuzz
