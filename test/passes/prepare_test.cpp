#include "passes/prepare.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace pcg {
namespace {

TEST(Prepare, InlinesCallsAtEveryDepthWithAndWithoutTorchsOptimizer) {
  for (const bool optimize : {true, false}) {
    const torch::jit::GraphOptimizerEnabledGuard executor(optimize);
    torch::jit::Module module("Model");
    module.define(R"(
def innermost(self, x):
    return torch.relu(x)
def inner(self, x):
    return self.innermost(x) + 1.0
def outer(self, x):
    if x.size(0) > 2:
        x = self.inner(x)
    return x
def forward(self, x):
    return self.outer(x) * 2.0
)");
    const auto graph = prepare(module.get_method("forward").graph());
    EXPECT_EQ(graph->toString().find("prim::CallMethod"), std::string::npos)
        << *graph;
    EXPECT_NE(graph->toString().find("aten::relu"), std::string::npos)
        << *graph;
  }
}

}  // namespace
}  // namespace pcg
