// consumer MODEL.pt: partitions a model that takes one [8, 512] tensor, and
// compares it with the original on inputs it has not seen before.
#include <pcg/partition.h>
#include <torch/script.h>

#include <exception>
#include <iostream>
#include <string>

namespace {

int run(const std::string& path) {
  torch::jit::Module original = torch::jit::load(path);

  pcg::PartitionOptions options;
  options.backend = pcg::Backend::kHost;  // CPU tensors, so no CUDA graphs
  pcg::PartitionedModule partitioned = pcg::partition(original, options);
  std::cout << partitioned.report.text() << '\n';
  if (partitioned.report.segments.empty()) {
    std::cerr << "no segment was found\n";
    return 1;
  }

  torch::NoGradGuard no_grad;
  for (int call = 0; call < 8; ++call) {
    // Negative sums leave the gates closed, so both branches are taken.
    torch::Tensor x = torch::randn({8, 512}) - (call % 2) * 20;
    torch::Tensor expected = original.forward({x.clone()}).toTensor();
    torch::Tensor actual = partitioned.module.forward({x.clone()}).toTensor();
    if (!torch::equal(expected, actual)) {
      std::cerr << "call " << call << " differs by "
                << (expected - actual).abs().max().item<float>() << '\n';
      return 1;
    }
  }
  std::cout << "8 calls agree\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer MODEL.pt\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
