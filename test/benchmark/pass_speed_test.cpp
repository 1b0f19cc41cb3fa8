#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "test/benchmark/pass_timer.h"
#include "test/benchmark/synthetic_models.h"

namespace pcg::test {
namespace {

// Sixteen times the nodes take 16 times as long where a pass is linear and 256
// times where it is quadratic. The limit lies between, well above what is seen
// where only the large graph outgrows the processor's caches (40 times).
constexpr std::int64_t kSmall = 1000;
constexpr std::int64_t kLarge = 16 * kSmall;
constexpr double kMostGrowth = 128;

// What partitioning `kLarge` nodes may cost, five times over: slower and busier
// machines should pass.
constexpr double kMostSeconds = 5 * 3.0;

class PassSpeed : public testing::TestWithParam<SyntheticShape> {};

PipelineTimes fastest(std::int64_t nodes, int runs) {
  PipelineTimes best;
  best.total = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    PipelineTimes times = timePipeline(PassSpeed::GetParam().make(nodes));
    if (times.total < best.total)
      best = std::move(times);
  }
  return best;
}

TEST_P(PassSpeed, TimeGrowsWithTheNumberOfNodes) {
  timePipeline(GetParam().make(100));  // Operators are looked up once.
  const PipelineTimes small = fastest(kSmall, 5);
  const PipelineTimes large = fastest(kLarge, 2);
  std::ostringstream passes;
  for (std::size_t i = 0; i < large.passes.size(); ++i) {
    passes << "\n  " << large.passes[i].first << ": " << small.passes[i].second
           << " s for " << small.nodes << " nodes, " << large.passes[i].second
           << " s for " << large.nodes;
  }
  EXPECT_LT(large.total, kMostSeconds) << passes.str();
  EXPECT_LT(large.total / small.total, kMostGrowth) << passes.str();
  RecordProperty("growth", std::to_string(large.total / small.total));
}

// Passes follow blocks by recursion, torch's as well as pcg's: far deeper nests
// than anybody writes must fit the stack.
TEST(PassDepth, BlocksNestedFiveHundredDeep) {
  const PipelineTimes times = timePipeline(makeNestedModel(500));
  EXPECT_GT(times.nodes, 1500);
  EXPECT_LT(times.total, kMostSeconds);
}

INSTANTIATE_TEST_SUITE_P(
    EachShape, PassSpeed, testing::ValuesIn(syntheticShapes()),
    [](const testing::TestParamInfo<SyntheticShape>& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace pcg::test
