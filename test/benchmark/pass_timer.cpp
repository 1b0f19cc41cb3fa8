#include "test/benchmark/pass_timer.h"

#include <pcg/options.h>
#include <pcg/report.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <ctime>
#include <fstream>
#include <memory>

#include "passes/annotate.h"
#include "passes/classify.h"
#include "passes/lower.h"
#include "passes/make_capturable.h"
#include "passes/outline.h"
#include "passes/plan.h"
#include "passes/prepare.h"
#include "passes/provenance.h"
#include "passes/verify.h"

namespace pcg::test {
namespace {

double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

void classifyAll(const torch::jit::Block& block,
                 const PartitionOptions& options) {
  for (const torch::jit::Node* node : block.nodes()) {
    classifyOperator(*node, options);
    for (const torch::jit::Block* inner : node->blocks()) {
      classifyAll(*inner, options);
    }
  }
}

}  // namespace

PipelineTimes timePipeline(const torch::jit::Module& module) {
  const PartitionOptions options;
  PipelineTimes times;
  const auto measure = [&](const char* pass, const auto& run) {
    const double start = cpuSeconds();
    run();
    times.passes.emplace_back(pass, cpuSeconds() - start);
    times.total += times.passes.back().second;
  };

  std::shared_ptr<torch::jit::Graph> graph =
      torch::jit::toGraphFunction(module.get_method("forward").function())
          .graph();
  measure("prepare", [&] { graph = prepare(graph); });
  times.nodes = countNodes(*graph->block());
  measure("annotate", [&] {
    markMutableState({graph.get()});
    annotate(*graph, options, &module);
  });
  measure("make-capturable", [&] { makeCapturable(*graph); });
  measure("classify", [&] { classifyAll(*graph->block(), options); });
  Plan cut;
  measure("plan", [&] {
    cut = plan(*graph, options);
    PartitionReport report;
    addToReport(cut, "forward", report);
  });
  times.segments = static_cast<std::int64_t>(cut.segments.size());
  std::shared_ptr<torch::jit::Graph> original;
  measure("copy", [&] { original = graph->copy(); });
  measure("outline", [&] { outline(*graph, cut); });
  measure("verify", [&] {
    verify(*graph);
    verifyOrder(*original, *graph);
  });
  measure("lower", [&] { lower(module, {{"forward", graph}}, options); });
  return times;
}

void resetPeakMemory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

std::int64_t peakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes)
      return kilobytes * 1024;
  }
  return 0;
}

}  // namespace pcg::test
