#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace torch::jit {
struct Module;
}

namespace pcg::run {

/// A copy in which tensors that share memory share it again. Objects are not
/// copied.
c10::IValue copyOf(const c10::IValue& value);

/// Empty where both are the same: types, sizes, strides and, bit by bit, what
/// tensors hold. Else where they differ and how, e.g.
/// `[1]["a"]: 3 of 16 elements differ, by at most 0.25`. Objects are equal
/// where their types are.
std::string difference(const c10::IValue& expected, const c10::IValue& found);

/// Which tensors inside `value` lie in the same memory: for each, in order, the
/// number of the first that does. Equal values that alias differently have
/// different texts.
std::string sharing(const c10::IValue& value);

/// As `difference`, of the attributes, parameters and buffers of two modules
/// and their submodules that both have; `pcg_sequence` is not compared.
std::string stateDifference(const torch::jit::Module& expected,
                            const torch::jit::Module& found);

}  // namespace pcg::run
