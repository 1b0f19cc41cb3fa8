#include "passes/classify.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "passes/capture_safety_table.h"
#include "passes/provenance.h"

namespace pcg {
namespace {

using c10::IValue;
using c10::TypeKind;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace aten = torch::jit::aten;

// What is known of a condition before any call: it holds, it does not, or
// (nullopt) only a call shows.
using Decision = std::optional<bool>;

// How far a value is followed back to what made it.
constexpr int kMostSteps = 8;

// ---- arguments --------------------------------------------------------------

const Value* argument(const Node& node, std::string_view name) {
  const auto* schema = node.maybeSchema();
  if (schema == nullptr)
    return nullptr;
  const auto index = schema->argumentIndexWithName(std::string(name));
  if (!index || static_cast<std::size_t>(*index) >= node.inputs().size()) {
    return nullptr;
  }
  return node.input(*index);
}

std::optional<IValue> constantOf(const Value* value) {
  if (value == nullptr)
    return std::nullopt;
  return torch::jit::toIValue(value);
}

std::optional<double> numberOf(const Value* value) {
  const auto constant = constantOf(value);
  if (!constant || !constant->isScalar())
    return std::nullopt;
  if (constant->isComplexDouble())
    return std::nullopt;
  return constant->toScalar().toDouble();
}

Decision isTrue(const Value* value) {
  const auto constant = constantOf(value);
  if (!constant || !constant->isBool())
    return std::nullopt;
  return constant->toBool();
}

Decision isPresent(const Value* value) {
  if (value == nullptr)
    return std::nullopt;
  if (value->mustBeNone())
    return false;
  if (value->type()->kind() == TypeKind::OptionalType)
    return std::nullopt;
  return true;
}

/// Holds as soon as it holds for one, and fails only where it does for all.
template <typename Decide>
Decision anyOf(const Node& node, std::string_view names, const Decide& decide) {
  Decision any = false;
  forEachArgumentName(names, [&](std::string_view name) {
    if (any && *any)
      return;
    const Decision one = decide(argument(node, name));
    if (!one || *one)
      any = one;
  });
  return any;
}

bool isGeneratorType(const c10::Type& type) {
  if (type.kind() == TypeKind::GeneratorType)
    return true;
  return type.kind() == TypeKind::OptionalType &&
         type.containedType(0)->kind() == TypeKind::GeneratorType;
}

bool usesGenerator(const Node& node) {
  const auto* schema = node.maybeSchema();
  if (schema == nullptr)
    return false;
  const auto& arguments = schema->arguments();
  const std::size_t count = std::min(arguments.size(), node.inputs().size());
  for (std::size_t i = 0; i < count; ++i) {
    if (isGeneratorType(*arguments[i].type()) && !node.input(i)->mustBeNone()) {
      return true;
    }
  }
  return false;
}

// ---- where values lie -------------------------------------------------------

std::optional<c10::DeviceType> staticDevice(const Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  if (!type || !type->device())
    return std::nullopt;
  return type->device()->type();
}

/// For a Device argument: true on a GPU, false on the CPU or where it is None,
/// which means the CPU for an operator that makes a tensor.
Decision namesGpu(const Value* device) {
  if (device == nullptr)
    return std::nullopt;
  if (device->mustBeNone())
    return false;
  const auto constant = constantOf(device);
  if (!constant || !constant->isDevice())
    return std::nullopt;
  return constant->toDevice().type() != c10::kCPU;
}

bool isEmptyList(const Value* list) {
  if (list->node()->kind() == prim::ListConstruct) {
    return list->node()->inputs().empty();
  }
  const auto constant = constantOf(list);
  return constant && constant->isList() && constant->toListRef().empty();
}

/// A CPU tensor of dimension 0 that wraps a host value.
bool isHostScalar(const Value* value) {
  const Node& node = *value->node();
  switch (node.kind()) {
    case prim::NumToTensor:
      return true;
    case aten::full:
      return isEmptyList(node.input(0)) &&
             namesGpu(argument(node, "device")) == Decision(false);
    case aten::scalar_tensor:
      return namesGpu(argument(node, "device")) == Decision(false);
    case aten::tensor:
      return node.input(0)->type()->kind() != TypeKind::ListType &&
             namesGpu(argument(node, "device")) == Decision(false);
    default:
      return false;
  }
}

// ---- conditions -------------------------------------------------------------

/// What is known of a tensor used as an index.
enum class IndexKind {
  kAbsent,   ///< None: a whole dimension.
  kMask,     ///< Bool or Byte.
  kInteger,  ///< Integers that lie where the data lies.
  kOpen,
};

// The dtype that a conversion or factory asks for.
std::optional<c10::ScalarType> requestedDtype(const Node& node) {
  const auto constant = constantOf(argument(node, "dtype"));
  if (!constant || !constant->isInt())
    return std::nullopt;
  return static_cast<c10::ScalarType>(constant->toInt());
}

IndexKind kindOfDtype(std::optional<c10::ScalarType> dtype) {
  if (!dtype)
    return IndexKind::kOpen;
  if (*dtype == c10::kBool || *dtype == c10::kByte)
    return IndexKind::kMask;
  return IndexKind::kInteger;
}

IndexKind classifyIndex(const Value* value, int steps);

// Integer arithmetic keeps integers; what mixes in a float or an open tensor
// stays open.
IndexKind classifyArithmetic(const Node& node, int steps) {
  for (const Value* input : node.inputs()) {
    const auto kind = input->type()->kind();
    if (kind == TypeKind::IntType || input->mustBeNone())
      continue;
    if (kind == TypeKind::TensorType &&
        classifyIndex(input, steps) == IndexKind::kInteger) {
      continue;
    }
    return IndexKind::kOpen;
  }
  return IndexKind::kInteger;
}

IndexKind classifyProducer(const Value* value, int steps) {
  const Node& node = *value->node();
  switch (node.kind()) {
    case aten::eq:
    case aten::ne:
    case aten::lt:
    case aten::le:
    case aten::gt:
    case aten::ge:
    case aten::less:
    case aten::less_equal:
    case aten::greater:
    case aten::greater_equal:
    case aten::not_equal:
    case aten::logical_and:
    case aten::logical_or:
    case aten::logical_xor:
    case aten::logical_not:
    case aten::isnan:
    case aten::isinf:
    case aten::isfinite:
    case aten::isposinf:
    case aten::isneginf:
    case aten::isreal:
    case aten::isclose:
    case aten::isin:
    case aten::signbit:
      return IndexKind::kMask;

    case aten::__and__:
    case aten::__or__:
    case aten::__xor__:
    case aten::bitwise_and:
    case aten::bitwise_or:
    case aten::bitwise_xor:
    case aten::bitwise_not:
      // Bool with Bool is Bool; both sides of a mask are masks in practice,
      // but a Long operand would make the result one.
      for (const Value* input : node.inputs()) {
        if (input->type()->kind() != TypeKind::TensorType) {
          return IndexKind::kOpen;
        }
        const IndexKind kind = classifyIndex(input, steps);
        if (kind != IndexKind::kMask)
          return IndexKind::kOpen;
      }
      return IndexKind::kMask;

    case aten::argmax:
    case aten::argmin:
    case aten::argsort:
    case aten::nonzero:
    case aten::nonzero_static:
    case aten::argwhere:
    case aten::multinomial:
    case aten::searchsorted:
    case aten::bucketize:
      return IndexKind::kInteger;
    case aten::sort:
    case aten::topk:
    case aten::kthvalue:
    case aten::mode:
    case aten::max:
    case aten::min:
    case aten::median:
    case aten::cummax:
    case aten::cummin:
      return value->offset() == 1 ? IndexKind::kInteger : IndexKind::kOpen;

    case aten::arange:
    case aten::randperm:
    case aten::randint:
    case aten::tril_indices:
    case aten::triu_indices: {
      // Made on the CPU unless a device is given.
      if (namesGpu(argument(node, "device")) == Decision(false)) {
        return IndexKind::kOpen;
      }
      const auto dtype = argument(node, "dtype");
      if (dtype != nullptr && !dtype->mustBeNone()) {
        return kindOfDtype(requestedDtype(node));
      }
      const bool whole = std::all_of(
          node.inputs().begin(), node.inputs().end(), [](const Value* input) {
            return input->type()->kind() != TypeKind::FloatType &&
                   input->type()->kind() != TypeKind::NumberType;
          });
      return whole ? IndexKind::kInteger : IndexKind::kOpen;
    }

    case aten::zeros:
    case aten::ones:
    case aten::full:
    case aten::empty:
    case aten::zeros_like:
    case aten::ones_like:
    case aten::full_like:
    case aten::to: {
      // A mask on either device is read on the host; integers are fine only
      // where they lie with the data.
      const IndexKind kind = kindOfDtype(requestedDtype(node));
      if (kind != IndexKind::kInteger)
        return kind;
      const Value* device = argument(node, "device");
      if (device != nullptr && !device->mustBeNone()) {
        return namesGpu(device) == Decision(true) ? IndexKind::kInteger
                                                  : IndexKind::kOpen;
      }
      const bool stays =
          node.input(0)->type()->kind() == TypeKind::TensorType &&
          classifyIndex(node.input(0), steps) != IndexKind::kOpen;
      return stays ? IndexKind::kInteger : IndexKind::kOpen;
    }

    case aten::add:
    case aten::sub:
    case aten::mul:
    case aten::remainder:
    case aten::floor_divide:
    case aten::clamp:
    case aten::clamp_min:
    case aten::clamp_max:
    case aten::minimum:
    case aten::maximum:
      return classifyArithmetic(node, steps);

    case aten::view:
    case aten::reshape:
    case aten::flatten:
    case aten::expand:
    case aten::expand_as:
    case aten::unsqueeze:
    case aten::squeeze:
    case aten::select:
    case aten::slice:
    case aten::narrow:
    case aten::transpose:
    case aten::permute:
    case aten::t:
    case aten::repeat:
    case aten::contiguous:
    case aten::clone:
    case aten::detach:
    case prim::unchecked_cast:
    case prim::unchecked_unwrap_optional:
    case aten::_unwrap_optional:
      return classifyIndex(node.input(0), steps);
    default:
      return IndexKind::kOpen;
  }
}

IndexKind classifyIndex(const Value* value, int steps) {
  if (value->mustBeNone())
    return IndexKind::kAbsent;
  if (const auto type = value->type()->cast<c10::TensorType>()) {
    const IndexKind kind = kindOfDtype(type->scalarType());
    if (kind == IndexKind::kMask)
      return kind;
    if (kind == IndexKind::kInteger && type->device() &&
        !type->device()->is_cpu()) {
      return kind;
    }
  }
  if (steps == 0)
    return IndexKind::kOpen;
  return classifyProducer(value, steps - 1);
}

// ATen runs a store through one mask as masked_fill where the stored value is
// a CPU scalar.
bool isMaskedFill(const Node& node) {
  const Value* values = argument(node, "values");
  const Value* accumulate = argument(node, "accumulate");
  return values != nullptr && isHostScalar(values) && accumulate != nullptr &&
         isTrue(accumulate) == Decision(false);
}

Decision usesMaskIndex(const Node& node, std::string_view name) {
  const Value* indices = argument(node, name);
  if (indices == nullptr || indices->node()->kind() != prim::ListConstruct) {
    return std::nullopt;
  }
  int masks = 0;
  int integers = 0;
  int open = 0;
  for (const Value* index : indices->node()->inputs()) {
    switch (classifyIndex(index, kMostSteps)) {
      case IndexKind::kAbsent:
        break;
      case IndexKind::kMask:
        ++masks;
        break;
      case IndexKind::kInteger:
        ++integers;
        break;
      case IndexKind::kOpen:
        ++open;
        break;
    }
  }
  if (masks == 1 && integers == 0 && open == 0 && isMaskedFill(node)) {
    return false;
  }
  if (masks > 0)
    return true;
  if (open > 0)
    return std::nullopt;
  return false;
}

// `name` is the argument that says where the data goes: a device, another
// tensor, or empty for "to the GPU".
Decision changesDevice(const Node& node, std::string_view name) {
  const auto source = staticDevice(node.input(0));
  if (name.empty()) {
    if (!source)
      return std::nullopt;
    return *source == c10::kCPU;
  }
  const Value* target = argument(node, name);
  if (target == nullptr)
    return std::nullopt;
  if (containsTensor(*target->type())) {
    const auto other = staticDevice(target);
    if (!source || !other)
      return std::nullopt;
    return *source != *other;
  }
  if (target->mustBeNone())
    return false;  // Only the dtype or layout changes.
  const Decision gpu = namesGpu(target);
  if (!gpu)
    return std::nullopt;
  if (!*gpu)
    return true;
  if (!source)
    return std::nullopt;
  return *source == c10::kCPU;
}

Decision readsScalar(const Value* value) {
  if (value == nullptr)
    return std::nullopt;
  if (value->type()->kind() != TypeKind::TensorType)
    return false;
  if (isHostScalar(value))
    return false;
  const auto device = staticDevice(value);
  if (!device)
    return std::nullopt;
  return *device != c10::kCPU;
}

// Number of dimensions in a list argument, or 0 where it is unknown.
std::size_t lengthOf(const Value* list) {
  if (list == nullptr || list->mustBeNone())
    return 0;
  if (list->node()->kind() == prim::ListConstruct) {
    return list->node()->inputs().size();
  }
  const auto constant = constantOf(list);
  return constant && constant->isList() ? constant->toListRef().size() : 0;
}

Decision needsSingularValues(const Node& node, std::string_view name) {
  const Value* order = argument(node, name);
  if (order == nullptr)
    return std::nullopt;
  if (order->mustBeNone())
    return false;
  const auto constant = constantOf(order);
  if (!constant)
    return std::nullopt;
  if (constant->isString())
    return constant->toStringRef() == "nuc";
  const auto number = numberOf(order);
  if (!number)
    return std::nullopt;
  if (std::fabs(*number) != 2.0)
    return false;
  // Order 2 of a vector is a plain sum of squares.
  switch (lengthOf(argument(node, "dim"))) {
    case 1:
      return false;
    case 2:
      return true;
    default:
      return std::nullopt;
  }
}

Decision smoothsWeightedMean(const Node& node) {
  constexpr double kMeanReduction = 1;
  const Decision weighted = isPresent(argument(node, "weight"));
  const auto reduction = numberOf(argument(node, "reduction"));
  const auto smoothing = numberOf(argument(node, "label_smoothing"));
  if ((weighted && !*weighted) || (reduction && *reduction != kMeanReduction) ||
      (smoothing && *smoothing == 0)) {
    return false;
  }
  if (weighted && reduction && smoothing)
    return true;
  return std::nullopt;
}

Decision equalArguments(const Node& node, std::string_view names) {
  const std::size_t comma = names.find(',');
  const auto first = numberOf(argument(node, names.substr(0, comma)));
  const auto second = numberOf(argument(node, names.substr(comma + 1)));
  if (!first || !second)
    return std::nullopt;
  return *first == *second;
}

Decision decide(const Node& node, const OperatorRule& rule) {
  switch (rule.condition) {
    case Condition::kNone:
      return false;
    case Condition::kBoolIndex:
      return usesMaskIndex(node, rule.argument);
    case Condition::kDeviceChange:
      return changesDevice(node, rule.argument);
    case Condition::kMissingArgument: {
      const Decision present = isPresent(argument(node, rule.argument));
      if (!present)
        return std::nullopt;
      return !*present;
    }
    case Condition::kPresentArgument:
      return anyOf(node, rule.argument, isPresent);
    case Condition::kTrueArgument:
      return isTrue(argument(node, rule.argument));
    case Condition::kFalseArgument: {
      const Decision truth = isTrue(argument(node, rule.argument));
      if (!truth)
        return std::nullopt;
      return !*truth;
    }
    case Condition::kNegativeArgument: {
      const auto number = numberOf(argument(node, rule.argument));
      if (!number)
        return std::nullopt;
      return *number < 0;
    }
    case Condition::kEqualArguments:
      return equalArguments(node, rule.argument);
    case Condition::kTensorScalar:
      return anyOf(node, rule.argument, readsScalar);
    case Condition::kTensorArgument:
      return std::any_of(
          node.inputs().begin(), node.inputs().end(),
          [](const Value* input) { return containsTensor(*input->type()); });
    case Condition::kHostLiteral:
      // On the CPU too it is no more than conditional: the tensor it makes
      // there is computed on the host.
      return namesGpu(argument(node, rule.argument)) == Decision(true)
                 ? Decision(true)
                 : std::nullopt;
    case Condition::kSpectralNorm:
      return needsSingularValues(node, rule.argument);
    case Condition::kLabelSmoothing:
      return smoothsWeightedMean(node);
    case Condition::kRuntime:
      return std::nullopt;
  }
  return std::nullopt;
}

// ---- verdicts ---------------------------------------------------------------

CaptureSafety safe() {
  return {CaptureClass::kSafe, Reason::kNone, ""};
}

CaptureSafety glue() {
  return {CaptureClass::kGlue, Reason::kNone, ""};
}

CaptureSafety unsafe(Reason reason, std::string sentence = "") {
  if (sentence.empty())
    sentence = describe(reason);
  return {CaptureClass::kUnsafe, reason, std::move(sentence)};
}

CaptureSafety applyRule(const Node& node, const OperatorRule& rule) {
  std::string sentence(rule.sentence);
  if (rule.condition == Condition::kNone) {
    return {rule.kind, rule.reason, std::move(sentence)};
  }
  const Decision holds = decide(node, rule);
  if (!holds) {
    return {CaptureClass::kConditional, rule.reason, std::move(sentence)};
  }
  if (*holds)
    return unsafe(rule.reason, std::move(sentence));
  return rule.kind == CaptureClass::kGlue ? glue() : safe();
}

std::optional<CaptureSafety> judgeTags(const torch::jit::Operator& op) {
  for (const at::Tag tag : op.getTags()) {
    switch (tag) {
      case at::Tag::cudagraph_unsafe:
        return unsafe(Reason::kTagged,
                      "is marked cudagraph_unsafe by its authors");
      case at::Tag::data_dependent_output:
        return unsafe(Reason::kHostRead);
      case at::Tag::dynamic_output_shape:
        return unsafe(Reason::kDynamicShape);
      default:
        break;
    }
  }
  return std::nullopt;
}

const std::string* findPattern(std::string_view name,
                               const std::vector<std::string>& patterns) {
  const auto it = std::find_if(patterns.begin(), patterns.end(),
                               [&](const std::string& pattern) {
                                 return matchesPattern(name, pattern);
                               });
  return it == patterns.end() ? nullptr : &*it;
}

}  // namespace

CaptureSafety classifyOperator(const Node& node,
                               const PartitionOptions& options) {
  const auto kind = node.kind();
  const bool known_namespace = kind.is_aten() || kind.is_prim();
  const std::string name = qualifiedName(node);

  if (const auto* pattern = findPattern(name, options.no_graph_ops)) {
    return unsafe(Reason::kTagged, "is tagged no_graph (" + *pattern + ")");
  }
  if (!known_namespace &&
      findPattern(name, options.graph_safe_ops) != nullptr) {
    return safe();
  }

  const torch::jit::Operator* op = node.maybeOperator();
  if (op == nullptr && kind.is_aten())
    return unsafe(Reason::kUnknownOperator);
  if (usesGenerator(node))
    return unsafe(Reason::kGenerator);
  if (const OperatorRule* rule = findOperatorRule(name)) {
    return applyRule(node, *rule);
  }
  if (op == nullptr)
    return unsafe(Reason::kUnknownOperator);
  if (auto verdict = judgeTags(*op))
    return std::move(*verdict);
  if (!known_namespace)
    return unsafe(Reason::kForeignOperator);
  return isHostOnlySchema(op->schema()) ? glue() : safe();
}

std::string qualifiedName(const Node& node) {
  std::string name = node.kind().toQualString();
  const auto* schema = node.maybeSchema();
  if (schema != nullptr && !schema->overload_name().empty()) {
    name += '.';
    name += schema->overload_name();
  }
  return name;
}

bool matchesPattern(std::string_view name, std::string_view pattern) {
  if (!pattern.empty() && pattern.back() == '*') {
    pattern.remove_suffix(1);
    return name.substr(0, pattern.size()) == pattern;
  }
  return name == pattern || name.substr(0, name.find('.')) == pattern;
}

}  // namespace pcg
