#include "runtime/observer.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/library.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device_tensors.h"
#include "runtime/program.h"

namespace pcg::test {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using Values = std::vector<IValue>;
// Kind of the node and identifier of the reason.
using Found = std::vector<std::pair<std::string, std::string>>;
namespace aten = torch::jit::aten;

// Two operators that read a scalar: one made of others, one with a kernel for
// the CPU.
TORCH_LIBRARY(pcg_observer_test, library) {
  library.def("composite(Tensor x) -> Tensor",
              [](const at::Tensor& x) { return at::relu(x) * x.max().item(); });
  library.def("kernel(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(pcg_observer_test, CPU, library) {
  library.impl("kernel", [](const at::Tensor& x) {
    return at::relu(x) * x.max().item();
  });
}

Found findingsOf(const WarmUpObserver& observer) {
  Found found;
  for (const Culprit& culprit : observer.culprits()) {
    EXPECT_EQ(culprit.why.kind, CaptureClass::kUnsafe);
    EXPECT_FALSE(culprit.why.sentence.empty());
    found.emplace_back(culprit.node->kind().toQualString(),
                       toString(culprit.why.reason));
  }
  return found;
}

// Runs a graph under an observer whose inputs from outside are the tensors
// among `inputs`.
Found observe(const Program& program, const Values& inputs,
              c10::Device device = c10::kCPU,
              const WarmUpObserver::LatentBreaks& latent = {}) {
  std::vector<at::Tensor> tensors;
  for (const IValue& input : inputs) {
    forEachTensor(input,
                  [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  WarmUpObserver observer(device, tensors, latent);
  program.run(inputs, &observer);
  EXPECT_EQ(observer.current(), nullptr);
  return findingsOf(observer);
}

Program parse(const std::string& text) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(text, graph.get());
  return Program(std::move(graph));
}

// A function of the given arguments, written in TorchScript.
Found observeSource(const std::string& source, Values inputs,
                    c10::Device device = c10::kCPU) {
  torch::jit::Module module("M");
  module.define(source);
  auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  inputs.insert(inputs.begin(), module._ivalue());
  return observe(Program(std::move(graph)), inputs, device);
}

// An expression over tensors x and y.
Found observeExpression(const std::string& expression, const at::Tensor& x,
                        const at::Tensor& y = {},
                        c10::Device device = c10::kCPU) {
  return observeSource(
      "def forward(self, x, y):\n    return " + expression + "\n",
      {x, y.defined() ? y : x}, device);
}

at::Tensor numbers() {
  return at::arange(6.0).view({2, 3}) - 2;
}

TEST(WarmUpObserver, SafeNodesAreNoCulprits) {
  EXPECT_EQ(
      observeExpression("torch.tanh(x * 2.0 + y).sum(0).view(3, 1)", numbers()),
      Found());
}

TEST(WarmUpObserver, HostReads) {
  const Found item{{"aten::item", "host-read"}};
  EXPECT_EQ(observeExpression("x * x.sum().item()", numbers()), item);
  EXPECT_EQ(observeExpression("x * float(x.sum())", numbers()),
            (Found{{"aten::Float", "host-read"}}));
  EXPECT_EQ(observeExpression("x * int(x.sum())", numbers()),
            (Found{{"aten::Int", "host-read"}}));
  EXPECT_EQ(observeExpression("bool(x.sum() > 0)", numbers()),
            (Found{{"aten::Bool", "host-read"}}));
  EXPECT_EQ(observeExpression("torch.equal(x, x + 1)", numbers()),
            (Found{{"aten::equal", "host-read"}}));
  EXPECT_EQ(observeExpression("torch.allclose(x, x + 1)", numbers()),
            (Found{{"aten::allclose", "host-read"}}));
}

TEST(WarmUpObserver, ReadingAWrappedHostValueIsNone) {
  EXPECT_EQ(observe(parse(R"IR(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %n : int = aten::size(%x, %zero)
  %t : Tensor = prim::NumToTensor(%n)
  %m : int = aten::size(%x, %one)
  %u : Tensor = prim::NumToTensor(%m)
  %p : Tensor = aten::mul(%t, %u)
  %k : int = aten::Int(%p)
  %shape : int[] = prim::ListConstruct(%k)
  %y : Tensor = aten::reshape(%x, %shape)
  return (%y))IR"),
                    {numbers()}),
            Found());
}

TEST(WarmUpObserver, ReadingWhatDataWasMixedIntoIsOne) {
  EXPECT_EQ(observe(parse(R"IR(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %n : int = aten::size(%x, %zero)
  %t : Tensor = prim::NumToTensor(%n)
  %none : NoneType = prim::Constant()
  %s : Tensor = aten::sum(%x, %none)
  %p : Tensor = aten::mul(%t, %s)
  %k : int = aten::Int(%p)
  return (%k))IR"),
                    {numbers()}),
            (Found{{"aten::Int", "host-read"}}));
}

TEST(WarmUpObserver, SizesThatDependOnData) {
  const auto expect = [](const std::string& expression,
                         const std::string& kind) {
    EXPECT_EQ(observeExpression(expression, numbers()),
              (Found{{kind, "dynamic-shape"}}))
        << expression;
  };
  expect("torch.nonzero(x)", "aten::nonzero");
  expect("torch.argwhere(x)", "aten::argwhere");
  expect("torch.masked_select(x, x > 0)", "aten::masked_select");
  expect("torch.unique_consecutive(x)[0]", "aten::unique_consecutive");
  EXPECT_EQ(observeExpression("torch.repeat_interleave(x)",
                              at::tensor({1, 2}, at::kLong)),
            (Found{{"aten::repeat_interleave", "dynamic-shape"}}));
}

TEST(WarmUpObserver, IndexingByMasksButNotByNumbers) {
  const Found found = observeExpression("x[x > 0]", numbers());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, "aten::index");
  EXPECT_EQ(observeExpression("x[y]", numbers(), at::tensor({1, 0})), Found());
}

TEST(WarmUpObserver, StoresThroughMasks) {
  EXPECT_EQ(observeSource(R"(
def forward(self, x):
    y = x.clone()
    y[x > 0] = 1.0
    return y
)",
                          {numbers()}),
            Found());
  const Found found = observeSource(R"(
def forward(self, x, values):
    y = x.clone()
    y[x > 0] = values
    return y
)",
                                    {numbers(), at::ones({3})});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, "aten::index_put_");
}

TEST(WarmUpObserver, ArgumentsDecideConditionalOperators) {
  const at::Tensor classes = at::tensor({0, 2, 1}, at::kLong);
  EXPECT_EQ(observeExpression("torch.one_hot(x, 3)", classes), Found());
  EXPECT_EQ(observeExpression("torch.one_hot(x)", classes).size(), 1U);
  EXPECT_EQ(
      observeExpression("torch.repeat_interleave(x, y, 0)", classes, classes)
          .size(),
      1U);
  EXPECT_EQ(observeExpression("torch.repeat_interleave(x, y, 0, output_size=3)",
                              classes, classes),
            Found());
}

TEST(WarmUpObserver, ErrorChecks) {
  const at::Tensor x = at::eye(2) * 2;
  EXPECT_EQ(observeExpression("torch.linalg_inv(x)", x),
            (Found{{"aten::linalg_inv", "error-check"}}));
  EXPECT_EQ(observeExpression("torch.linalg_inv_ex(x)[0]", x), Found());
}

TEST(WarmUpObserver, ScalarsThatOnlyCpuKernelsReadAreNone) {
  EXPECT_EQ(
      observeExpression("torch.masked_fill(x, x > 0, x.sum())", numbers()),
      Found());
  EXPECT_EQ(observe(parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = pcg_observer_test::kernel(%x)
  return (%y))IR"),
                    {numbers()}),
            Found());
}

TEST(WarmUpObserver, UnknownCompositeOperatorsAreJudgedByTheirParts) {
  EXPECT_EQ(observe(parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = pcg_observer_test::composite(%x)
  return (%y))IR"),
                    {numbers()}),
            (Found{{"pcg_observer_test::composite", "host-read"}}));
}

TEST(WarmUpObserver, NetworksOfCompositeOperatorsAreSafe) {
  EXPECT_EQ(
      observeExpression("torch.linear(torch.layer_norm(x, [3]), y).softmax(-1)",
                        numbers(), at::ones({3, 3})),
      Found());
}

TEST(WarmUpObserver, NodeInABlockIsReportedItselfAndOnce) {
  EXPECT_EQ(
      observeSource(R"(
def forward(self, x, n: int):
    y = x
    for i in range(n):
        if i > 0:
            y = y * x.sum().item()
        else:
            y = y[y > -10]
    return y
)",
                    {at::ones({3}), std::int64_t{3}}),
      (Found{{"aten::index", "dynamic-shape"}, {"aten::item", "host-read"}}));
}

TEST(WarmUpObserver, ConditionsAreReadFromTensorsByTheirOwnNode) {
  EXPECT_EQ(observeSource(R"(
def forward(self, x):
    while bool(x.sum() < 10):
        x = x + 1
    return x
)",
                          {at::ones({3})}),
            (Found{{"aten::Bool", "host-read"}, {"aten::Bool", "host-read"}}));
}

TEST(WarmUpObserver, LatentBreakCountsOnlyWhereReached) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Tensor, %flag : bool):
  %y : Tensor = prim::If(%flag)
    block0():
      %a : Tensor = aten::relu(%x)
      -> (%a)
    block1():
      -> (%x)
  return (%y))IR",
                      graph.get());
  WarmUpObserver::LatentBreaks latent;
  for (const Node* node : graph->block()->nodes()) {
    for (const auto* block : node->blocks()) {
      for (const Node* inner : block->nodes()) {
        latent[inner] = {CaptureClass::kUnsafe, Reason::kTagged, "is tagged"};
      }
    }
  }
  ASSERT_EQ(latent.size(), 1U);
  const Program program(graph);
  EXPECT_EQ(observe(program, {numbers(), true}, c10::kCPU, latent),
            (Found{{"aten::relu", "tagged"}}));
  EXPECT_EQ(observe(program, {numbers(), false}, c10::kCPU, latent), Found());
}

TEST(WarmUpObserver, KnowsTheNodeThatThrew) {
  const Program program = parse(R"IR(
graph(%x : Tensor):
  %k : int[] = prim::Constant[value=[7]]()
  %y : Tensor = aten::relu(%x)
  %z : Tensor = aten::view(%y, %k)
  return (%z))IR");
  const WarmUpObserver::LatentBreaks latent;
  WarmUpObserver observer(c10::kCPU, {}, latent);
  EXPECT_ANY_THROW(program.run({numbers()}, &observer));
  ASSERT_NE(observer.current(), nullptr);
  EXPECT_EQ(observer.current()->kind(), aten::view);
  EXPECT_TRUE(observer.culprits().empty());
}

TEST(WarmUpObserver, SeesOnlyItsNodesOnItsThread) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(
      "graph(%x : Tensor):\n"
      "  %y : Tensor = aten::relu(%x)\n"
      "  return (%y)",
      graph.get());
  const Node* node = *graph->block()->nodes().begin();
  const WarmUpObserver::LatentBreaks latent;
  const at::Tensor x = numbers();
  {
    WarmUpObserver observer(c10::kCPU, {x}, latent);
    x.sum().item();
    observer.before(*node);
    std::thread([&] { x.sum().item(); }).join();
    observer.after(*node);
    x.sum().item();
    EXPECT_TRUE(observer.culprits().empty());
    observer.before(*node);
    x.sum().item();
    observer.after(*node);
    EXPECT_EQ(observer.culprits().size(), 1U);
  }
  x.sum().item();  // Nobody listens any more.
}

// ---- other devices ----------------------------------------------------------

// Tensors without data stand for those on a GPU: what counts is where they lie.

at::Tensor onDevice(at::IntArrayRef shape) {
  return at::empty(shape, at::device(at::kMeta).dtype(at::kFloat));
}

Found observeOnDevice(const std::string& expression, const at::Tensor& x,
                      const at::Tensor& y) {
  return observeExpression(expression, x, y, c10::Device(c10::kMeta));
}

TEST(WarmUpObserver, WorkOnTheDeviceIsSafe) {
  EXPECT_EQ(observeOnDevice("torch.softmax(x * 2 + y, 0).sum()", onDevice({3}),
                            onDevice({3})),
            Found());
}

TEST(WarmUpObserver, HostScalarsAsOperandsAreSafe) {
  EXPECT_EQ(observeOnDevice("x * y + x * y.item()", onDevice({3}),
                            at::scalar_to_tensor(2.0)),
            Found());
}

TEST(WarmUpObserver, ComputingOnCpuTensorsIsNot) {
  EXPECT_EQ(observeOnDevice("torch.tanh(y)", onDevice({3}), at::ones({3})),
            (Found{{"aten::tanh", "host-computation"}}));
}

TEST(WarmUpObserver, MakingCpuTensorsIsNot) {
  EXPECT_EQ(observeOnDevice("torch.arange(4)", onDevice({3}), onDevice({3})),
            (Found{{"aten::arange", "host-computation"}}));
  EXPECT_EQ(observeOnDevice("x * torch.rand([])", onDevice({3}), onDevice({3})),
            (Found{{"aten::rand", "host-computation"}}));
  EXPECT_EQ(observeOnDevice("torch.arange(4, device=x.device) + "
                            "torch.zeros([4], device=x.device)",
                            onDevice({3}), onDevice({3})),
            Found());
}

TEST(WarmUpObserver, MovingBetweenHostAndDeviceIsNot) {
  EXPECT_EQ(observeOnDevice("y.to(x.device)", onDevice({3}), at::ones({3})),
            (Found{{"aten::to", "device-transfer"}}));
  EXPECT_EQ(observeOnDevice("x.copy_(y)", onDevice({3}), at::ones({3})),
            (Found{{"aten::copy_", "device-transfer"}}));
}

TEST(WarmUpObserver, CulpritIsKnownThoughItThrows) {
  const Program program = parse(R"IR(
graph(%x : Tensor):
  %y : Scalar = aten::item(%x)
  return (%y))IR");
  const WarmUpObserver::LatentBreaks latent;
  WarmUpObserver observer(c10::Device(c10::kMeta), {}, latent);
  EXPECT_ANY_THROW(program.run({onDevice({})}, &observer));
  EXPECT_EQ(findingsOf(observer), (Found{{"aten::item", "host-read"}}));
}

}  // namespace
}  // namespace pcg::test
