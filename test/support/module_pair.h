#pragma once

#include <ATen/ATen.h>
#include <pcg/partition.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pcg::test {

/// Totals over all segments of a module's report().
struct Totals {
  std::int64_t segments = 0;
  std::int64_t captures = 0;
  std::int64_t replays = 0;
  std::int64_t eager_calls = 0;
};

Totals totalsOf(const torch::jit::Module& module);

/// The text of a module's report().
std::string reportOf(const torch::jit::Module& module);

/// A potential that takes the gradient of its energy in `forward`.
extern const char* const kGradientIsland;

/// Two matrix products, `w` and `v`, with a host read between them.
extern const char* const kGatedNetwork;

/// Options that partition even the smallest run, on the host back end for CPU
/// tensors and on CUDA for others.
PartitionOptions smallSegments(c10::Device device = c10::kCPU);

/// A module whose methods are given as TorchScript source, with parameters.
torch::jit::Module makeModule(
    const std::string& source,
    const std::map<std::string, at::Tensor>& parameters = {});

/// An original and its partitioned form, called in lockstep.
class ModulePair {
 public:
  explicit ModulePair(const std::string& source,
                      const std::map<std::string, at::Tensor>& parameters = {},
                      c10::Device device = c10::kCPU);
  /// The original keeps its own copies of all tensors.
  ModulePair(torch::jit::Module original, const PartitionOptions& options);

  /// Calls both with equal but separate inputs under no_grad and the same
  /// seed. Adds a test failure where results, inputs afterwards, or errors
  /// differ. Returns the partitioned module's result (None after an error).
  c10::IValue call(const std::vector<c10::IValue>& inputs);
  c10::IValue call(const std::string& method,
                   const std::vector<c10::IValue>& inputs);

  torch::jit::Module original;
  torch::jit::Module partitioned;
  PartitionReport report;

 private:
  int calls_ = 0;
};

/// A copy in which tensors that shared memory share it again.
c10::IValue copyOf(const c10::IValue& value);

/// Empty where equal (bitwise for tensors), else what differs.
std::string difference(const c10::IValue& expected, const c10::IValue& found);

}  // namespace pcg::test
