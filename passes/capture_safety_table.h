#pragma once

#include <string_view>
#include <vector>

#include "passes/capture_safety.h"

namespace c10 {
struct FunctionSchema;
}

namespace pcg {

/// A condition on a node's arguments that decides a conditional operator. The
/// operator is unsafe where the condition holds.
enum class Condition {
  kNone,
  kBoolIndex,         ///< An index tensor is Bool or Byte, or on the CPU.
  kDeviceChange,      ///< It moves data between host and device.
  kMissingArgument,   ///< The named argument is None.
  kPresentArgument,   ///< One of the named arguments is not None.
  kTrueArgument,      ///< The named argument is True.
  kFalseArgument,     ///< The named argument is False.
  kNegativeArgument,  ///< The named argument is negative.
  kEqualArguments,    ///< The two named arguments are equal.
  kTensorScalar,      ///< A 0-dim CUDA tensor is read as a scalar.
  kTensorArgument,    ///< Some argument is or holds a tensor.
  kHostLiteral,       ///< Host values become a tensor on a GPU.
  kSpectralNorm,      ///< The named order of a matrix norm needs an SVD.
  kLabelSmoothing,    ///< A weighted mean loss smooths its labels.
  kRuntime,           ///< Only a call shows.
};

/// One row of the capture-safety table.
///
/// A row without condition says what the operator is. In a row with one, `kind`
/// is kConditional, or kGlue for an operator that launches nothing: the
/// condition makes the operator unsafe; where it is known not to hold, the
/// operator is safe, or glue.
struct OperatorRule {
  /// `aten::index.Tensor` (one overload; `aten::nonzero` is the unnamed one),
  /// `aten::inverse.*` (all overloads) or `aten::_nested_*` (a prefix).
  std::string_view name;
  CaptureClass kind = CaptureClass::kSafe;
  Reason reason = Reason::kNone;
  Condition condition = Condition::kNone;
  std::string_view argument;  ///< Names for the condition, comma-separated.
  std::string_view sentence;  ///< Follows the operator's name in a report.
};

/// Calls `visit` with each name of a row's comma-separated list.
template <typename Visit>
void forEachArgumentName(std::string_view names, const Visit& visit) {
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    visit(names.substr(0, comma));
    if (comma == std::string_view::npos)
      return;
    names.remove_prefix(comma + 1);
  }
}

/// The row for an operator, or nullptr: the row of its overload, else that of
/// all its overloads, else that of its longest prefix.
/// Thread safe; the table is constant.
const OperatorRule* findOperatorRule(std::string_view qualified_name);

/// All rows, in the order of the source.
const std::vector<OperatorRule>& operatorRules();

/// True if no argument and no result of the schema is or can hold a tensor,
/// generator, future, object or unknown value: arithmetic on host scalars,
/// strings, and the handling of lists and dicts whatever their elements are.
/// Such an operator of aten or prim is glue, unless the table has a row for it:
/// those that print, wait or change global state have one.
bool isHostOnlySchema(const c10::FunctionSchema& schema);

/// True if the operator's schema declares fresh results, or results that share
/// nothing among each other, though they may share memory with an argument or
/// with each other.
bool liesAboutAliasing(std::string_view qualified_name);

}  // namespace pcg
