#include "runtime/refusal.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "passes/capture_safety_table.h"
#include "runtime/nested_values.h"

namespace pcg {
namespace {

using c10::IValue;
using Arguments = c10::ArrayRef<IValue>;

CaptureSafety refusal(const OperatorRule& rule) {
  return unsafeBecause(rule.reason, std::string(rule.sentence));
}

const IValue* argument(const c10::FunctionSchema& schema, Arguments arguments,
                       std::string_view name) {
  const auto index = schema.argumentIndexWithName(std::string(name));
  if (!index || static_cast<std::size_t>(*index) >= arguments.size()) {
    return nullptr;
  }
  return &arguments[static_cast<std::size_t>(*index)];
}

// ATen runs a store of one CPU scalar through one mask as masked_fill.
bool isMaskedFill(const c10::FunctionSchema& schema, Arguments arguments) {
  const IValue* values = argument(schema, arguments, "values");
  const IValue* accumulate = argument(schema, arguments, "accumulate");
  return values != nullptr && values->isTensor() &&
         values->toTensor().numel() == 1 &&
         values->toTensor().device().is_cpu() && accumulate != nullptr &&
         !accumulate->toBool();
}

bool usesMask(const c10::FunctionSchema& schema, Arguments arguments,
              std::string_view name) {
  const IValue* indices = argument(schema, arguments, name);
  if (indices == nullptr)
    return false;
  int masks = 0;
  int others = 0;
  forEachTensor(*indices, [&](const at::Tensor& index) {
    const bool mask =
        index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    ++(mask ? masks : others);
  });
  if (masks == 1 && others == 0 && isMaskedFill(schema, arguments)) {
    return false;
  }
  return masks > 0;
}

bool holds(const OperatorRule& rule, const c10::FunctionSchema& schema,
           Arguments arguments) {
  const IValue* named = argument(schema, arguments, rule.argument);
  switch (rule.condition) {
    case Condition::kBoolIndex:
      return usesMask(schema, arguments, rule.argument);
    case Condition::kMissingArgument:
      return named != nullptr && named->isNone();
    case Condition::kPresentArgument: {
      bool present = false;
      forEachArgumentName(rule.argument, [&](std::string_view name) {
        const IValue* value = argument(schema, arguments, name);
        present |= value != nullptr && !value->isNone();
      });
      return present;
    }
    case Condition::kTrueArgument:
      return named != nullptr && named->isBool() && named->toBool();
    case Condition::kFalseArgument:
      return named != nullptr && named->isBool() && !named->toBool();
    case Condition::kNegativeArgument:
      return named != nullptr && named->isInt() && named->toInt() < 0;
    case Condition::kEqualArguments: {
      const std::size_t comma = rule.argument.find(',');
      const IValue* first =
          argument(schema, arguments, rule.argument.substr(0, comma));
      const IValue* second =
          argument(schema, arguments, rule.argument.substr(comma + 1));
      return first != nullptr && second != nullptr && first->isScalar() &&
             second->isScalar() &&
             first->toScalar().equal(second->toScalar().toDouble());
    }
    case Condition::kTensorScalar:
      return named != nullptr && named->isTensor() &&
             !named->toTensor().device().is_cpu();
    default:
      // What is left depends on more than the arguments show; the operators
      // underneath, or the capture, decide.
      return false;
  }
}

}  // namespace

bool isComposite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(
             c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

std::optional<CaptureSafety> refusalByTags(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::data_dependent_output)) {
    return unsafeBecause(Reason::kHostRead);
  }
  if (op.hasTag(at::Tag::dynamic_output_shape) &&
      findOperatorRule(c10::toString(op.operator_name())) == nullptr) {
    return unsafeBecause(Reason::kDynamicShape);
  }
  return std::nullopt;
}

std::optional<CaptureSafety> refusalOf(const c10::OperatorHandle& op,
                                       Arguments arguments) {
  const OperatorRule* rule =
      findOperatorRule(c10::toString(op.operator_name()));
  if (rule == nullptr)
    return refusalByTags(op);
  if (rule->kind == CaptureClass::kUnsafe)
    return refusal(*rule);
  if (rule->condition != Condition::kNone &&
      holds(*rule, op.schema(), arguments)) {
    return refusal(*rule);
  }
  return std::nullopt;
}

}  // namespace pcg
