#include "passes/reorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pcg {
namespace {

using testing::HasSubstr;
using torch::jit::Graph;
using torch::jit::Node;

std::shared_ptr<Graph> parse(const std::string& body) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(
      "graph(%x : Tensor, %y : Tensor, %list : Tensor[]):\n"
      "  %one : int = prim::Constant[value=1]()\n"
      "  %none : NoneType = prim::Constant()\n"
      "  %p : float = prim::Constant[value=0.5]()\n"
      "  %false : bool = prim::Constant[value=0]()\n"
      "  %text : str = prim::Constant[value=\"t\"]()\n" +
          body,
      graph.get());
  return graph;
}

/// The node of this kind, counted from the first.
Node* find(Graph& graph, const char* kind, int count = 0) {
  const auto symbol = c10::Symbol::fromQualString(kind);
  for (Node* node : graph.nodes()) {
    if (node->kind() == symbol && count-- == 0)
      return node;
  }
  throw std::runtime_error(std::string("no node ") + kind);
}

/// What the record says of a graph in which `node` has been moved in front of
/// `other`, or an empty string.
std::string complaint(Graph& graph, Node* node, Node* other) {
  const OrderRecord record(graph);
  node->moveBefore(other);
  try {
    record.verify(graph);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

PartitionOptions smallSegments() {
  PartitionOptions options;
  options.min_segment_size = 1;
  return options;
}

std::vector<std::string> kinds(Graph& graph) {
  std::vector<std::string> result;
  for (const Node* node : graph.nodes()) {
    if (node->kind() != torch::jit::prim::Constant)
      result.emplace_back(node->kind().toUnqualString());
  }
  return result;
}

constexpr const char* kTwoReads = R"IR(
  %a : Tensor = aten::max(%x)
  %s : Scalar = aten::item(%a)
  %h : Tensor = aten::relu(%y)
  %b : Tensor = aten::min(%h)
  %t : Scalar = aten::item(%b)
  return (%s, %t, %h)
)IR";

TEST(Reorder, IndependentReadsMoveTogether) {
  const auto graph = parse(kTwoReads);
  EXPECT_GT(reorder(*graph, smallSegments()), 0u);
  EXPECT_THAT(kinds(*graph),
              testing::ElementsAre("max", "relu", "min", "item", "item"));
}

TEST(Reorder, IsDeterministicAndDoneAfterOneRun) {
  const auto first = parse(kTwoReads);
  const auto second = parse(kTwoReads);
  reorder(*first, smallSegments());
  reorder(*second, smallSegments());
  EXPECT_EQ(first->toString(false), second->toString(false));
  EXPECT_EQ(reorder(*first, smallSegments()), 0u);
  EXPECT_EQ(first->toString(false), second->toString(false));
}

TEST(Reorder, OrderIsKeptWhereNoSegmentIsSaved) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::max(%x)
  %s : Scalar = aten::item(%a)
  %b : Tensor = aten::mul(%y, %s)
  %c : Tensor = aten::max(%b)
  %t : Scalar = aten::item(%c)
  return (%t)
)IR");
  const std::string before = graph->toString(false);
  EXPECT_EQ(reorder(*graph, smallSegments()), 0u);
  EXPECT_EQ(graph->toString(false), before);
}

TEST(Reorder, ReadsInABlockMoveTogether) {
  const auto graph = parse(R"IR(
  %m : Tensor = aten::max(%x)
  %c : bool = aten::Bool(%m)
  %r : Scalar = prim::If(%c)
    block0():
      %a : Tensor = aten::max(%x)
      %s : Scalar = aten::item(%a)
      %b : Tensor = aten::min(%y)
      %t : Scalar = aten::item(%b)
      %u : Scalar = aten::add(%s, %t)
      -> (%u)
    block1():
      -> (%one)
  return (%r)
)IR");
  EXPECT_GT(reorder(*graph, smallSegments()), 0u);
  std::vector<std::string> inner;
  for (const Node* node : find(*graph, "prim::If")->blocks()[0]->nodes())
    inner.emplace_back(node->kind().toUnqualString());
  EXPECT_THAT(inner, testing::ElementsAre("max", "min", "item", "item", "add"));
}

// ---- one rule each ----------------------------------------------------------

TEST(OrderRecord, AcceptsAnExchangeOfIndependentNodes) {
  const auto graph = parse(kTwoReads);
  EXPECT_EQ(
      complaint(*graph, find(*graph, "aten::relu"), find(*graph, "aten::item")),
      "");
}

TEST(OrderRecord, DataDependence) {
  const auto graph = parse(kTwoReads);
  EXPECT_THAT(
      complaint(*graph, find(*graph, "aten::item"), find(*graph, "aten::max")),
      HasSubstr("is not made before it"));
}

TEST(OrderRecord, DataDependenceOfABlock) {
  const auto graph = parse(R"IR(
  %m : Tensor = aten::max(%x)
  %c : bool = aten::Bool(%m)
  %a : Tensor = aten::relu(%y)
  %r : Tensor = prim::If(%c)
    block0():
      -> (%a)
    block1():
      -> (%x)
  return (%r)
)IR");
  EXPECT_THAT(
      complaint(*graph, find(*graph, "prim::If"), find(*graph, "aten::relu")),
      HasSubstr("is not made before it"));
}

TEST(OrderRecord, ReadBeforeWrite) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::max(%x)
  %s : Scalar = aten::item(%a)
  %z : Tensor = aten::zero_(%a)
  return (%s)
)IR");
  EXPECT_THAT(complaint(*graph, find(*graph, "aten::zero_"),
                        find(*graph, "aten::item")),
              HasSubstr("touches memory that is written"));
}

TEST(OrderRecord, WriteThroughAView) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::relu(%x)
  %v : Tensor = aten::select(%a, %one, %one)
  %l : Tensor[] = prim::ListConstruct(%a)
  %z : Tensor = aten::zero_(%v)
  return (%l)
)IR");
  EXPECT_THAT(complaint(*graph, find(*graph, "aten::zero_"),
                        find(*graph, "prim::ListConstruct")),
              HasSubstr("touches memory that is written"));
}

// Dropout declares a fresh result and returns its input outside training.
TEST(OrderRecord, WriteThroughAnAliasThatTheSchemaDenies) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::max(%x)
  %d : Tensor = aten::dropout(%a, %p, %false)
  %s : Scalar = aten::item(%a)
  %z : Tensor = aten::zero_(%d)
  return (%s)
)IR");
  EXPECT_THAT(complaint(*graph, find(*graph, "aten::zero_"),
                        find(*graph, "aten::item")),
              HasSubstr("touches memory that is written"));
}

TEST(OrderRecord, WriteInABlock) {
  const auto graph = parse(R"IR(
  %m : Tensor = aten::max(%x)
  %c : bool = aten::Bool(%m)
  %a : Tensor = aten::max(%y)
  %s : Scalar = aten::item(%a)
  %r : Tensor = prim::If(%c)
    block0():
      %z : Tensor = aten::zero_(%a)
      -> (%z)
    block1():
      -> (%x)
  return (%s)
)IR");
  EXPECT_THAT(
      complaint(*graph, find(*graph, "prim::If"), find(*graph, "aten::item")),
      HasSubstr("touches memory that is written"));
}

// Alias analysis exchanges them: it does not order random draws.
TEST(OrderRecord, RandomDraws) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)
  %b : Tensor = aten::rand_like(%y, %none, %none, %none, %none, %none)
  return (%a, %b)
)IR");
  EXPECT_THAT(complaint(*graph, find(*graph, "aten::rand_like", 1),
                        find(*graph, "aten::rand_like", 0)),
              HasSubstr("draws random numbers"));
}

TEST(OrderRecord, RandomDrawAndException) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::rand_like(%y, %none, %none, %none, %none, %none)
  return (%a, %b)
)IR");
  EXPECT_THAT(complaint(*graph, find(*graph, "aten::rand_like"),
                        find(*graph, "aten::relu")),
              HasSubstr("may raise or has an effect"));
}

TEST(OrderRecord, TwoNodesThatMayRaise) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%y)
  return (%a, %b)
)IR");
  EXPECT_THAT(
      complaint(*graph, find(*graph, "aten::tanh"), find(*graph, "aten::relu")),
      HasSubstr("may raise or has an effect"));
}

TEST(OrderRecord, WriteThatOthersSeeAndException) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::arange(%one, %none, %none, %none, %none)
  %z : Tensor = aten::zero_(%x)
  return (%a)
)IR");
  EXPECT_THAT(complaint(*graph, find(*graph, "aten::zero_"),
                        find(*graph, "aten::arange")),
              HasSubstr("may raise or has an effect"));
}

TEST(OrderRecord, ReadOfATensorWithManyElementsMayRaise) {
  const auto graph = parse(R"IR(
  %a : Tensor = aten::relu(%x)
  %s : Scalar = aten::item(%a)
  %b : Tensor = aten::tanh(%y)
  return (%s, %b)
)IR");
  EXPECT_THAT(
      complaint(*graph, find(*graph, "aten::tanh"), find(*graph, "aten::item")),
      HasSubstr("may raise or has an effect"));
}

// A node's own side effects do not include those of its blocks in torch.
TEST(OrderRecord, SideEffectInABlock) {
  const auto graph = parse(R"IR(
  %m : Tensor = aten::max(%x)
  %c : bool = aten::Bool(%m)
  %a : Tensor = aten::max(%y)
  %s : Scalar = aten::item(%a)
  prim::If(%c)
    block0():
      prim::Print(%text)
      -> ()
    block1():
      -> ()
  return (%s)
)IR");
  ASSERT_FALSE(find(*graph, "prim::If")->hasSideEffects());
  EXPECT_THAT(
      complaint(*graph, find(*graph, "prim::If"), find(*graph, "aten::item")),
      HasSubstr("a node that has a side effect"));
}

TEST(OrderRecord, ExceptionInABlock) {
  const auto graph = parse(R"IR(
  %m : Tensor = aten::max(%x)
  %c : bool = aten::Bool(%m)
  %a : Tensor = aten::max(%y)
  %s : Scalar = aten::item(%a)
  prim::If(%c)
    block0():
      prim::RaiseException(%text, %none)
      -> ()
    block1():
      -> ()
  return (%s)
)IR");
  EXPECT_THAT(
      complaint(*graph, find(*graph, "prim::If"), find(*graph, "aten::item")),
      HasSubstr("a node that has a side effect"));
}

TEST(OrderRecord, LostNode) {
  const auto graph = parse(kTwoReads);
  const OrderRecord record(*graph);
  Node* item = find(*graph, "aten::item", 1);
  graph->eraseOutput(1);
  item->destroy();
  EXPECT_THROW(record.verify(*graph), std::logic_error);
}

}  // namespace
}  // namespace pcg
