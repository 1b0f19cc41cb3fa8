#include "runtime/replay_check.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <memory>
#include <stdexcept>

#include "runtime/segment_definition.h"

namespace pcg {
namespace {

using c10::IValue;

std::shared_ptr<const SegmentDefinition> segment() {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(
graph(%x : Tensor, %state : Tensor):
  %one : int = prim::Constant[value=1]()
  %sum : Tensor = aten::add_(%state, %x, %one)
  %y : Tensor = aten::exp(%x)
  return (%y))",
                      graph.get());
  return defineSegment("forward.segment_0", graph, {}, {}, {}, {});
}

TEST(ReplayCheck, LeavesArgumentsAloneAndAcceptsEqualResults) {
  const auto definition = segment();
  const at::Tensor x = at::randn({3});
  const at::Tensor state = at::zeros({3});
  const std::vector<IValue> arguments{x, state};
  const ReplayCheck check(*definition, arguments);
  EXPECT_TRUE(at::equal(state, at::zeros({3})));
  state.add_(x);
  EXPECT_NO_THROW(check.compare({x.exp()}, arguments));
}

TEST(ReplayCheck, NamesTheNodeOfAResultThatDiffers) {
  const auto definition = segment();
  const at::Tensor x = at::randn({3});
  const std::vector<IValue> arguments{x, at::zeros({3})};
  const ReplayCheck check(*definition, arguments);
  arguments[1].toTensor().add_(x);
  try {
    check.compare({x.exp() + 1e-3}, arguments);
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("forward.segment_0"));
    EXPECT_THAT(error.what(), testing::HasSubstr("aten::exp"));
  }
}

TEST(ReplayCheck, SeesAWriteThatDidNotHappen) {
  const auto definition = segment();
  const at::Tensor x = at::ones({3});
  const std::vector<IValue> arguments{x, at::zeros({3})};
  const ReplayCheck check(*definition, arguments);
  EXPECT_THROW(check.compare({x.exp()}, arguments), std::runtime_error);
}

TEST(ReplayCheck, KeepsArgumentsThatShareMemorySharing) {
  const auto definition = segment();
  const at::Tensor base = at::ones({4});
  const std::vector<IValue> arguments{base.view({4}), base.view({4})};
  const ReplayCheck check(*definition, arguments);
  arguments[1].toTensor().add_(arguments[0].toTensor());
  EXPECT_NO_THROW(check.compare({(base * 1).exp()}, arguments));
  EXPECT_THROW(check.compare({at::ones({4}).exp()}, arguments),
               std::runtime_error);
}

}  // namespace
}  // namespace pcg
