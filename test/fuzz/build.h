#pragma once

#include <torch/csrc/jit/api/module.h>

#include "test/fuzz/program.h"
#include "test/fuzz/random.h"

namespace pcg::fuzz {

/// Compiles a module and fills its attributes with the values of a seed. Two
/// calls give separate modules that are equal. Throws what torch's compiler
/// throws where the text is no TorchScript.
torch::jit::Module build(const ModuleSource& source, std::uint64_t seed);

/// A value for an attribute. REQUIRES: not a tuple.
c10::IValue makeAttribute(const Type& type, Random& random);

/// A contiguous tensor of random values. `dims` as in Type, `N` is `rows`.
at::Tensor makeTensor(char dtype, const std::string& dims, std::int64_t rows,
                      Random& random);

/// Writes random values into a contiguous tensor.
void fill(const at::Tensor& tensor, Random& random);

}  // namespace pcg::fuzz
