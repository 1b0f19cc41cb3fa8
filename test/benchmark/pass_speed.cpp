#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "test/benchmark/pass_timer.h"
#include "test/benchmark/synthetic_models.h"

namespace {

// One run each: the passes do the same work every time, and the larger graphs
// take seconds. The time reported is that of the passes alone.
void runPipeline(benchmark::State& state,
                 const pcg::test::SyntheticShape& shape) {
  for (auto _ : state) {
    const torch::jit::Module module = shape.make(state.range(0));
    pcg::test::resetPeakMemory();
    const pcg::test::PipelineTimes times = pcg::test::timePipeline(module);
    state.SetIterationTime(times.total);
    for (const auto& [pass, seconds] : times.passes) {
      state.counters[pass] = benchmark::Counter(seconds);
    }
    state.counters["nodes"] =
        benchmark::Counter(static_cast<double>(times.nodes));
    state.counters["segments"] =
        benchmark::Counter(static_cast<double>(times.segments));
    state.counters["peak"] = benchmark::Counter(
        static_cast<double>(pcg::test::peakMemory()),
        benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  for (const auto& shape : pcg::test::syntheticShapes()) {
    benchmark::RegisterBenchmark(shape.name.c_str(), runPipeline, shape)
        ->Arg(1000)
        ->Arg(10000)
        ->Arg(100000)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kSecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
