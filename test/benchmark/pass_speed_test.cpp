#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "test/benchmark/pass_timer.h"
#include "test/benchmark/synthetic_models.h"

namespace pcg::test {
namespace {

// What partitioning 10,000 nodes may cost, three times over: slower machines
// should pass, a quadratic step should not.
constexpr double kMostSeconds = 3 * 2.0;

// Four times the nodes take four times as long where a pass is linear and 16
// times where it is quadratic.
constexpr std::int64_t kSmall = 2500;
constexpr std::int64_t kLarge = 4 * kSmall;
constexpr double kMostGrowth = 8;

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
  const PipelineTimes small = fastest(kSmall, 3);
  const PipelineTimes large = fastest(kLarge, 2);
  EXPECT_LT(large.total, kMostSeconds);
  EXPECT_LT(large.total / small.total, kMostGrowth);
  if (HasFailure()) {
    for (std::size_t i = 0; i < large.passes.size(); ++i) {
      ADD_FAILURE() << large.passes[i].first << ": " << small.passes[i].second
                    << " s for " << small.nodes << " nodes, "
                    << large.passes[i].second << " s for " << large.nodes;
    }
  }
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
