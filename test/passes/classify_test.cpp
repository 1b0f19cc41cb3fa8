#include "passes/classify.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/library.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace pcg {
namespace {

using torch::jit::Graph;
using torch::jit::Node;

TORCH_LIBRARY(pcg_classify_test, library) {
  library.def("plain(Tensor x) -> Tensor");
  library.def("count(int n) -> int");
  library.def("marked(Tensor x) -> Tensor", {at::Tag::cudagraph_unsafe});
  library.def("sized(Tensor x) -> Tensor", {at::Tag::dynamic_output_shape});
  library.def("reading(Tensor x) -> bool", {at::Tag::data_dependent_output});
}

// Names that the lines below use: tensors of open type (%x, %y, %z), of known
// type on the GPU (%gpu, %mask, %index) and on the CPU (%host, %host_index);
// lists, host values and constants.
constexpr const char* kPrelude =
    R"IR(graph(%x : Tensor, %y : Tensor, %z : Tensor,
      %gpu : Float(8, strides=[1], requires_grad=0, device=cuda:0),
      %host : Float(8, strides=[1], requires_grad=0, device=cpu),
      %mask : Bool(8, strides=[1], requires_grad=0, device=cuda:0),
      %index : Long(8, strides=[1], requires_grad=0, device=cuda:0),
      %host_index : Long(8, strides=[1], requires_grad=0, device=cpu),
      %maybe : Tensor?, %tensors : Tensor[], %ints : int[], %n : int,
      %f : float, %flag : bool, %s : Scalar, %text : str,
      %device : Device, %generator : Generator, %dict : Dict(str, Tensor),
      %future : Future(Tensor), %tuple : (Tensor, int)):
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
  %false : bool = prim::Constant[value=0]()
  %m2 : int = prim::Constant[value=-2]()
  %m1 : int = prim::Constant[value=-1]()
  %0 : int = prim::Constant[value=0]()
  %1 : int = prim::Constant[value=1]()
  %2 : int = prim::Constant[value=2]()
  %4 : int = prim::Constant[value=4]()
  %long : int = prim::Constant[value=4]()
  %bool : int = prim::Constant[value=11]()
  %zero : float = prim::Constant[value=0.]()
  %half : float = prim::Constant[value=0.5]()
  %fro : str = prim::Constant[value="fro"]()
  %nuc : str = prim::Constant[value="nuc"]()
  %sum : str = prim::Constant[value="sum"]()
  %equation : str = prim::Constant[value="ij"]()
  %cpu : Device = prim::Constant[value="cpu"]()
  %cuda : Device = prim::Constant[value="cuda:0"]()
  %shape : int[] = prim::ListConstruct(%4, %4)
  %scalar_shape : int[] = prim::ListConstruct()
  %one_dim : int[] = prim::ListConstruct(%m1)
  %two_dims : int[] = prim::ListConstruct(%m2, %m1)
)IR";

/// The last of `lines`, parsed behind the prelude.
class Line {
 public:
  explicit Line(const std::string& lines) : graph_(std::make_shared<Graph>()) {
    std::string text = kPrelude;
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      if (!line.empty())
        text += "  " + line + "\n";
    }
    torch::jit::parseIR(text + "  return (%none)\n", graph_.get());
  }
  const Node& node() const { return *graph_->return_node()->prev(); }

 private:
  std::shared_ptr<Graph> graph_;
};

CaptureSafety classify(const std::string& lines,
                       const PartitionOptions& options = {}) {
  return classifyOperator(Line(lines).node(), options);
}

std::string classOf(const std::string& lines,
                    const PartitionOptions& options = {}) {
  return toString(classify(lines, options).kind);
}

std::string reasonOf(const std::string& lines,
                     const PartitionOptions& options = {}) {
  return toString(classify(lines, options).reason);
}

// ---- what a GPU said --------------------------------------------------------

struct Probe {
  const char* lines;
  const char* kind;
};

// Each operator below was captured, or refused to be, on an H200 with torch
// 2.11. Where the outcome hung on an argument that only a call shows, the
// verdict is `conditional`.
const Probe kProbes[] = {
    {"%r : Tensor = aten::add(%x, %y, %1)", "safe"},
    {"%r : Tensor = aten::matmul(%x, %y)", "safe"},
    {"%r : Tensor = aten::conv2d(%x, %y, %none, %shape, %shape, %shape, %1)",
     "safe"},
    {"%r : Tensor = aten::dropout(%x, %half, %true)", "safe"},
    {"%r : Tensor = aten::rand(%shape, %none, %none, %cuda, %none)", "safe"},
    {"%r : Tensor = aten::multinomial(%x, %4, %true, %none)", "safe"},
    {"%r : Tensor = aten::normal(%x, %y, %none)", "unsafe"},
    {"%r : Tensor = aten::nonzero(%x)", "unsafe"},
    {"%r : Tensor = aten::nonzero_static(%x, %4, %m1)", "safe"},
    {"%r : Tensor = aten::masked_select(%x, %mask)", "unsafe"},
    {"%i : Tensor?[] = prim::ListConstruct(%index)\n"
     "%r : Tensor = aten::index(%x, %i)",
     "safe"},
    {"%i : Tensor?[] = prim::ListConstruct(%host_index)\n"
     "%r : Tensor = aten::index(%x, %i)",
     "conditional"},
    {"%v : Tensor = aten::full(%scalar_shape, %half, %none, %none, %cpu, %none)"
     "\n%i : Tensor?[] = prim::ListConstruct(%mask)\n"
     "%r : Tensor = aten::index_put_(%x, %i, %v, %false)",
     "safe"},
    {"%i : Tensor?[] = prim::ListConstruct(%mask)\n"
     "%r : Tensor = aten::index_put_(%x, %i, %y, %false)",
     "unsafe"},
    {"%i : Tensor?[] = prim::ListConstruct(%index)\n"
     "%r : Tensor = aten::index_put_(%x, %i, %y, %true)",
     "safe"},
    {"%r : Tensor = aten::masked_fill(%x, %mask, %half)", "safe"},
    {"%r : Tensor = aten::masked_fill(%x, %mask, %gpu)", "unsafe"},
    {"%r : Tensor = aten::masked_fill(%x, %mask, %host)", "safe"},
    {"%r : Tensor = aten::masked_scatter(%x, %mask, %y)", "safe"},
    {"%r : Tensor = aten::where(%mask, %x, %y)", "safe"},
    {"%r : Tensor[] = aten::where(%mask)", "unsafe"},
    {"%r : Tensor, %i : Tensor = aten::_unique(%x, %true, %false)", "unsafe"},
    {"%r : Tensor = aten::bincount(%index, %none, %0)", "unsafe"},
    {"%r : Tensor = aten::bincount(%index, %none, %4)", "unsafe"},
    {"%r : Tensor = aten::histc(%x, %4, %0, %0)", "unsafe"},
    {"%r : Tensor = aten::histc(%x, %4, %0, %1)", "safe"},
    {"%r : Tensor = aten::repeat_interleave(%x, %index, %0, %none)", "unsafe"},
    {"%r : Tensor = aten::repeat_interleave(%x, %index, %0, %4)", "safe"},
    {"%r : Tensor = aten::one_hot(%index, %m1)", "unsafe"},
    {"%r : Tensor = aten::one_hot(%index, %4)", "safe"},
    {"%r : Tensor, %i : Tensor = aten::sort(%x, %m1, %false)", "safe"},
    {"%r : Tensor, %i : Tensor = aten::topk(%x, %4, %m1, %true, %true)",
     "safe"},
    {"%r : Tensor, %i : Tensor = aten::median(%x, %m1, %false)", "safe"},
    {"%r : Tensor, %i : Tensor = aten::mode(%x, %m1, %false)", "conditional"},
    {"%r : Tensor = aten::quantile(%x, %half, %none, %false, %fro)", "safe"},
    {"%r : Tensor, %i : Tensor = aten::kthvalue(%x, %1, %m1, %false)", "safe"},
    {"%r : Tensor = aten::searchsorted(%x, %y, %false, %false, %none, %none)",
     "safe"},
    {"%r : Tensor = aten::isin(%x, %y, %false, %false)", "conditional"},
    {"%r : Tensor = aten::cumsum(%x, %0, %none)", "safe"},
    {"%r : Tensor = aten::scatter_add(%x, %0, %index, %y)", "safe"},
    {"%r : Tensor = aten::index_add(%x, %0, %index, %y, %1)", "safe"},
    {"%r : Tensor = aten::embedding(%x, %index, %m1, %false, %false)", "safe"},
    {"%r : Tensor = aten::var(%x, %true)", "safe"},
    {"%r : Tensor, %m : Tensor = aten::std_mean(%x, %true)", "safe"},
    {"%r : bool = aten::equal(%x, %y)", "unsafe"},
    {"%r : bool = aten::allclose(%x, %y, %half, %half, %false)", "unsafe"},
    {"%r : Scalar = aten::item(%x)", "unsafe"},
    {"%r : Tensor = aten::to(%x, %cpu, %4, %false, %false, %none)", "unsafe"},
    {"%r : Tensor = aten::to(%x, %cpu, %4, %true, %false, %none)", "unsafe"},
    {"%r : Tensor = aten::copy_(%gpu, %host, %false)", "unsafe"},
    {"%r : Tensor = aten::tensor(%f, %none, %cuda, %false)", "unsafe"},
    {"%r : Tensor = aten::scalar_tensor(%f, %none, %none, %cuda, %none)",
     "safe"},
    {"%r : Tensor = aten::full(%shape, %f, %none, %none, %cuda, %none)",
     "safe"},
    {"%r : Tensor = aten::arange(%4, %none, %none, %cuda, %none)", "safe"},
    {"%r : Tensor = aten::linspace(%0, %1, %4, %none, %none, %cuda, %none)",
     "safe"},
    {"%u : Tensor, %d : Tensor, %v : Tensor = "
     "aten::linalg_svd(%x, %false, %none)",
     "unsafe"},
    {"%w : Tensor, %v : Tensor = aten::linalg_eigh(%x, %fro)", "unsafe"},
    {"%r : Tensor = aten::linalg_inv(%x)", "unsafe"},
    {"%r : Tensor, %i : Tensor = aten::linalg_inv_ex(%x, %false)", "safe"},
    {"%r : Tensor = aten::linalg_solve(%x, %y, %true)", "unsafe"},
    {"%r : Tensor, %i : Tensor = aten::linalg_solve_ex(%x, %y, %true, %false)",
     "safe"},
    {"%r : Tensor = aten::linalg_cholesky(%x, %false)", "unsafe"},
    {"%r : Tensor, %i : Tensor = aten::linalg_cholesky_ex(%x, %false, %false)",
     "safe"},
    {"%r : Tensor, %p : Tensor, %i : Tensor = "
     "aten::linalg_lu_factor_ex(%x, %true, %false)",
     "safe"},
    {"%q : Tensor, %r : Tensor = aten::linalg_qr(%x, %fro)", "safe"},
    {"%r : Tensor = aten::det(%x)", "safe"},
    {"%r : Tensor, %l : Tensor = aten::slogdet(%x)", "safe"},
    {"%r : Tensor = aten::matrix_exp(%x)", "unsafe"},
    {"%r : Tensor = aten::linalg_matrix_norm(%x, %2, %two_dims, %false, %none)",
     "unsafe"},
    {"%r : Tensor = aten::linalg_pinv(%x, %half, %false)", "unsafe"},
    {"%a : Tensor, %b : Tensor, %c : Tensor, %d : Tensor = "
     "aten::linalg_lstsq(%x, %y, %none, %none)",
     "unsafe"},
    {"%r : Tensor = aten::fft_fft(%x, %none, %m1, %none)", "safe"},
    {"%r : Tensor = aten::istft(%x, %4, %none, %none, %y, %true, %false, "
     "%none, %none, %false)",
     "unsafe"},
    {"%r : Tensor = aten::stft(%x, %4, %none, %none, %y, %false, %none, %true, "
     "%none)",
     "safe"},
    {"%r : Tensor, %h : Tensor, %c : Tensor = aten::lstm(%x, %tensors, "
     "%tensors, %true, %1, %zero, %false, %false, %true)",
     "safe"},
    {"%r : Tensor, %h : Tensor = aten::gru(%x, %y, %tensors, %true, %1, %zero, "
     "%false, %false, %true)",
     "safe"},
    {"%r : Tensor = aten::scaled_dot_product_attention(%x, %y, %z, %none, "
     "%zero, %false, %none, %false)",
     "safe"},
    {"%r : Tensor = aten::ctc_loss(%x, %y, %index, %index, %0, %1, %false)",
     "unsafe"},
    {"%r : Tensor = aten::grid_sampler(%x, %y, %0, %0, %false)", "safe"},
    {"%r : Tensor = aten::upsample_bilinear2d(%x, %shape, %false, %none, "
     "%none)",
     "safe"},
    {"%r : Tensor = aten::adaptive_avg_pool2d(%x, %shape)", "safe"},
    {"%r : Tensor = aten::max_pool2d(%x, %shape, %shape, %shape, %shape, "
     "%false)",
     "safe"},
    {"%r : Tensor = aten::max_unpool2d(%x, %index, %shape)", "safe"},
    {"%r : Tensor = aten::layer_norm(%x, %shape, %none, %none, %half, %true)",
     "safe"},
    {"%r : Tensor = aten::batch_norm(%x, %none, %none, %none, %none, %true, "
     "%half, %half, %true)",
     "safe"},
    {"%r : Tensor = aten::cross_entropy_loss(%x, %index, %none, %1, %m1, "
     "%zero)",
     "safe"},
    {"%r : Tensor[] = aten::_foreach_mul(%tensors, %gpu)", "conditional"},
    {"aten::_assert_async(%x)", "safe"},
    {"%r : Tensor = aten::combinations(%x, %2, %false)", "unsafe"},
    {"%r : Tensor = aten::randperm(%4, %none, %none, %cuda, %none)", "safe"},
};

TEST(Classify, AgreesWithWhatCaptureDidOnAnH200) {
  for (const Probe& probe : kProbes) {
    EXPECT_EQ(classOf(probe.lines), probe.kind) << probe.lines;
  }
}

// ---- every operator ---------------------------------------------------------

TEST(Classify, EveryRegisteredOperatorGetsAClassAndEveryRefusalASentence) {
  std::set<std::string> reached;
  std::size_t count = 0;
  for (const auto& op : torch::jit::getAllOperators()) {
    const auto& schema = op->schema();
    Graph graph;
    std::vector<torch::jit::Value*> inputs;
    for (const auto& argument : schema.arguments()) {
      inputs.push_back(graph.addInput()->setType(argument.type()));
    }
    Node* node =
        graph.create(c10::Symbol::fromQualString(schema.name()), inputs, 0);
    graph.insertNode(node);
    const CaptureSafety safety = classifyOperator(*node, {});
    const bool accepted = safety.kind == CaptureClass::kSafe ||
                          safety.kind == CaptureClass::kGlue;
    EXPECT_EQ(safety.reason == Reason::kNone, accepted) << schema;
    EXPECT_EQ(safety.sentence.empty(), accepted) << schema;
    reached.insert(toString(safety.kind));
    ++count;
  }
  EXPECT_GT(count, 4000u);
  EXPECT_EQ(reached.size(), 4u);
}

TEST(Classify, NoOperatorThatMakesAHostValueOfATensorIsSafe) {
  for (const auto& op : torch::jit::getAllOperators()) {
    const auto& schema = op->schema();
    const auto name = c10::Symbol::fromQualString(schema.name());
    if (!name.is_aten() && !name.is_prim())
      continue;
    bool takes_tensor = false;
    for (const auto& argument : schema.arguments()) {
      takes_tensor |= argument.type()->kind() == c10::TypeKind::TensorType;
    }
    if (!takes_tensor || schema.returns().size() != 1)
      continue;
    switch (schema.returns()[0].type()->kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::BoolType:
      case c10::TypeKind::ComplexType:
      case c10::TypeKind::NumberType:
        break;
      default:
        continue;
    }
    Graph graph;
    std::vector<torch::jit::Value*> inputs;
    for (const auto& argument : schema.arguments()) {
      inputs.push_back(graph.addInput()->setType(argument.type()));
    }
    Node* node = graph.insertNode(graph.create(name, inputs, 1));
    // Glue says something of the tensor, all others of its data.
    EXPECT_NE(classifyOperator(*node, {}).kind, CaptureClass::kSafe) << schema;
  }
}

// ---- glue -------------------------------------------------------------------

TEST(Classify, HostArithmeticAndPackingAreGlue) {
  for (const char* lines :
       {"%r : int = aten::add(%n, %1)",
        "%r : bool = aten::lt(%n, %4)",
        "%r : float = aten::mul(%f, %half)",
        "%r : int = aten::Int(%f)",
        "%r : str = aten::add(%text, %text)",
        "%r : bool = aten::__not__(%flag)",
        "%r : bool = aten::__is__(%maybe, %none)",
        "%r : Tensor[] = prim::ListConstruct(%x, %y)",
        "%r : (Tensor, int) = prim::TupleConstruct(%x, %n)",
        "%a : Tensor, %b : int = prim::TupleUnpack(%tuple)",
        "%r : Tensor[] = aten::append(%tensors, %x)",
        "%r : Tensor = aten::__getitem__(%tensors, %0)",
        "%r : Tensor = aten::__getitem__(%dict, %text)",
        "aten::_set_item(%dict, %text, %x)",
        "%r : int = prim::max(%n, %1)",
        "%r : int = aten::len(%tensors)",
        "%r : Tensor = prim::unchecked_unwrap_optional(%maybe)",
        "%r : Tensor = prim::NumToTensor(%n)",
        "prim::RaiseException(%text, %none)",
        "%r : bool = aten::is_grad_enabled()"}) {
    EXPECT_EQ(classOf(lines), "glue") << lines;
  }
}

TEST(Classify, WhatATensorSaysOfItselfIsGlue) {
  for (const char* lines :
       {"%r : int[] = aten::size(%x)", "%r : int = aten::size(%x, %0)",
        "%r : int = aten::dim(%x)", "%r : int = aten::numel(%x)",
        "%r : int = aten::len(%x)", "%r : Device = prim::device(%x)",
        "%r : int = prim::dtype(%x)", "%r : bool = prim::is_cuda(%x)",
        "%r : bool = aten::is_floating_point(%x)",
        "%r : int[] = aten::stride(%x)"}) {
    EXPECT_EQ(classOf(lines), "glue") << lines;
  }
}

TEST(Classify, ViewsAreGlueButWhatMayCopyIsWork) {
  for (const char* lines : {"%r : Tensor = aten::view(%x, %shape)",
                            "%r : Tensor = aten::expand(%x, %shape, %false)",
                            "%r : Tensor = aten::permute(%x, %ints)",
                            "%r : Tensor = aten::transpose(%x, %0, %1)",
                            "%r : Tensor = aten::select(%x, %0, %1)",
                            "%r : Tensor = aten::slice(%x, %0, %0, %4, %1)",
                            "%r : Tensor[] = aten::split(%x, %2, %0)",
                            "%r : Tensor = aten::detach(%x)",
                            "%r : Tensor = aten::requires_grad_(%x, %true)"}) {
    EXPECT_EQ(classOf(lines), "glue") << lines;
  }
  for (const char* lines :
       {"%r : Tensor = aten::reshape(%x, %shape)",
        "%r : Tensor = aten::flatten(%x, %0, %m1)",
        "%r : Tensor = aten::contiguous(%x, %0)",
        "%r : Tensor = aten::to(%x, %4, %false, %false, %none)"}) {
    EXPECT_EQ(classOf(lines), "safe") << lines;
  }
}

TEST(Classify, ControlFlowItselfIsGlue) {
  EXPECT_EQ(classOf("%r : int = prim::If(%flag)\n"
                    "  block0():\n    -> (%0)\n"
                    "  block1():\n    -> (%1)"),
            "glue");
  EXPECT_EQ(classOf("%r : int = prim::Loop(%4, %true, %0)\n"
                    "  block0(%i : int, %c : int):\n"
                    "    -> (%true, %c)"),
            "glue");
}

// ---- refusals ---------------------------------------------------------------

TEST(Classify, EveryKindOfRefusalCarriesItsReason) {
  const struct {
    const char* lines;
    const char* reason;
  } kCases[] = {
      {"%r : Scalar = aten::item(%x)", "host-read"},
      {"%r : int = aten::Int(%x)", "host-read"},
      {"%r : float = aten::FloatImplicit(%x)", "host-read"},
      {"%r : Tensor = aten::cpu(%x)", "host-read"},
      {"%r : Tensor = aten::nonzero(%x)", "dynamic-shape"},
      {"%r : Tensor = aten::to(%x, %cpu, %4, %false, %false, %none)",
       "device-transfer"},
      {"%r : Tensor = aten::linalg_inv(%x)", "error-check"},
      {"%r : Tensor = aten::_shape_as_tensor(%x)", "host-computation"},
      {"aten::warn(%text, %2)", "side-effect"},
      {"prim::Print(%x)", "side-effect"},
      {"%r : int = prim::TimePoint()", "side-effect"},
      {"aten::manual_seed(%n)", "side-effect"},
      {"aten::set_grad_enabled(%true)", "side-effect"},
      {"prim::SetAttr[name=\"state\"](%x, %y)", "module-state"},
      {"%r : Tensor = prim::Enter(%x)", "context-manager"},
      {"%r : Tensor = prim::Exit(%x, %none, %none, %none)", "context-manager"},
      {"%r : Tensor = aten::wait(%future)", "asynchronous"},
      {"%r : Tensor = prim::CallFunction(%x, %y)", "opaque-call"},
      {"%r : Tensor = prim::CallMethod[name=\"forward\"](%x, %y)",
       "opaque-call"},
      {"%r : Tensor = mylib::op(%x)", "unknown-operator"},
      {"%r : Tensor = quantized::relu6(%x, %false)", "storage-layout"},
      {"%r : Tensor = aten::rand_like(%x, %generator, %none, %none, %none, "
       "%none, %none)",
       "generator"},
      {"%r : Tensor = aten::resize_(%x, %shape, %none)", "metadata-mutation"},
      {"%r : Tensor = aten::unsqueeze_(%x, %0)", "metadata-mutation"},
      {"aten::backward(%x, %none, %none, %false)", "autograd"},
      {"%r : Tensor = aten::to_sparse(%x, %none, %none, %none)",
       "storage-layout"},
      {"%r : Tensor = aten::quantize_per_tensor(%x, %half, %0, %4)",
       "storage-layout"},
      {"%r : Tensor = prim::CreateObject()", "boundary-type"},
  };
  for (const auto& item : kCases) {
    const CaptureSafety safety = classify(item.lines);
    EXPECT_EQ(safety.kind, CaptureClass::kUnsafe) << item.lines;
    EXPECT_STREQ(toString(safety.reason), item.reason) << item.lines;
  }
}

TEST(Classify, GradientsAreConditional) {
  const std::string line =
      "%g : Tensor?[] = aten::grad(%tensors, %tensors, %none, %none, %false, "
      "%false)";
  EXPECT_EQ(classOf(line), "conditional");
  EXPECT_EQ(reasonOf(line), "autograd");
}

TEST(Classify, AnAtenNodeWhoseArgumentsFitNoSchemaIsUnknown) {
  EXPECT_EQ(reasonOf("%r : Tensor = aten::relu(%text)"), "unknown-operator");
  // Without its arguments `where` would look like the one-argument overload.
  EXPECT_EQ(reasonOf("%r : Tensor = aten::where(%text, %x, %y)"),
            "unknown-operator");
}

TEST(Classify, OperatorsThatReadTheirScalarFromATensorFollowItsDevice) {
  EXPECT_EQ(classOf("%r : Tensor = aten::masked_fill(%x, %mask, %y)"),
            "conditional");
  EXPECT_EQ(classOf("%v : Tensor = prim::NumToTensor(%f)\n"
                    "%r : Tensor = aten::masked_fill(%x, %mask, %v)"),
            "safe");
  EXPECT_EQ(classOf("%v : Tensor = aten::tensor(%f, %none, %none, %false)\n"
                    "%r : Tensor = aten::masked_fill(%x, %mask, %v)"),
            "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::narrow(%x, %0, %index, %4)"),
            "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::narrow(%x, %0, %host_index, %4)"),
            "glue");
}

TEST(Classify, TextOfATensorIsAHostRead) {
  EXPECT_EQ(classOf("%r : str = aten::format(%text, %n)"), "glue");
  EXPECT_EQ(classOf("%r : str = aten::format(%text, %x)"), "unsafe");
  EXPECT_EQ(classOf("%r : str = aten::str(%n)"), "glue");
  EXPECT_EQ(classOf("%r : str = aten::str(%tensors)"), "unsafe");
}

TEST(Classify, ArgumentsThatAreNoConstantsLeaveItOpen) {
  EXPECT_EQ(classOf("%r : Tensor = aten::one_hot(%index, %n)"), "conditional");
  EXPECT_EQ(classOf("%r : Tensor, %i : Tensor = aten::linalg_inv_ex(%x, "
                    "%flag)"),
            "conditional");
  EXPECT_EQ(classOf("%r : Tensor, %i : Tensor = aten::linalg_inv_ex(%x, "
                    "%true)"),
            "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::searchsorted(%x, %y, %false, %false, "
                    "%none, %maybe)"),
            "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::searchsorted(%x, %y, %false, %false, "
                    "%none, %index)"),
            "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::repeat_interleave(%x, %index, %0, "
                    "%n)"),
            "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::segment_reduce(%x, %sum, %index, "
                    "%none, %none, %0, %true, %none)"),
            "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::segment_reduce(%x, %sum, %index, "
                    "%none, %none, %0, %false, %none)"),
            "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::cov(%x, %1, %none, %none)"), "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::cov(%x, %1, %none, %maybe)"),
            "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::cov(%x, %1, %y, %maybe)"), "unsafe");
}

TEST(Classify, MatrixPowersInvertOnlyWhenNegative) {
  EXPECT_EQ(classOf("%r : Tensor = aten::matrix_power(%x, %2)"), "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::matrix_power(%x, %m1)"), "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::matrix_power(%x, %n)"), "conditional");
}

TEST(Classify, OnlySpectralNormsOfMatricesNeedSingularValues) {
  const auto norm = [](const std::string& order, const std::string& dims) {
    return classOf("%r : Tensor = aten::linalg_norm(%x, " + order + ", " +
                   dims + ", %false, %none)");
  };
  EXPECT_EQ(norm("%none", "%none"), "safe");
  EXPECT_EQ(norm("%1", "%two_dims"), "safe");
  EXPECT_EQ(norm("%2", "%one_dim"), "safe");
  EXPECT_EQ(norm("%2", "%two_dims"), "unsafe");
  EXPECT_EQ(norm("%2", "%none"), "conditional");
  EXPECT_EQ(norm("%nuc", "%none"), "unsafe");
  EXPECT_EQ(norm("%fro", "%none"), "safe");
}

TEST(Classify, OnlyAWeightedMeanWithSmoothedLabelsSelectsTargets) {
  const auto loss = [](const std::string& weight, const std::string& reduction,
                       const std::string& smoothing) {
    return classOf("%r : Tensor = aten::cross_entropy_loss(%x, %index, " +
                   weight + ", " + reduction + ", %m1, " + smoothing + ")");
  };
  EXPECT_EQ(loss("%y", "%1", "%zero"), "safe");
  EXPECT_EQ(loss("%none", "%1", "%half"), "safe");
  EXPECT_EQ(loss("%y", "%2", "%half"), "safe");
  EXPECT_EQ(loss("%y", "%1", "%half"), "unsafe");
  EXPECT_EQ(loss("%maybe", "%1", "%half"), "conditional");
}

// ---- indexing ---------------------------------------------------------------

std::string indexBy(const std::string& definition, const std::string& value) {
  return classOf(definition + "\n%i : Tensor?[] = prim::ListConstruct(" +
                 value + ")\n%r : Tensor = aten::index(%x, %i)");
}

TEST(Classify, AnIndexOfOpenTypeIsConditional) {
  EXPECT_EQ(indexBy("", "%y"), "conditional");
  EXPECT_EQ(indexBy("", "%maybe"), "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::index(%x, %tensors)"), "conditional");
}

TEST(Classify, AnIndexMadeByAComparisonIsAMask) {
  EXPECT_EQ(indexBy("%m : Tensor = aten::gt(%y, %0)", "%m"), "unsafe");
  EXPECT_EQ(indexBy("%a : Tensor = aten::isnan(%y)\n"
                    "%b : Tensor = aten::lt(%y, %z)\n"
                    "%m : Tensor = aten::__and__(%a, %b)",
                    "%m"),
            "unsafe");
  EXPECT_EQ(indexBy("%a : Tensor = aten::ne(%y, %0)\n"
                    "%b : Tensor = aten::view(%a, %shape)\n"
                    "%m : Tensor = aten::bitwise_not(%b)",
                    "%m"),
            "unsafe");
  EXPECT_EQ(
      indexBy("%m : Tensor = aten::to(%y, %bool, %false, %false, %none)", "%m"),
      "unsafe");
  EXPECT_EQ(indexBy("%m : Tensor = aten::logical_not(%y)", "%none, %m"),
            "unsafe");
}

TEST(Classify, AnIndexMadeByASearchIsSafe) {
  EXPECT_EQ(indexBy("%j : Tensor = aten::argmax(%y, %none, %false)", "%j"),
            "safe");
  EXPECT_EQ(indexBy("%v : Tensor, %j : Tensor = aten::topk(%y, %4, %m1, %true, "
                    "%true)",
                    "%none, %j"),
            "safe");
  // The values of the same operator may have any type.
  EXPECT_EQ(indexBy("%j : Tensor, %v : Tensor = aten::topk(%y, %4, %m1, %true, "
                    "%true)",
                    "%j"),
            "conditional");
  EXPECT_EQ(indexBy("%a : Tensor = aten::argsort(%y, %m1, %false)\n"
                    "%j : Tensor = aten::add(%a, %n, %1)",
                    "%j"),
            "safe");
}

TEST(Classify, AnIndexMadeOnTheCpuIsNotSafe) {
  EXPECT_EQ(
      indexBy("%j : Tensor = aten::arange(%4, %none, %none, %cuda, %none)",
              "%j"),
      "safe");
  EXPECT_EQ(indexBy("%j : Tensor = aten::arange(%4, %none, %none, %device, "
                    "%none)",
                    "%j"),
            "safe");
  EXPECT_EQ(
      indexBy("%j : Tensor = aten::arange(%4, %none, %none, %none, %none)",
              "%j"),
      "conditional");
}

TEST(Classify, AMaskedStoreIsSafeOnlyForAScalarThatLiesOnTheHost) {
  const auto store = [](const std::string& value, const std::string& indices,
                        const std::string& accumulate) {
    return classOf("%v : Tensor = " + value +
                   "\n%i : Tensor?[] = prim::ListConstruct(" + indices +
                   ")\n%r : Tensor = aten::index_put_(%x, %i, %v, " +
                   accumulate + ")");
  };
  const std::string host =
      "aten::full(%scalar_shape, %half, %none, %none, %cpu, %none)";
  EXPECT_EQ(store(host, "%mask", "%false"), "safe");
  EXPECT_EQ(store(host, "%mask", "%true"), "unsafe");
  EXPECT_EQ(store(host, "%mask, %mask", "%false"), "unsafe");
  EXPECT_EQ(store(host, "%mask, %y", "%false"), "unsafe");
  EXPECT_EQ(store("aten::full(%shape, %half, %none, %none, %cpu, %none)",
                  "%mask", "%false"),
            "unsafe");
  EXPECT_EQ(store("aten::full(%scalar_shape, %half, %none, %none, %cuda, "
                  "%none)",
                  "%mask", "%false"),
            "unsafe");
}

// ---- devices ----------------------------------------------------------------

TEST(Classify, ConversionsAreJudgedByWhereTheyLead) {
  const auto to = [](const std::string& from, const std::string& device) {
    return classOf("%r : Tensor = aten::to(" + from + ", " + device +
                   ", %4, %false, %false, %none)");
  };
  EXPECT_EQ(to("%x", "%cpu"), "unsafe");
  EXPECT_EQ(to("%x", "%cuda"), "conditional");
  EXPECT_EQ(to("%gpu", "%cuda"), "safe");
  EXPECT_EQ(to("%host", "%cuda"), "unsafe");
  EXPECT_EQ(to("%x", "%device"), "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::to(%x, %4, %0, %none, %none, %false, "
                    "%false, %none)"),
            "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::to(%x, %y, %false, %false, %none)"),
            "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::to(%gpu, %index, %false, %false, "
                    "%none)"),
            "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::cuda(%x)"), "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::cuda(%gpu)"), "safe");
  EXPECT_EQ(classOf("%r : Tensor = aten::copy_(%x, %y, %false)"),
            "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::copy_(%gpu, %index, %false)"), "safe");
}

TEST(Classify, LiteralsAreUnsafeOnAGpuAndConditionalElsewhere) {
  EXPECT_EQ(classOf("%r : Tensor = aten::tensor(%n, %none, %cuda, %false)"),
            "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::tensor(%ints, %none, %cuda, %false)"),
            "unsafe");
  EXPECT_EQ(classOf("%r : Tensor = aten::tensor(%n, %none, %none, %false)"),
            "conditional");
  EXPECT_EQ(classOf("%r : Tensor = aten::tensor(%n, %none, %device, %false)"),
            "conditional");
}

TEST(Classify, AnAbsentGeneratorIsNoGenerator) {
  EXPECT_EQ(classOf("%r : Tensor = aten::bernoulli(%x, %none)"), "safe");
  EXPECT_EQ(reasonOf("%r : Tensor = aten::bernoulli(%x, %generator)"),
            "generator");
}

// ---- the user's options -----------------------------------------------------

TEST(Classify, TaggedOperatorsStayEager) {
  PartitionOptions options;
  options.no_graph_ops = {"aten::relu"};
  const CaptureSafety safety =
      classify("%r : Tensor = aten::relu(%x)", options);
  EXPECT_EQ(safety.kind, CaptureClass::kUnsafe);
  EXPECT_EQ(safety.reason, Reason::kTagged);
  EXPECT_NE(safety.sentence.find("aten::relu"), std::string::npos);
  EXPECT_EQ(classOf("%r : Tensor = aten::tanh(%x)", options), "safe");
}

TEST(Classify, ForeignOperatorsAreEagerUntilTheUserVouchesForThem) {
  const std::string line = "%r : Tensor = pcg_classify_test::plain(%x)";
  PartitionOptions options;
  EXPECT_EQ(reasonOf(line, options), "foreign-operator");
  options.graph_safe_ops = {"pcg_classify_test::*"};
  EXPECT_EQ(classOf(line, options), "safe");
  options.no_graph_ops = {"pcg_classify_test::plain"};
  EXPECT_EQ(reasonOf(line, options), "tagged");
}

TEST(Classify, ForeignOperatorsThatOnlyHandleScalarsMayHaveSideEffects) {
  EXPECT_EQ(reasonOf("%r : int = pcg_classify_test::count(%n)"),
            "foreign-operator");
}

TEST(Classify, TagsOfForeignOperatorsNameTheReason) {
  EXPECT_EQ(reasonOf("%r : Tensor = pcg_classify_test::marked(%x)"), "tagged");
  EXPECT_EQ(reasonOf("%r : Tensor = pcg_classify_test::sized(%x)"),
            "dynamic-shape");
  EXPECT_EQ(reasonOf("%r : bool = pcg_classify_test::reading(%x)"),
            "host-read");
}

TEST(Classify, NobodyCanVouchForAten) {
  PartitionOptions options;
  options.graph_safe_ops = {"*", "aten::item"};
  EXPECT_EQ(classOf("%r : Scalar = aten::item(%x)", options), "unsafe");
}

// ---- names ------------------------------------------------------------------

TEST(Classify, QualifiedNamesCarryTheOverload) {
  EXPECT_EQ(qualifiedName(Line("%r : int = aten::size(%x, %0)").node()),
            "aten::size.int");
  EXPECT_EQ(qualifiedName(Line("%r : Tensor = aten::relu(%x)").node()),
            "aten::relu");
  EXPECT_EQ(qualifiedName(Line("%r : Tensor = mylib::op(%x)").node()),
            "mylib::op");
}

TEST(Classify, PatternsMeanAnOverloadAnOperatorOrABeginning) {
  EXPECT_TRUE(matchesPattern("aten::add.Tensor", "aten::add.Tensor"));
  EXPECT_TRUE(matchesPattern("aten::add.Tensor", "aten::add"));
  EXPECT_TRUE(matchesPattern("mylib::op.out", "mylib::*"));
  EXPECT_TRUE(matchesPattern("mylib::op", "*"));
  EXPECT_FALSE(matchesPattern("aten::add.Tensor", "aten::add.Scalar"));
  EXPECT_FALSE(matchesPattern("aten::add_.Tensor", "aten::add"));
  EXPECT_FALSE(matchesPattern("aten::add", "aten::add.Tensor"));
  EXPECT_FALSE(matchesPattern("yourlib::op", "mylib::*"));
  EXPECT_FALSE(matchesPattern("aten::add", ""));
}

}  // namespace
}  // namespace pcg
