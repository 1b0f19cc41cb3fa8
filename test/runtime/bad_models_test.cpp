#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <regex>
#include <string>

#include "test/support/module_pair.h"

// Models that pcg refuses: the error names node and source line, and the module
// stays as it was.

namespace pcg::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;

/// A module whose `forward(self, x)` holds the node that `add` makes.
Module handMade(const std::function<Value*(Graph&)>& add) {
  Module module("HandMade");
  auto graph = std::make_shared<Graph>();
  graph->addInput("self")->setType(module.type());
  graph->addInput("x");
  Value* result = add(*graph);
  graph->registerOutput(result);
  const auto source = std::make_shared<torch::jit::Source>(
      "first line\nthe line in question\n", "model.py", 1);
  for (Node* node : graph->nodes())
    node->setSourceRange(torch::jit::SourceRange(source, 11, 15));
  auto* method = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), graph);
  method->setSchema(
      c10::FunctionSchema("forward", "",
                          {c10::Argument("self", module.type()),
                           c10::Argument("x", c10::TensorType::get())},
                          {c10::Argument("", result->type())}));
  module.type()->addMethod(method);
  return module;
}

Value* call(Graph& graph, const char* method) {
  Node* node = graph.insertNode(graph.create(
      torch::jit::prim::CallMethod, {graph.inputs()[0], graph.inputs()[1]}));
  node->s_(torch::jit::attr::name, method);
  return node->output();
}

std::string textOf(const Module& module) {
  std::string text = module.type()->annotation_str();
  for (const auto& method : module.get_methods()) {
    text += method.name() + method.graph()->toString(false);
  }
  for (const auto& attribute : module.named_attributes(/*recurse=*/false))
    text += attribute.name;
  return text;
}

std::string errorOf(const Module& module) {
  try {
    partition(module, smallSegments());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

void expectRefusal(const Module& module,
                   const testing::Matcher<std::string>& message) {
  const std::string before = textOf(module);
  EXPECT_THAT(errorOf(module), message);
  EXPECT_EQ(textOf(module), before);
}

TEST(BadModel, MethodThatCallsItself) {
  expectRefusal(handMade([](Graph& graph) { return call(graph, "forward"); }),
                AllOf(HasSubstr("method 'forward'"), HasSubstr("calls itself"),
                      HasSubstr("prim::CallMethod at model.py:2")));
}

TEST(BadModel, MethodsThatCallEachOther) {
  Module module = handMade([](Graph& graph) { return call(graph, "other"); });
  auto graph = std::make_shared<Graph>();
  graph->addInput("self")->setType(module.type());
  graph->addInput("x");
  graph->registerOutput(call(*graph, "forward"));
  auto* other = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "other"), graph);
  other->setSchema(module.get_method("forward").function().getSchema());
  module.type()->addMethod(other);
  expectRefusal(module,
                HasSubstr("cannot inline a function that calls itself"));
}

TEST(BadModel, MethodThatItsClassDoesNotHave) {
  expectRefusal(handMade([](Graph& graph) { return call(graph, "missing"); }),
                AllOf(HasSubstr("prim::CallMethod at model.py:2"),
                      HasSubstr("has no method 'missing'")));
}

TEST(BadModel, OperatorThatNoLibraryRegistered) {
  expectRefusal(handMade([](Graph& graph) {
                  return graph
                      .insertNode(graph.create(
                          c10::Symbol::fromQualString("nobody::knows"),
                          {graph.inputs()[1]}))
                      ->output();
                }),
                AllOf(HasSubstr("no operator is registered for nobody::knows"),
                      HasSubstr("model.py:2"), HasSubstr("load the library")));
}

TEST(BadModel, OperatorThatTakesOtherArguments) {
  expectRefusal(
      handMade([](Graph& graph) {
        return graph
            .insertNode(graph.create(
                torch::jit::aten::relu,
                {graph.inputs()[1], graph.inputs()[1], graph.inputs()[1]}))
            ->output();
      }),
      AllOf(HasSubstr("no operator is registered for aten::relu"),
            HasSubstr("model.py:2")));
}

TEST(BadModel, SegmentThatWasNotLowered) {
  expectRefusal(
      handMade([](Graph& graph) {
        Node* segment = graph.insertNode(graph.create(
            c10::Symbol::fromQualString("pcg::segment"), {graph.inputs()[1]}));
        auto body = std::make_shared<Graph>();
        body->registerOutput(body->addInput());
        segment->g_(torch::jit::attr::Subgraph, body);
        return segment->output();
      }),
      AllOf(HasSubstr("was not outlined before"),
            HasSubstr("pcg::segment at model.py:2")));
}

TEST(BadModel, SubmoduleThatHoldsTheModule) {
  Module module = makeModule("def forward(self, x):\n    return x + 1\n");
  module.type()->addAttribute("child", module.type());
  module._ivalue()->setSlot(0, module._ivalue());
  expectRefusal(module, AllOf(HasSubstr("holds itself"), HasSubstr("'child'")));
  module._ivalue()->setSlot(0, c10::IValue());  // Or it never goes away.
}

TEST(BadModel, ModuleThatWasPartitionedBefore) {
  const Module once =
      partition(makeModule("def forward(self, x):\n    return x + 1\n"),
                smallSegments())
          .module;
  expectRefusal(once, HasSubstr("was not partitioned before"));
}

TEST(Report, AssignmentThatStaysEagerNamesItsLine) {
  Module module = makeModule(R"(
def forward(self, x):
    self.state = x + self.state
    return torch.relu(x)
)",
                             {{"state", at::zeros({2})}});
  PartitionOptions options = smallSegments();
  options.no_graph_ops = {"prim::SetAttr"};
  const PartitionReport report = partition(module, options).report;
  ASSERT_EQ(report.breaks.size(), 1u) << report.text();
  EXPECT_EQ(report.breaks[0].node, "prim::SetAttr");
  EXPECT_THAT(report.breaks[0].source, ContainsRegex(":[0-9]+$"));
}

// The address of a class's compilation unit differs from run to run.
TEST(BadModel, TypesAreNamedWithoutAddresses) {
  const Module module = makeModule("def forward(self, x):\n    return x + 1\n");
  ASSERT_THAT(module.type()->repr_str(), HasSubstr("0x"));
  PartitionOptions options;
  options.methods = {"missing"};
  try {
    partition(module, options);
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("found none in __torch__.Model"),
                                    Not(HasSubstr("0x"))));
  }
}

// ---- gradient islands -------------------------------------------------------

std::vector<std::string> segmentTexts(const PartitionReport& report) {
  std::vector<std::string> texts;
  for (const SegmentReport& segment : report.segments)
    texts.push_back(segment.name);
  return texts;
}

TEST(GradientIsland, IsCapturedWhole) {
  const ModulePair pair(kGradientIsland);
  EXPECT_THAT(segmentTexts(pair.report),
              testing::ElementsAre("forward.segment_0"));
  EXPECT_TRUE(pair.report.breaks.empty()) << pair.report.text();
}

TEST(GradientIsland, WithAHostReadInsideGivesTheSameForces) {
  ModulePair pair(R"(
def forward(self, pos):
    p = pos.detach().requires_grad_(True)
    r = (p * p).sum(-1)
    scale = float(r.detach().max().item())
    e = torch.exp(-r * scale).sum()
    g = torch.autograd.grad([e], [p])[0]
    assert g is not None
    return e.detach(), -g
)");
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({6, 3});
    EXPECT_EQ("", difference(pair.original.forward({x}),
                             pair.partitioned.forward({x})));
  }
}

}  // namespace
}  // namespace pcg::test
