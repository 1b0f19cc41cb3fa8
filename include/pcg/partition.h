#pragma once

#include <pcg/options.h>
#include <pcg/report.h>
#include <torch/csrc/jit/api/module.h>

namespace pcg {

/// A module whose methods run their segments through one CUDAGraphSequence,
/// held in the attribute `pcg_sequence`.
struct PartitionedModule {
  torch::jit::Module module;
  PartitionReport report;
};

/// Cuts the public methods of `module` into segments and breaks.
///
///     forward(x):                        forward(x):
///       h = relu(linear(x))                h = run_segment("segment_0", x)
///       s = h.max().item()          →      s = h.max.item()
///       return tanh(h * s)                 return run_segment("segment_1", ..)
///
/// The result has a type of its own and shares every parameter, buffer,
/// submodule, hook and tied weight with `module`, which stays as it was. It
/// behaves as `module` does: values, mutations, exceptions, random numbers and
/// aliasing are the same. It can be saved; the process that loads it must have
/// loaded libpcg.
///
/// Throws std::runtime_error with the method, node and source line where a
/// graph cannot be handled; `module` is then unchanged.
/// Thread safety: calls on modules of one compilation unit must not overlap.
PartitionedModule partition(const torch::jit::Module& module,
                            const PartitionOptions& options = {});

}  // namespace pcg
