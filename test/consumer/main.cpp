// consumer MODEL.pt: partitions a model that takes one [8, 512] tensor, and
// compares it with the original on inputs it has not seen before; then captures
// hand-written code, as the README does.
#include <pcg/partition.h>
#include <pcg/sequence.h>
#include <torch/script.h>

#include <exception>
#include <iostream>
#include <optional>
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

void scale(torch::Tensor x) {
  if (x.sum().item<float>() > 0)
    x.clamp_(-10, 10);
}

int runHandWritten() {
  // Emulated on CPU tensors; without arguments it captures CUDA graphs.
  pcg::CUDAGraphSequence sequence(std::nullopt, pcg::Backend::kHost);
  torch::Tensor src = torch::zeros({4});
  torch::Tensor dst = torch::zeros({4});

  pcg::PiecewiseGraph capture(sequence);
  dst.copy_(src * 2);
  pcg::no_graph(scale, dst);
  dst.add_(1);
  capture.finish();

  src.fill_(5);
  sequence.replay();
  std::cout << sequence.report().text();
  if (dst[0].item<float>() == 11)
    return 0;
  std::cerr << "expected 11, found " << dst[0].item<float>() << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer MODEL.pt\n";
    return 2;
  }
  try {
    return run(argv[1]) + runHandWritten();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
