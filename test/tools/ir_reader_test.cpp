#include "tools/pcg-opt/ir_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <random>
#include <sstream>
#include <string>

#include "passes/operators.h"
#include "passes/source_location.h"
#include "tools/pcg-opt/ir_printer.h"

namespace pcg::opt {
namespace {

using testing::HasSubstr;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

class IrReaderTest : public testing::Test {
 protected:
  std::shared_ptr<Graph> read(const std::string& text) {
    std::ostringstream err;
    Diagnostics diagnostics(err);
    const SourceText source("t.ir", text);
    const auto result = readIr(source, options_, diagnostics);
    errors_ = err.str();
    if (!result)
      return nullptr;
    classes_ = result->classes;
    return result->graph;
  }

  std::shared_ptr<Graph> mustRead(const std::string& text) {
    auto graph = read(text);
    EXPECT_EQ(errors_, "");
    if (graph == nullptr)
      throw std::runtime_error(errors_);
    return graph;
  }

  // The value of the constant in `%c : TYPE = prim::Constant[value=LITERAL]()`.
  c10::IValue constant(const std::string& type, const std::string& literal) {
    const auto graph =
        mustRead("graph():\n  %c : " + type +
                 " = prim::Constant[value=" + literal + "]()\n  return (%c)\n");
    return torch::jit::toIValue(graph->outputs()[0]).value();
  }

  std::string error(const std::string& text) {
    EXPECT_EQ(read(text), nullptr);
    return errors_;
  }

  ReadOptions options_;
  std::string errors_;
  std::shared_ptr<torch::jit::CompilationUnit> classes_;
};

TEST_F(IrReaderTest, KeepsNamesAndNumbers) {
  const std::string text =
      "graph(%5 : Tensor,\n"
      "      %self.fc.weight : Tensor):\n"
      "  %x.1 : Tensor = aten::relu(%5)\n"
      "  %2 : Tensor = aten::tanh(%x.1)\n"
      "  return (%2, %self.fc.weight)\n";
  const auto graph = mustRead(text);
  EXPECT_EQ(printGraph(*graph), text);
  EXPECT_EQ(graph->inputs()[0]->unique(), 5U);
  EXPECT_FALSE(graph->inputs()[0]->hasDebugName());
  EXPECT_EQ(graph->outputs()[0]->unique(), 2U);
  EXPECT_EQ(graph->inputs()[1]->debugName(), "self.fc.weight");
}

TEST_F(IrReaderTest, NodesKnowTheirPlaces) {
  const auto graph = mustRead(
      "# a comment\ngraph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n"
      "  return (%y)\n");
  EXPECT_EQ(sourceLocation(*graph->outputs()[0]->node()), "t.ir:3");
}

TEST_F(IrReaderTest, SubgraphsBecomeAttributes) {
  const auto graph = mustRead(
      "graph(%x : Tensor):\n"
      "  %y : Tensor = pcg::segment_0[name=\"s\"](%x)\n"
      "  return (%y)\n"
      "with pcg::segment_0 = graph(%x : Tensor):\n"
      "  %y : Tensor = aten::relu(%x)\n"
      "  return (%y)\n");
  const Node* node = graph->outputs()[0]->node();
  EXPECT_EQ(node->kind(), segmentKind());
  EXPECT_EQ(node->s(torch::jit::attr::name), "s");
  const auto body = node->g(torch::jit::attr::Subgraph);
  EXPECT_EQ(body->outputs()[0]->node()->kind(), torch::jit::aten::relu);
}

TEST_F(IrReaderTest, MadeUpClassesHaveTheAttributesInUse) {
  const auto graph = mustRead(
      "graph(%self : __torch__.M, %x : Tensor):\n"
      "  %l : __torch__.Linear = prim::GetAttr[name=\"l\"](%self)\n"
      "  %w : Tensor = prim::GetAttr[name=\"w\"](%l)\n"
      "  prim::SetAttr[name=\"state\"](%self, %x)\n"
      "  return (%w)\n");
  const auto type = graph->inputs()[0]->type()->expect<c10::ClassType>();
  EXPECT_TRUE(type->is_module());
  EXPECT_EQ(type->getAttribute("state")->kind(), c10::TypeKind::TensorType);
  const auto inner = type->getAttribute("l")->expect<c10::ClassType>();
  EXPECT_TRUE(inner->hasAttribute("w"));
}

TEST_F(IrReaderTest, ConstantsHaveTheirValues) {
  EXPECT_EQ(constant("int", "-3").toInt(), -3);
  EXPECT_EQ(constant("int", "9223372036854775807").toInt(), INT64_MAX);
  EXPECT_EQ(constant("int", "-9223372036854775808").toInt(), INT64_MIN);
  EXPECT_EQ(constant("float", "0.1").toDouble(), 0.1);
  EXPECT_EQ(constant("float", "3").toDouble(), 3.0);
  EXPECT_EQ(constant("float", "1e-320").toDouble(), 1e-320);
  EXPECT_TRUE(std::isinf(constant("float", "inf").toDouble()));
  EXPECT_TRUE(std::isnan(constant("float", "nan").toDouble()));
  EXPECT_TRUE(constant("bool", "1").toBool());
  EXPECT_FALSE(constant("bool", "False").toBool());
  EXPECT_EQ(constant("str", R"("a\n\"\303\244\x41")").toStringRef(),
            "a\n\"\xc3\xa4"
            "A");
  EXPECT_EQ(constant("Device", "\"cuda:1\"").toDevice(),
            c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(constant("complex", "1.+2.j").toComplexDouble(),
            c10::complex<double>(1, 2));
  EXPECT_EQ(constant("complex", "-1.-2.5j").toComplexDouble(),
            c10::complex<double>(-1, -2.5));
  EXPECT_EQ(constant("Scalar", "2.5").toDouble(), 2.5);
  EXPECT_EQ(constant("int[]", "[1, 2]").toIntVector(),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(constant("float[]", "[1, 2.5]").toDoubleVector(),
            (std::vector<double>{1, 2.5}));
  EXPECT_EQ(constant("(int, str)", "(1, \"x\")").toTupleRef().elements()[1],
            c10::IValue("x"));
  EXPECT_EQ(
      constant("Dict(str, int)", "{\"a\": 7}").toGenericDict().at("a").toInt(),
      7);
}

TEST_F(IrReaderTest, ConstantsHaveTypesThatTorchCanReadThemBackAs) {
  for (const std::string type : {"int?", "Any"}) {
    EXPECT_THAT(error("graph():\n  %c : " + type +
                      " = prim::Constant[value=4]()\n  return (%c)\n"),
                HasSubstr("a constant with a value cannot be declared"));
  }
}

TEST_F(IrReaderTest, TensorsOfUnknownContentAreZero) {
  const auto same = [&](const std::string& type, const std::string& literal,
                        const at::Tensor& expected) {
    const at::Tensor tensor = constant(type, literal).toTensor();
    EXPECT_TRUE(at::equal(tensor, expected)) << tensor;
    EXPECT_EQ(tensor.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(tensor.device().is_cpu());
  };
  same("Float(2, 3, strides=[3, 1], requires_grad=0, device=cuda:0)",
       "<Tensor>", at::zeros({2, 3}));
  same("Tensor", "<Tensor>", at::zeros({}));
  same("Long()", "{5}", at::scalar_tensor(5, at::kLong));
  same("Tensor", "{5}", at::scalar_tensor(5, at::kLong));
  same("Float(1)", "{2.5}", at::full({1}, 2.5));
  same("Tensor", " 1  2  3 [ CPULongType{3} ]",
       at::tensor({1, 2, 3}, at::kLong));
  same("Tensor", "0.01 * 1.0000 -2.0000 [ CPUFloatType{1, 2} ]",
       at::tensor({0.01, -0.02}, at::kFloat).view({1, 2}));
  same("Tensor", "(1,.,.) =   1  2 (2,.,.) =   3  4 [ CPULongType{2, 1, 2} ]",
       at::tensor({1, 2, 3, 4}, at::kLong).view({2, 1, 2}));
  same("Tensor", "[ CPUFloatType{0} ]", at::zeros({0}));
  same("Tensor", "<Tensor> [ CPUHalfType{4, 5} ]",
       at::zeros({4, 5}, at::kHalf));
  same("Tensor", "Columns 1 to 2 1 2 Columns 3 to 3 3 [ CPUFloatType{3} ]",
       at::zeros({3}));
  const at::Tensor strided =
      constant("Float(2, 3, strides=[1, 2])", "<Tensor>").toTensor();
  EXPECT_EQ(strided.strides(), (c10::IntArrayRef{1, 2}));
  // As many elements as no machine has.
  const at::Tensor huge =
      constant("Float(1000000, 1000000, 1000)", "<Tensor>").toTensor();
  EXPECT_EQ(huge.numel(), 1000000000000000);
}

TEST_F(IrReaderTest, TypesReadBack) {
  for (const std::string type :
       {"Tensor",
        "FloatTensor",
        "Float(2, 3, strides=[3, 1])",
        "Float(2, *, requires_grad=0, device=cuda:0)",
        "Half(*, *, requires_grad=1)",
        "BFloat16(device=cpu)",
        "FloatTensor(requires_grad=0, device=cpu)",
        "Tensor(device=cpu)",
        "Long()",
        "Tensor[Undefined]",
        "int",
        "float",
        "bool",
        "complex",
        "str",
        "Scalar",
        "NoneType",
        "Device",
        "Generator",
        "Any",
        "Stream",
        "int[][]",
        "Tensor?[]",
        "(int, (Tensor, str))",
        "()",
        "Dict(str, Tensor[])",
        "Future[Tensor]",
        "Union[int, Tensor]",
        "NamedTuple(a : int, b : Tensor?)",
        "__torch__.a.b.___torch_mangle_0.C",
        "__torch__.torch.classes.quantized.LinearPackedParamsBase"}) {
    const std::string text = "graph(%x : " + type + "):\n  return (%x)\n";
    const auto graph = read(text);
    ASSERT_NE(graph, nullptr) << errors_;
    const std::string once = printGraph(*graph);
    const auto again = mustRead(once);
    EXPECT_EQ(printGraph(*again), once) << type;
  }
}

TEST_F(IrReaderTest, ManyErrorsAreCutShort) {
  std::string text = "graph(%x : Tensor):\n";
  for (int i = 0; i < 100; ++i) {
    text += "  %y" + std::to_string(i) + " : Tensor = aten::relu(%none)\n";
  }
  const std::string errors = error(text + "  return (%x)\n");
  EXPECT_THAT(errors, HasSubstr("too many errors"));
  EXPECT_THAT(errors, testing::Not(HasSubstr("t.ir:40:")));
}

TEST_F(IrReaderTest, NestingIsLimited) {
  std::string blocks;
  for (int i = 0; i < 100000; ++i)
    blocks += "prim::If(%p) block0(): ";
  EXPECT_THAT(error("graph(%p : bool): " + blocks),
              HasSubstr("blocks nest more than 200 deep"));
  EXPECT_THAT(error("graph(%p : " + std::string(100000, '(')),
              HasSubstr("a type nests more than 64 deep"));
  std::string lists;
  for (int i = 0; i < 100000; ++i)
    lists += "[]";
  EXPECT_THAT(error("graph(%p : int" + lists),
              HasSubstr("a type nests more than 64 deep"));
  EXPECT_THAT(error("graph(): %c : int = prim::Constant[value=" +
                    std::string(100000, '[')),
              HasSubstr("a literal nests more than 64 deep"));
}

TEST_F(IrReaderTest, NodesGoFromPrinterToReaderUnchanged) {
  auto graph = std::make_shared<Graph>();
  Value* x = graph->addInput("x");
  const auto constant = [&](const c10::IValue& value) {
    return graph->insertConstant(value);
  };
  Node* node = graph->insertNode(graph->create(
      c10::Symbol::fromQualString("test::all"),
      {x, constant(0.1), constant(std::string("\xc3\xa4\n")),
       constant(c10::IValue()), constant(c10::complex<double>(0, 1)),
       constant(std::vector<double>{1.5, -0.0}),
       constant(at::tensor({0.1F, 1e-30F})), constant(at::scalar_tensor(7)),
       constant(at::zeros({3, 4}))}));
  node->f_(c10::Symbol::attr("f"), 1e17);
  node->fs_(c10::Symbol::attr("fs"), {0.1, 2});
  node->is_(c10::Symbol::attr("is"), {1, 2});
  node->ss_(c10::Symbol::attr("ss"), {"a", "\xff"});
  node->ty_(c10::Symbol::attr("ty"), c10::IntType::get());
  graph->registerOutput(node->output());
  options_.allow_unregistered_ops = true;
  const std::string text = printGraph(*graph);
  const auto again = mustRead(text);
  EXPECT_EQ(printGraph(*again), text);
  EXPECT_EQ(again->outputs()[0]->node()->f(c10::Symbol::attr("f")), 1e17);
}

// Mutated texts must be read or refused, whatever they look like.
TEST_F(IrReaderTest, SurvivesMutatedTexts) {
  const std::string seed =
      R"IR(graph(%self : __torch__.M,
      %x : Float(2, 3, strides=[3, 1], requires_grad=0, device=cuda:0),
      %p : bool, %n : int):
  %c : float[] = prim::Constant[value=[1., -2.5e3]]()
  %t : Tensor = prim::Constant[value= 1  2 [ CPULongType{2} ]]()
  %z : Tensor = prim::Constant[value=<Tensor>]()
  %s : str = prim::Constant[value="a\n\303"]()
  %d : Dict(str, int) = prim::Constant[value={"a": 1}]()
  %w.1 : Tensor = prim::GetAttr[name="w"](%self)
  %y : Tensor, %k : int = prim::Loop(%n, %p, %x, %n)
    block0(%i : int, %a : Tensor, %b : int):
      %r : Tensor = aten::relu[no_graph=1](%a)
      -> (%p, %r, %b)
  %g : Tensor = pcg::segment_0[name="segment_0"](%y)
  %u : (Tensor, int?) = prim::TupleConstruct(%g, %k)
  return (%u, %w.1)
with pcg::segment_0 = graph(%y : Tensor):
  %q : Tensor = aten::tanh(%y)
  return (%q)
)IR";
  ASSERT_NE(read(seed), nullptr) << errors_;
  const std::string alphabet =
      "%()[]{}<>:,=.-#\"'\\ \n0123456789abcxyzTensorgraph@*!?^|";
  std::mt19937 random(1);
  const auto below = [&](std::size_t bound) {
    return static_cast<std::size_t>(random()) % bound;
  };
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = seed;
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        case 3:
          text.insert(below(text.size()), text.substr(at, below(40)));
          break;
        default:
          text[at] = static_cast<char>(below(256));
          break;
      }
      if (text.empty())
        text = " ";
    }
    if (const auto graph = read(text)) {
      ++accepted;
      printGraph(*graph);
    } else {
      EXPECT_NE(errors_, "") << text;
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace pcg::opt
