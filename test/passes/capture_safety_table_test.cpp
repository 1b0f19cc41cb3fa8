#include "passes/capture_safety_table.h"

#include <ATen/core/function_schema.h>
#include <ATen/ops/atleast_1d.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/unsafe_chunk.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

namespace pcg {
namespace {

std::string nameOf(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty()
             ? schema.name()
             : schema.name() + "." + schema.overload_name();
}

/// Every registered operator, by the row that covers it.
std::map<std::string_view, std::vector<const c10::FunctionSchema*>> coverage() {
  // The operators are never unregistered, so their schemas stay.
  static const auto kOperators = torch::jit::getAllOperators();
  std::map<std::string_view, std::vector<const c10::FunctionSchema*>> covered;
  for (const auto& op : kOperators) {
    const OperatorRule* rule = findOperatorRule(nameOf(op->schema()));
    if (rule != nullptr)
      covered[rule->name].push_back(&op->schema());
  }
  return covered;
}

bool startsWith(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

// Node kinds that the IR has without a registered operator, and operators that
// are registered by libraries other than libtorch_cpu: the CUDA and Python
// parts of torch, torchvision, pcg itself.
bool livesElsewhere(std::string_view name) {
  static const std::set<std::string_view> kKinds = {
      "prim::If",
      "prim::Loop",
      "prim::Param",
      "prim::Return",
      "prim::Constant",
      "prim::GetAttr",
      "prim::SetAttr",
      "prim::HasAttr",
      "prim::CallMethod",
      "prim::CallFunction",
      "prim::CreateObject",
      "prim::Closure",
      "prim::Enter",
      "prim::Exit",
      "prim::ListConstruct",
      "prim::ListUnpack",
      "prim::TupleConstruct",
      "prim::TupleSlice",
      "prim::DictConstruct",
      "prim::EmptyListLiteral",
      "prim::annotate",
      "prim::isinstance",
      "prim::shape",
      "prim::fork",
      "prim::forkClosure",
      "prim::awaitable",
      "prim::awaitableClosure",
      "prim::TracedFork",
      "prim::TracedAttr",
      "prim::TracedModuleForward",
      "prim::PackPadded",
      "prim::PadPacked",
      "prim::MKLDNNGroup",
      "prim::FunctionalGraph",
      "prim::CudaFusionGroup",
      "prim::CudaFusionGuard",
      "prim::PythonOp",
      "prim::rpc_async",
      "prim::rpc_sync",
      "prim::rpc_remote",
      "aten::dist_backward",
      "aten::to_here",
      "aten::local_value",
      "aten::owner",
      "aten::owner_name",
      "aten::is_owner",
      "aten::confirmed_by_owner",
  };
  return kKinds.count(name) != 0 || startsWith(name, "cuda::") ||
         startsWith(name, "torchvision::") || startsWith(name, "pcg::");
}

std::vector<std::string> split(std::string_view names) {
  std::vector<std::string> result;
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    result.emplace_back(names.substr(0, comma));
    if (comma == std::string_view::npos)
      break;
    names.remove_prefix(comma + 1);
  }
  return result;
}

TEST(CaptureSafetyTable, EveryRowCoversAnOperatorOfThisTorch) {
  const auto covered = coverage();
  for (const OperatorRule& rule : operatorRules()) {
    if (livesElsewhere(rule.name))
      continue;
    EXPECT_EQ(covered.count(rule.name), 1u) << rule.name;
  }
}

// An operator of aten or prim that no row, tag or schema speaks of is taken for
// safe. The file lists those of the torch that the table was written for, one
// name a line; what another torch brings has to be looked at first.
TEST(CaptureSafetyTable, EveryOperatorTakenForSafeIsListed) {
  const std::string path =
      std::string(PCG_SOURCE_DIR) + "/test/passes/safe_by_default.txt";
  std::ifstream file(path);
  std::set<std::string> listed;
  for (std::string line; std::getline(file, line);)
    listed.insert(line);
  ASSERT_FALSE(listed.empty()) << path;
  std::set<std::string> found;
  for (const auto& op : torch::jit::getAllOperators()) {
    const c10::FunctionSchema& schema = op->schema();
    const std::string& name = schema.name();
    const auto tags = op->getTags();
    const bool tagged =
        std::any_of(tags.begin(), tags.end(), [](const at::Tag tag) {
          return tag == at::Tag::cudagraph_unsafe ||
                 tag == at::Tag::data_dependent_output ||
                 tag == at::Tag::dynamic_output_shape;
        });
    if ((startsWith(name, "aten::") || startsWith(name, "prim::")) &&
        findOperatorRule(nameOf(schema)) == nullptr && !tagged &&
        !isHostOnlySchema(schema)) {
      found.insert(name);
    }
  }
  for (const std::string& name : found) {
    EXPECT_EQ(listed.count(name), 1u)
        << name << " is in no row of the capture-safety table and not in "
        << path << ": find out whether a CUDA graph can hold it";
  }
}

TEST(CaptureSafetyTable, NoNameStandsInTwoRows) {
  std::set<std::string_view> seen;
  for (const OperatorRule& rule : operatorRules()) {
    EXPECT_TRUE(seen.insert(rule.name).second) << rule.name;
  }
}

TEST(CaptureSafetyTable, EveryRefusalHasAReasonAndASentence) {
  for (const OperatorRule& rule : operatorRules()) {
    const bool may_refuse = rule.kind == CaptureClass::kUnsafe ||
                            rule.condition != Condition::kNone;
    EXPECT_EQ(rule.reason != Reason::kNone, may_refuse) << rule.name;
    EXPECT_EQ(!rule.sentence.empty(), may_refuse) << rule.name;
    EXPECT_EQ(rule.kind == CaptureClass::kConditional ||
                  (rule.kind == CaptureClass::kGlue && may_refuse),
              rule.condition != Condition::kNone)
        << rule.name;
  }
}

TEST(CaptureSafetyTable, ConditionsNameArgumentsThatTheirOperatorsHave) {
  const auto covered = coverage();
  for (const OperatorRule& rule : operatorRules()) {
    if (rule.argument.empty())
      continue;
    const auto operators = covered.find(rule.name);
    ASSERT_NE(operators, covered.end()) << rule.name;
    for (const auto* schema : operators->second) {
      // A scalar argument may stand for the tensor in some overloads, but all
      // names must occur.
      for (const std::string& argument : split(rule.argument)) {
        EXPECT_TRUE(schema->argumentIndexWithName(argument))
            << nameOf(*schema) << " has no argument " << argument;
      }
    }
  }
}

TEST(CaptureSafetyTable, AnOverloadsOwnRowWins) {
  EXPECT_EQ(findOperatorRule("aten::sparse_dim")->kind, CaptureClass::kGlue);
  EXPECT_EQ(findOperatorRule("aten::sparse_dim")->name, "aten::sparse_dim");
}

TEST(CaptureSafetyTable, ARowForAllOverloadsIncludesTheUnnamedOne) {
  EXPECT_EQ(findOperatorRule("aten::linalg_inv")->name, "aten::linalg_inv.*");
  EXPECT_EQ(findOperatorRule("aten::linalg_inv.out")->name,
            "aten::linalg_inv.*");
  EXPECT_EQ(findOperatorRule("aten::linalg_inv_ex")->name,
            "aten::linalg_inv_ex.*");
}

TEST(CaptureSafetyTable, ARowForTheUnnamedOverloadLeavesTheOthersAlone) {
  EXPECT_NE(findOperatorRule("aten::where"), nullptr);
  EXPECT_EQ(findOperatorRule("aten::where.self"), nullptr);
}

TEST(CaptureSafetyTable, APrefixRowCoversWhatNoOtherRowNames) {
  EXPECT_EQ(findOperatorRule("aten::_nested_sum_backward")->name,
            "aten::_nested_*");
  EXPECT_EQ(findOperatorRule("cuda::synchronize.device")->name, "cuda::*");
  EXPECT_EQ(findOperatorRule("mylib::op"), nullptr);
}

TEST(CaptureSafetyTable, SchemasOfHostScalarsAndContainersAreHostOnly) {
  for (const char* text :
       {"aten::add.int(int a, int b) -> int",
        "aten::append.t(t[](a!) self, t(c -> *) el) -> t[](a!)",
        "aten::__getitem__.Dict_str(Dict(str, t) self, str key) -> t(*)",
        "aten::upper(str self) -> str", "aten::device(str a) -> Device"}) {
    EXPECT_TRUE(isHostOnlySchema(torch::jit::parseSchema(text))) << text;
  }
}

TEST(CaptureSafetyTable, SchemasThatTouchTensorsOrObjectsAreNotHostOnly) {
  for (const char* text :
       {"aten::relu(Tensor self) -> Tensor",
        "aten::zeros(int[] size) -> Tensor",
        "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
        "aten::values.str(Dict(str, Tensor) self) -> int",
        "aten::seed(Generator self) -> int", "aten::wait(Future(t) self) -> t",
        "prim::tolist(...) -> ...", "aten::dequantize.any(Any t) -> Any"}) {
    EXPECT_FALSE(isHostOnlySchema(torch::jit::parseSchema(text))) << text;
  }
}

TEST(CaptureSafetyTable, HiddenAliasesAreKnownInEveryOverload) {
  for (const char* name :
       {"aten::dropout", "aten::type_as", "aten::einsum", "aten::meshgrid",
        "aten::meshgrid.indexing", "aten::atleast_1d.Sequence", "aten::grad",
        "aten::unsafe_split.Tensor", "aten::broadcast_tensors"}) {
    EXPECT_TRUE(liesAboutAliasing(name)) << name;
  }
  for (const char* name : {"aten::relu", "aten::view", "aten::dropout_",
                           "aten::expand_as", "aten::add.Tensor"}) {
    EXPECT_FALSE(liesAboutAliasing(name)) << name;
  }
}

// Why the list exists. Where one of these no longer holds, torch has changed
// and the list may shrink.
TEST(CaptureSafetyTable, TorchReturnsInputsThatItsSchemasDeclareFresh) {
  const at::Tensor x = at::ones({4});
  EXPECT_TRUE(at::dropout(x, 0.5, false).is_alias_of(x));
  EXPECT_TRUE(x.type_as(x).is_alias_of(x));
  EXPECT_TRUE(at::einsum("i->i", {x}).is_alias_of(x));
  EXPECT_TRUE(at::meshgrid({x, x}, "ij")[0].is_alias_of(x));
  EXPECT_TRUE(at::atleast_1d(x).is_alias_of(x));
  EXPECT_TRUE(at::broadcast_tensors({x, x})[1].is_alias_of(x));
  EXPECT_TRUE(at::unsafe_chunk(x, 2)[0].is_alias_of(x));
  EXPECT_TRUE(x.sum_to_size({4}).is_alias_of(x));
}

TEST(CaptureSafety, EveryReasonHasItsOwnIdentifierAndSentence) {
  std::set<std::string> identifiers;
  std::set<std::string> sentences;
  const int last = static_cast<int>(Reason::kTooSmall);
  for (int i = 0; i <= last; ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_TRUE(identifiers.insert(toString(reason)).second);
    EXPECT_TRUE(sentences.insert(describe(reason)).second);
    EXPECT_GT(std::string(describe(reason)).size(), 10u);
  }
}

TEST(CaptureSafety, ClassesAreNamedAsInReports) {
  EXPECT_STREQ(toString(CaptureClass::kSafe), "safe");
  EXPECT_STREQ(toString(CaptureClass::kGlue), "glue");
  EXPECT_STREQ(toString(CaptureClass::kConditional), "conditional");
  EXPECT_STREQ(toString(CaptureClass::kUnsafe), "unsafe");
}

}  // namespace
}  // namespace pcg
