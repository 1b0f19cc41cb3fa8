#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pcg::test {

/// What one run of the whole pipeline took.
struct PipelineTimes {
  /// CPU seconds of each pass, in the order in which they ran.
  std::vector<std::pair<std::string, double>> passes;
  double total = 0;
  std::int64_t nodes = 0;     ///< Of the prepared graph.
  std::int64_t segments = 0;  ///< That were made.
};

/// Partitions `forward` of `module`, pass by pass, with default options. CPU
/// time, so that other work on the machine does not show.
PipelineTimes timePipeline(const torch::jit::Module& module);

/// Forgets the largest memory use seen so far, where the system can.
void resetPeakMemory();

/// Largest resident memory of the process since then, in bytes; 0 where the
/// system does not tell.
std::int64_t peakMemory();

}  // namespace pcg::test
