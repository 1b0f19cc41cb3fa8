#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <memory>
#include <string>

#include "passes/operators.h"

// What torch 2.11 does that pcg works around. Where one of these fails, torch
// has changed, and the workaround named beside it may go or has to be thought
// over.

namespace pcg {
namespace {

using torch::jit::AliasDb;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

std::shared_ptr<Graph> parse(const std::string& text) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

Node* find(Graph& graph, const char* kind, int count = 0) {
  const auto symbol = c10::Symbol::fromQualString(kind);
  for (Node* node : graph.nodes()) {
    if (node->kind() == symbol && count-- == 0)
      return node;
  }
  ADD_FAILURE() << "no node " << kind;
  return graph.return_node();
}

std::size_t countOf(Graph& graph, c10::Symbol kind) {
  std::size_t count = 0;
  for (const Node* node : graph.nodes())
    count += node->kind() == kind ? 1 : 0;
  return count;
}

// Why pcg::segment is a registered operator.
TEST(TorchTraps, AliasAnalysisRefusesAKindWithoutOperator) {
  const auto graph = parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = nobody::knows(%x)
  return (%y))IR");
  EXPECT_ANY_THROW(AliasDb{graph});
}

// Why it is registered as conservative: everything stays where it is.
TEST(TorchTraps, AConservativeSegmentIsKeptByTorchsPasses) {
  auto graph = parse(R"IR(
graph(%x : Tensor):
  return (%x))IR");
  const auto body = parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = aten::relu_(%x)
  return (%y))IR");
  for (int i = 0; i < 2; ++i) {
    Node* segment = graph->insertNode(
        graph->create(segmentKind(), {graph->inputs()[0]}, 1));
    segment->g_(torch::jit::attr::Subgraph, body);
  }
  ASSERT_TRUE(find(*graph, "pcg::segment")->hasSideEffects());
  torch::jit::ConstantPropagation(graph);
  torch::jit::EliminateCommonSubexpression(graph);
  torch::jit::EliminateDeadCode(graph);
  EXPECT_EQ(countOf(*graph, segmentKind()), 2u);
}

// Why segments have a kind of their own instead of one that alias analysis
// looks into.
TEST(TorchTraps, DeadCodeEliminationDropsAGroupThatOnlyWrites) {
  auto graph = parse(R"IR(
graph(%x : Tensor):
  return (%x))IR");
  const auto body = parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = aten::relu_(%x)
  return (%y))IR");
  Node* group = graph->insertNode(graph->create(
      torch::jit::prim::FunctionalGraph, {graph->inputs()[0]}, 1));
  group->g_(torch::jit::attr::Subgraph, body);
  torch::jit::EliminateDeadCode(graph);
  EXPECT_EQ(countOf(*graph, torch::jit::prim::FunctionalGraph), 0u);
}

// Why hasSideEffectsDeep exists.
TEST(TorchTraps, SideEffectsOfABlockAreNotTheNodes) {
  const auto graph = parse(R"IR(
graph(%c : bool, %text : str):
  prim::If(%c)
    block0():
      prim::Print(%text)
      -> ()
    block1():
      -> ()
  return (%c))IR");
  EXPECT_FALSE(find(*graph, "prim::If")->hasSideEffects());
}

TEST(TorchTraps, AssigningAnAttributeIsNoSideEffect) {
  Graph graph;
  Value* object = graph.addInput();
  Value* value = graph.addInput();
  Node* assign = graph.insertNode(
      graph.create(torch::jit::prim::SetAttr, {object, value}, 0));
  EXPECT_FALSE(assign->hasSideEffects());
}

// Why `reorder` has rules of its own and does not ask alias analysis to move.
TEST(TorchTraps, AliasAnalysisMovesADrawAboveADraw) {
  const auto graph = parse(R"IR(
graph(%x : Tensor):
  %n : NoneType = prim::Constant()
  %a : Tensor = aten::rand_like(%x, %n, %n, %n, %n, %n)
  %b : Tensor = aten::rand_like(%x, %n, %n, %n, %n, %n)
  return (%a, %b))IR");
  AliasDb aliases(graph);
  EXPECT_TRUE(aliases.moveBeforeTopologicallyValid(
      find(*graph, "aten::rand_like", 1), find(*graph, "aten::rand_like", 0)));
}

TEST(TorchTraps, AliasAnalysisMovesANodeAboveABranchThatRaises) {
  const auto graph = parse(R"IR(
graph(%x : Tensor, %c : bool, %text : str):
  %n : NoneType = prim::Constant()
  prim::If(%c)
    block0():
      prim::RaiseException(%text, %n)
      -> ()
    block1():
      -> ()
  %y : Tensor = aten::neg(%x)
  return (%y))IR");
  AliasDb aliases(graph);
  EXPECT_TRUE(aliases.moveBeforeTopologicallyValid(find(*graph, "aten::neg"),
                                                   find(*graph, "prim::If")));
}

// Why provenance tells lists from their elements.
TEST(TorchTraps, AWriteToAnInputMarksWhateverWasInAList) {
  const auto graph = parse(R"IR(
graph(%x : Tensor, %y : Tensor, %l : Tensor[]):
  %a : Tensor = aten::relu(%y)
  %m : Tensor[] = aten::append(%l, %a)
  %z : Tensor = aten::zero_(%x)
  return (%l))IR");
  const AliasDb aliases(graph);
  EXPECT_TRUE(aliases.hasWriters(find(*graph, "aten::relu")->output()));
}

// Why capture safety has a table beside the tags.
TEST(TorchTraps, NoOperatorOfTorchIsTaggedUnsafeForCudaGraphs) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0)
      continue;
    const auto op = dispatcher.findOp(name);
    EXPECT_FALSE(op && op->hasTag(at::Tag::cudagraph_unsafe)) << name.name;
  }
}

TEST(TorchTraps, ConversionsToHostScalarsCarryNoTag) {
  for (const char* name : {"aten::Int", "aten::Float", "aten::Bool"}) {
    const auto operators =
        torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name));
    ASSERT_FALSE(operators.empty());
    for (const auto& op : operators) {
      for (const at::Tag tag : op->getTags())
        EXPECT_NE(tag, at::Tag::data_dependent_output) << name;
    }
  }
}

// Why pcg-opt has a reader of its own.
TEST(TorchTraps, TheIrParserIgnoresWhatFollowsTheReturn) {
  EXPECT_NO_THROW(parse(R"IR(
graph(%x : Tensor):
  return (%x)
and then anything at all)IR"));
}

TEST(TorchTraps, TheIrParserAcceptsANameTwice) {
  EXPECT_NO_THROW(parse(R"IR(
graph(%x : Tensor):
  %a : Tensor = aten::relu(%x)
  %a : Tensor = aten::tanh(%x)
  return (%a))IR"));
}

// Why `reorder` looks at the sizes.
TEST(TorchTraps, ATensorTypeOfOpenRankHasOneElement) {
  EXPECT_EQ(c10::TensorType::get()->numel(), std::size_t{1});
}

}  // namespace
}  // namespace pcg
