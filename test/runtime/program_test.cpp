#include "runtime/program.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "passes/operators.h"

namespace pcg::test {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
using Values = std::vector<IValue>;
namespace aten = torch::jit::aten;
namespace attr = torch::jit::attr;
namespace prim = torch::jit::prim;

torch::jit::Module moduleOf(const std::string& source) {
  torch::jit::Module module("M");
  module.define(source);
  return module;
}

Program programOf(const torch::jit::Module& module) {
  auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return Program(std::move(graph));
}

std::shared_ptr<Graph> parse(const std::string& text) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(text, graph.get());
  return graph;
}

Values inputsOf(const torch::jit::Module& module, const Values& inputs) {
  Values all{module._ivalue()};
  all.insert(all.end(), inputs.begin(), inputs.end());
  return all;
}

// A printed form that tells kinds of numbers, lists and tuples apart.
std::string textOf(const IValue& value) {
  std::ostringstream text;
  text << value.tagKind() << ' ' << value.type()->repr_str() << ' ' << value;
  return text.str();
}

// The interpreter and the program agree on a method of one result.
void expectAsInterpreted(const std::string& source, const Values& inputs) {
  torch::jit::Module module = moduleOf(source);
  const IValue expected = module.forward(inputs);
  const Values found = programOf(module).run(inputsOf(module, inputs));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(textOf(found[0]), textOf(expected)) << source;
}

struct Listener final : NodeListener {
  using Callback = std::function<void(const Node&)>;
  void before(const Node& node) override {
    if (on_before)
      on_before(node);
  }
  void after(const Node& node) override {
    if (on_after)
      on_after(node);
  }
  Callback on_before;
  Callback on_after;
};

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

WeakTensor weakRef(const at::Tensor& tensor) {
  return WeakTensor(tensor.getIntrusivePtr());
}

TEST(Program, RunsEachNodeByItsOwnOperation) {
  expectAsInterpreted(R"(
def forward(self, x, y):
    return torch.tanh(x * 2.0 + y).sum(0)
)",
                      {at::arange(6.0).view({2, 3}), at::ones({3})});
}

TEST(Program, ContainersKeepOrderAndTypes) {
  expectAsInterpreted(R"(
def forward(self, n: int):
    ints = [n, n + 1]
    floats = [float(n), 0.5]
    empty : List[int] = []
    nested = [[n], ints, empty]
    table = {"b": n, "a": n * 2}
    return ints, floats, nested, table, (n, ("text", None)), empty
)",
                      {std::int64_t{3}});
}

TEST(Program, ListsOfTensorsAreTensorLists) {
  torch::jit::Module module = moduleOf(R"(
def forward(self, x):
    none : List[Tensor] = []
    maybe : List[Optional[Tensor]] = [x, None]
    return [x, x + 1], none, maybe
)");
  const IValue expected = module.forward({at::ones({2})});
  const IValue found =
      programOf(module).run(inputsOf(module, {at::ones({2})})).at(0);
  const auto& elements = found.toTupleRef().elements();
  EXPECT_TRUE(elements[0].isTensorList());
  EXPECT_TRUE(elements[1].isTensorList());
  EXPECT_EQ(*elements[2].type(), *expected.toTupleRef().elements()[2].type());
}

TEST(Program, UnpacksListsTuplesAndSlices) {
  expectAsInterpreted(R"(
def forward(self, x, n: int):
    a, b = [n, n + 1]
    c, (d, e) = a, (b, "text")
    t = (a, b, c, d, e)
    low, high = torch.split(x, 2)
    return t[1:4], t[-1], low.add(c), high
)",
                      {at::arange(4.0), std::int64_t{5}});
}

TEST(Program, ListUnpackOfTheWrongLengthThrowsAsTheInterpreter) {
  const std::string source = R"(
def forward(self, x):
    a, b = torch.split(x, 1)
    return a + b
)";
  torch::jit::Module module = moduleOf(source);
  try {
    programOf(module).run(inputsOf(module, {at::ones({3})}));
    FAIL() << "expected an exception";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("Expected 2 elements in a list but found 3"),
              std::string::npos);
  }
}

TEST(Program, NamedTupleKeepsItsType) {
  auto graph = std::make_shared<Graph>();
  Value* x = graph->addInput();
  const auto type = c10::TupleType::createNamed(
      c10::QualifiedName("__torch__.Pair"),
      std::vector<std::string>{"first", "second"},
      {c10::TensorType::get(), c10::TensorType::get()});
  Node* node = graph->insertNode(graph->createTuple({x, x}, type));
  graph->registerOutput(node->output());
  const Values found = Program(graph).run({at::ones({1})});
  EXPECT_EQ(found.at(0).type()->expectRef<c10::TupleType>().name(),
            type->name());
}

TEST(Program, IsInstanceSeesTheRunTimeType) {
  expectAsInterpreted(R"(
def forward(self, value: Union[int, str, List[int]]):
    if isinstance(value, int):
        return value + 1
    elif isinstance(value, str):
        return len(value) * 100
    else:
        return len(value)
)",
                      {std::string("abc")});
}

TEST(Program, BranchesTakeEitherSide) {
  const std::string source = R"(
def forward(self, x, flag: bool):
    y = x + 1
    if flag:
        z = y * 2
    else:
        z = x
    return z, y
)";
  for (const bool flag : {true, false}) {
    expectAsInterpreted(source, {at::ones({2}), flag});
  }
}

TEST(Program, LoopCarriesSeveralValuesAtOnce) {
  const std::string source = R"(
def forward(self, x, n: int):
    a = x
    b = x * 2
    k = 1
    for i in range(n):
        a, b = b, a + b
        k = k * 2 + i
    return a, b, k
)";
  for (const std::int64_t trips : {0, 1, 5}) {
    expectAsInterpreted(source, {at::ones({2}), trips});
  }
}

TEST(Program, LoopHandsOneValueOnThroughSeveralPositions) {
  auto graph = parse(R"IR(
graph(%a : int, %b : int, %c : int, %n : int):
  %true : bool = prim::Constant[value=1]()
  %a2 : int, %b2 : int, %c2 : int = prim::Loop(%n, %true, %a, %b, %c)
    block0(%i : int, %p : int, %q : int, %r : int):
      -> (%true, %r, %p, %p)
  return (%a2, %b2, %c2))IR");
  const Values found = Program(graph).run(
      {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{3}});
  EXPECT_EQ(found.at(0).toInt(), 3);
  EXPECT_EQ(found.at(1).toInt(), 1);
  EXPECT_EQ(found.at(2).toInt(), 1);
}

TEST(Program, LoopEndsByItsConditionAndByBreak) {
  expectAsInterpreted(R"(
def forward(self, n: int):
    total = 0
    while total < n:
        total += 3
    for i in range(100):
        if i * i > n:
            break
        if i % 2 == 0:
            continue
        total += i
    return total
)",
                      {std::int64_t{20}});
}

TEST(Program, ReturnFromWithinLoopsAndBranches) {
  const std::string source = R"(
def forward(self, n: int):
    for i in range(10):
        for j in range(10):
            if i * j > n:
                return i, j
    return -1, -1
)";
  for (const std::int64_t n : {0, 11, 200})
    expectAsInterpreted(source, {n});
}

TEST(Program, VariadicOperatorsGetTheirCount) {
  expectAsInterpreted(R"(
def forward(self, n: int, x):
    return "{} and {}".format(n, "text") + "%d of %s" % (n, "many")
)",
                      {std::int64_t{3}, at::ones({1})});
}

TEST(Program, ToListTakesTheElementTypeOfItsNode) {
  expectAsInterpreted(R"(
def forward(self, x):
    values : List[List[float]] = x.tolist()
    return values
)",
                      {at::arange(4.0).view({2, 2})});
}

TEST(Program, StringsRangesAndOptionals) {
  expectAsInterpreted(R"(
def forward(self, text: str, maybe: Optional[int]):
    k = 0
    if maybe is not None:
        k = maybe
    return [c for c in text], text[k], [i * 2 for i in range(k)], maybe
)",
                      {std::string("abc"), std::int64_t{2}});
}

TEST(Program, InstructionsThatAreOperatorsToo) {
  expectAsInterpreted(R"(
def forward(self, x, maybe: Optional[int], flag: bool):
    table = {"a": 1, "b": 2}
    return (x.dtype, x.device, x.dim(), x.is_cuda, not flag, maybe is None,
            maybe is not None, table["b"])
)",
                      {at::ones({2, 1}), IValue(), true});
}

TEST(Program, TracedShapeArithmetic) {
  auto graph = parse(R"IR(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %n : int = aten::size(%x, %zero)
  %t : Tensor = prim::NumToTensor(%n)
  %m : int = aten::Int(%t)
  %shape : int[] = prim::ListConstruct(%m)
  %y : Tensor = aten::reshape(%x, %shape)
  return (%y))IR");
  EXPECT_EQ(Program(graph).run({at::ones({3, 1})}).at(0).toTensor().dim(), 1);
}

TEST(Program, ReadsAndAssignsAttributes) {
  torch::jit::Module module("M");
  module.register_attribute("count", c10::IntType::get(), std::int64_t{1});
  module.register_buffer("weight", at::ones({2}));
  module.define(R"(
def forward(self, x):
    self.count = self.count + 2
    return self.weight * self.count + x
)");
  const Values found =
      programOf(module).run(inputsOf(module, {at::zeros({2})}));
  EXPECT_EQ(module.attr("count").toInt(), 3);
  EXPECT_TRUE(at::equal(found.at(0).toTensor(), at::full({2}, 3.0)));
}

TEST(Program, AttributesOfAnotherClassAreFoundByName) {
  const std::string source = R"(
def forward(self):
    self.count = self.count * 2
    return self.count
)";
  torch::jit::Module module("M");
  module.register_attribute("count", c10::IntType::get(), std::int64_t{1});
  module.define(source);
  torch::jit::Module other("N");
  other.register_attribute("first", c10::StringType::get(), "text");
  other.register_attribute("count", c10::IntType::get(), std::int64_t{21});
  EXPECT_EQ(programOf(module).run({other._ivalue()}).at(0).toInt(), 42);
  EXPECT_EQ(other.attr("count").toInt(), 42);
  EXPECT_EQ(other.attr("first").toStringRef(), "text");
}

TEST(Program, CallsMethodsAndFunctionsThatWereNotInlined) {
  torch::jit::Module inner("Inner");
  inner.define("def scale(self, x, k: int):\n    return x * k\n");
  torch::jit::Module outer("Outer");
  outer.register_module("inner", inner);
  outer.define("def forward(self, x):\n    return self.inner.scale(x, 3)\n");
  const Program calls_method(outer.get_method("forward").graph()->copy());
  EXPECT_TRUE(at::equal(
      calls_method.run({outer._ivalue(), at::ones({2})}).at(0).toTensor(),
      at::full({2}, 3.0)));

  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt,
              "def f(x, k: int):\n    return x + k\n"
              "def g(x):\n    return f(x, 2), f(x, 3)\n",
              torch::jit::nativeResolver(), nullptr);
  const Program calls_function(
      torch::jit::toGraphFunction(unit.get_function("g")).graph()->copy());
  const Values found = calls_function.run({at::zeros({1})});
  const auto& results = found.at(0).toTupleRef().elements();
  EXPECT_EQ(results[0].toTensor().item<float>(), 2);
  EXPECT_EQ(results[1].toTensor().item<float>(), 3);
}

TEST(Program, CreatesObjects) {
  torch::jit::Module pattern("Pattern");
  pattern.register_attribute("value", c10::IntType::get(), std::int64_t{0});
  auto shared = std::make_shared<Graph>();
  Value* number = shared->addInput()->setType(c10::IntType::get());
  Node* create = shared->insertNode(shared->create(prim::CreateObject));
  create->output()->setType(pattern.type());
  shared->insertNode(shared->createSetAttr(create->output(), "value", number));
  shared->registerOutput(create->output());
  const Program program(shared);
  const Values first = program.run({std::int64_t{1}});
  const Values second = program.run({std::int64_t{2}});
  EXPECT_EQ(first.at(0).toObjectRef().getAttr("value").toInt(), 1);
  EXPECT_EQ(second.at(0).toObjectRef().getAttr("value").toInt(), 2);
}

// A `with` block around `aten::relu(x)` whose object counts its entries and
// exits.
std::shared_ptr<Graph> graphWithContext(const torch::jit::Module& context) {
  auto graph = std::make_shared<Graph>();
  Value* object = graph->addInput()->setType(context.type());
  Value* x = graph->addInput();
  graph->insertNode(graph->create(prim::Enter, {object}));
  Node* work = graph->insertNode(graph->create(aten::relu, {x}));
  graph->insertNode(graph->create(prim::Exit, {object}));
  graph->registerOutput(work->output());
  return graph;
}

torch::jit::Module makeContext() {
  torch::jit::Module context("Context");
  context.register_attribute("entered", c10::IntType::get(), std::int64_t{0});
  context.register_attribute("left", c10::IntType::get(), std::int64_t{0});
  context.define(R"(
def __enter__(self):
    self.entered = self.entered + 1
def __exit__(self, kind: Optional[int], value: Optional[int], trace: Optional[int]):
    self.left = self.left + 1
)");
  return context;
}

TEST(Program, EntersAndLeavesContexts) {
  const torch::jit::Module context = makeContext();
  const Program program(graphWithContext(context));
  program.run({context._ivalue(), at::ones({1})});
  EXPECT_EQ(context.attr("entered").toInt(), 1);
  EXPECT_EQ(context.attr("left").toInt(), 1);
}

TEST(Program, ExceptionLeavesContexts) {
  const torch::jit::Module context = makeContext();
  const Program program(graphWithContext(context));
  EXPECT_ANY_THROW(program.run({context._ivalue(), at::Tensor()}));
  EXPECT_EQ(context.attr("entered").toInt(), 1);
  EXPECT_EQ(context.attr("left").toInt(), 1);
}

TEST(Program, RaiseKeepsTypeAndText) {
  auto graph = parse(R"IR(
graph():
  %text : str = prim::Constant[value="no such thing"]()
  %type : str = prim::Constant[value="builtins.ValueError"]()
  prim::RaiseException(%text, %type)
  return ())IR");
  try {
    Program(graph).run({});
    FAIL() << "expected an exception";
  } catch (const torch::jit::JITException& error) {
    EXPECT_STREQ(error.what(), "no such thing");
    EXPECT_EQ(error.getPythonClassName(), "builtins.ValueError");
  }
}

TEST(Program, AssertionRaisesAsInterpreted) {
  torch::jit::Module module = moduleOf(R"(
def forward(self, x):
    assert x.size(0) == 3, "expected three rows"
    return x
)");
  const Program program = programOf(module);
  EXPECT_EQ(program.run(inputsOf(module, {at::ones({3})})).size(), 1U);
  std::optional<std::string> expected;
  try {
    module.forward({at::ones({2})});
  } catch (const torch::jit::JITException& error) {
    expected = error.getOriginalMsg();
  }
  try {
    program.run(inputsOf(module, {at::ones({2})}));
    FAIL() << "expected an exception";
  } catch (const torch::jit::JITException& error) {
    EXPECT_EQ(expected, error.what());
  }
}

TEST(Program, OperatorErrorsPassThroughUnchanged) {
  torch::jit::Module module = moduleOf(R"(
def forward(self, x):
    return x.view(7)
)");
  std::string expected;
  try {
    at::ones({2}).view({7});
  } catch (const c10::Error& error) {
    expected = error.what_without_backtrace();
  }
  try {
    programOf(module).run(inputsOf(module, {at::ones({2})}));
    FAIL() << "expected an exception";
  } catch (const c10::Error& error) {
    EXPECT_EQ(error.what_without_backtrace(), expected);
  }
}

class CountingHandler final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    messages.push_back(warning.msg());
  }
  std::vector<std::string> messages;
};

TEST(Program, WarnsOncePerRunAndPlace) {
  auto graph = parse(R"IR(
graph(%n : int):
  %true : bool = prim::Constant[value=1]()
  %level : int = prim::Constant[value=2]()
  %text : str = prim::Constant[value="careful"]()
  %other : str = prim::Constant[value="each time"]()
  prim::Loop(%n, %true)
    block0(%i : int):
      aten::warn[warn_id=1](%text, %level)
      aten::warn(%other, %level)
      -> (%true)
  return ())IR");
  const Program program(graph);
  CountingHandler handler;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&handler);
    program.run({std::int64_t{2}});
    program.run({std::int64_t{1}});
  }
  EXPECT_EQ(handler.messages,
            (std::vector<std::string>{"careful", "each time", "each time",
                                      "careful", "each time"}));
}

TEST(Program, ValueIsReleasedAfterItsLastUse) {
  auto graph = parse(R"IR(
graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%a)
  %c : Tensor = aten::mul(%b, %y)
  return (%c))IR");
  at::Tensor x = at::ones({2});
  at::Tensor y = at::ones({2});
  const WeakTensor weak_x = weakRef(x);
  const WeakTensor weak_y = weakRef(y);
  Listener listener;
  std::map<std::string, std::pair<bool, bool>> alive;
  listener.on_before = [&](const Node& node) {
    alive[node.kind().toUnqualString()] = {!weak_x.expired(),
                                           !weak_y.expired()};
  };
  Values inputs{std::move(x), std::move(y)};
  Program(graph).run(std::move(inputs), &listener);
  EXPECT_EQ(alive["relu"], std::make_pair(true, true));
  EXPECT_EQ(alive["tanh"], std::make_pair(false, true));
  EXPECT_EQ(alive["mul"], std::make_pair(false, true));
  EXPECT_TRUE(weak_y.expired());
}

TEST(Program, UnusedInputsAndResultsAreReleasedAtOnce) {
  auto graph = parse(R"IR(
graph(%x : Tensor, %unused : Tensor):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%x)
  return (%b))IR");
  at::Tensor unused = at::ones({2});
  const WeakTensor weak = weakRef(unused);
  bool alive = true;
  Listener listener;
  listener.on_before = [&](const Node&) { alive = !weak.expired(); };
  Values inputs{at::ones({2}), std::move(unused)};
  Program(graph).run(std::move(inputs), &listener);
  EXPECT_FALSE(alive);
}

TEST(Program, ValueReadInALoopLivesUntilTheLoopIsDone) {
  auto graph = parse(R"IR(
graph(%x : Tensor, %y : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %z : Tensor = prim::Loop(%n, %true, %y)
    block0(%i : int, %c : Tensor):
      %d : Tensor = aten::mul(%c, %x)
      -> (%true, %d)
  %r : Tensor = aten::relu(%z)
  return (%r))IR");
  at::Tensor x = at::ones({2});
  at::Tensor y = at::ones({2});
  const WeakTensor weak_x = weakRef(x);
  const WeakTensor weak_y = weakRef(y);
  std::vector<std::pair<bool, bool>> alive;
  Listener listener;
  listener.on_before = [&](const Node& node) {
    if (node.kind() != prim::Loop) {
      alive.emplace_back(!weak_x.expired(), !weak_y.expired());
    }
  };
  Values inputs{std::move(x), std::move(y), std::int64_t{3}};
  Program(graph).run(std::move(inputs), &listener);
  // The carried value lives for the first trip only.
  const std::vector<std::pair<bool, bool>> expected{
      {true, true}, {true, false}, {true, false}, {false, false}};
  EXPECT_EQ(alive, expected);
}

TEST(Program, ValueReadInOneBranchIsReleasedAfterEither) {
  auto graph = parse(R"IR(
graph(%x : Tensor, %y : Tensor, %flag : bool):
  %z : Tensor = prim::If(%flag)
    block0():
      %a : Tensor = aten::relu(%x)
      -> (%a)
    block1():
      -> (%y)
  %r : Tensor = aten::tanh(%z)
  return (%r))IR");
  const Program program(graph);
  for (const bool flag : {true, false}) {
    at::Tensor x = at::ones({2});
    const WeakTensor weak = weakRef(x);
    bool alive = true;
    Listener listener;
    listener.on_before = [&](const Node& node) {
      if (node.kind() == aten::tanh)
        alive = !weak.expired();
    };
    Values inputs{std::move(x), at::ones({2}), flag};
    program.run(std::move(inputs), &listener);
    EXPECT_FALSE(alive) << flag;
  }
}

TEST(Program, SameValueTwiceInOneNode) {
  auto graph = parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = aten::mul(%x, %x)
  return (%y, %y, %x))IR");
  const Values found = Program(graph).run({at::full({1}, 3.0)});
  EXPECT_EQ(found.at(0).toTensor().item<float>(), 9);
  EXPECT_TRUE(found.at(0).toTensor().is_same(found.at(1).toTensor()));
  EXPECT_EQ(found.at(2).toTensor().item<float>(), 3);
}

TEST(Program, ConstantsCanBeResults) {
  auto graph = parse(R"IR(
graph():
  %a : int = prim::Constant[value=7]()
  %b : NoneType = prim::Constant()
  return (%a, %b, %a))IR");
  const Program program(graph);
  for (int run = 0; run < 2; ++run) {
    const Values found = program.run({});
    EXPECT_EQ(found.at(0).toInt(), 7);
    EXPECT_TRUE(found.at(1).isNone());
    EXPECT_EQ(found.at(2).toInt(), 7);
  }
}

TEST(Program, ListenerHearsOwnersAroundTheirBlocks) {
  auto graph = parse(R"IR(
graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %z : Tensor = prim::Loop(%n, %true, %x)
    block0(%i : int, %c : Tensor):
      %d : Tensor = aten::relu(%c)
      -> (%true, %d)
  return (%z))IR");
  std::string heard;
  Listener listener;
  listener.on_before = [&](const Node& node) {
    heard += std::string("<") + node.kind().toUnqualString();
  };
  listener.on_after = [&](const Node& node) {
    heard += std::string(node.kind().toUnqualString()) + ">";
  };
  Program(graph).run({at::ones({1}), std::int64_t{2}}, &listener);
  EXPECT_EQ(heard, "<Loop<relurelu><relurelu>Loop>");
}

TEST(Program, NodeThatThrowsIsNotLeft) {
  auto graph = parse(R"IR(
graph(%x : Tensor):
  %a : Tensor = aten::relu(%x)
  %k : int[] = prim::Constant[value=[7]]()
  %b : Tensor = aten::view(%a, %k)
  return (%b))IR");
  std::vector<const Node*> inside;
  Listener listener;
  listener.on_before = [&](const Node& node) { inside.push_back(&node); };
  listener.on_after = [&](const Node&) { inside.pop_back(); };
  EXPECT_ANY_THROW(Program(graph).run({at::ones({2})}, &listener));
  ASSERT_EQ(inside.size(), 1U);
  EXPECT_EQ(inside[0]->kind(), aten::view);
}

TEST(Program, SegmentsGoToTheHandler) {
  auto graph = std::make_shared<Graph>();
  Value* x = graph->addInput();
  Value* y = graph->addInput();
  Node* segment = graph->insertNode(graph->create(segmentKind(), {x, y}, 2));
  Node* sum = graph->insertNode(
      graph->create(aten::mul, {segment->output(0), segment->output(1)}));
  graph->registerOutput(sum->output());
  const Program program(graph);
  const Program::SegmentHandler handler = [&](const Node& node,
                                              Values inputs) -> Values {
    EXPECT_EQ(&node, segment);
    return {inputs.at(1).toTensor() + 1, inputs.at(0)};
  };
  const Values found =
      program.run({at::full({1}, 2.0), at::full({1}, 4.0)}, nullptr, &handler);
  EXPECT_EQ(found.at(0).toTensor().item<float>(), 10);

  EXPECT_THROW(program.run({at::ones({1}), at::ones({1})}),
               std::invalid_argument);
  const Program::SegmentHandler short_handler =
      [](const Node&, Values) -> Values { return {at::ones({1})}; };
  EXPECT_THROW(
      program.run({at::ones({1}), at::ones({1})}, nullptr, &short_handler),
      std::runtime_error);
}

TEST(Program, UnknownOperatorIsNamedWhenCompiled) {
  auto graph = parse(R"IR(
graph(%x : Tensor):
  %y : Tensor = nobody::knows(%x)
  return (%y))IR");
  try {
    Program program(graph);
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("nobody::knows"),
              std::string::npos);
  }
}

TEST(Program, WrongNumberOfInputsThrows) {
  auto graph = parse("graph(%x : Tensor):\n  return (%x)");
  EXPECT_THROW(Program(graph).run({}), std::invalid_argument);
}

TEST(Program, ThreadsShareOneProgram) {
  torch::jit::Module module = moduleOf(R"(
def forward(self, x, n: int):
    for i in range(n):
        x = x + i
    return x
)");
  const Program program = programOf(module);
  std::vector<std::thread> threads;
  std::vector<float> results(4);
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        results[i] = program
                         .run(inputsOf(module, {at::zeros({1}),
                                                static_cast<std::int64_t>(i)}))
                         .at(0)
                         .toTensor()
                         .item<float>();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(results, (std::vector<float>{0, 0, 1, 3}));
}

}  // namespace
}  // namespace pcg::test
