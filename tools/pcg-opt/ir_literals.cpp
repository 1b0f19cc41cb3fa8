#include "tools/pcg-opt/ir_literals.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tools/pcg-opt/ir_types.h"

namespace pcg::opt {
namespace {

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;
using Kind = LiteralSyntax::Kind;

// Larger tensors of zeros take one element that is repeated.
constexpr std::int64_t kLargestDenseTensor = 1 << 20;

const char* describe(Kind kind) {
  switch (kind) {
    case Kind::kInt:
      return "an integer";
    case Kind::kFloat:
      return "a floating-point number";
    case Kind::kComplex:
      return "a complex number";
    case Kind::kBool:
      return "a truth value";
    case Kind::kNone:
      return "None";
    case Kind::kString:
      return "a string";
    case Kind::kType:
      return "a type";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kTensor:
    case Kind::kScalarTensor:
    case Kind::kPrintedTensor:
      return "a tensor";
  }
  return "a literal";
}

[[noreturn]] void mismatch(const LiteralSyntax& literal, const TypePtr& type) {
  std::string message = "a constant of type " + typeText(*type) +
                        " cannot be " + describe(literal.kind);
  if (type->kind() == TypeKind::TensorType) {
    message += "; tensors are written {1} or <Tensor>";
  }
  throw ReadError{literal.offset, std::move(message)};
}

bool isTensor(Kind kind) {
  return kind == Kind::kTensor || kind == Kind::kScalarTensor ||
         kind == Kind::kPrintedTensor;
}

TypePtr typeOf(const LiteralSyntax& literal) {
  switch (literal.kind) {
    case Kind::kInt:
      return c10::IntType::get();
    case Kind::kFloat:
      return c10::FloatType::get();
    case Kind::kComplex:
      return c10::ComplexType::get();
    case Kind::kBool:
      return c10::BoolType::get();
    case Kind::kString:
      return c10::StringType::get();
    case Kind::kNone:
      return c10::NoneType::get();
    case Kind::kTensor:
    case Kind::kScalarTensor:
    case Kind::kPrintedTensor:
      return c10::TensorType::get();
    case Kind::kList:
      if (literal.items.empty())
        break;
      return c10::ListType::create(typeOf(literal.items[0]));
    case Kind::kTuple: {
      std::vector<TypePtr> types;
      for (const auto& item : literal.items)
        types.push_back(typeOf(item));
      return c10::TupleType::create(std::move(types));
    }
    case Kind::kDict:
    case Kind::kType:
      break;
  }
  throw ReadError{literal.offset, std::string("the type of ") +
                                      describe(literal.kind) +
                                      " must be given, as in '%x : int[]'"};
}

// Number of elements, or nothing where it does not fit.
std::optional<std::int64_t> countElements(
    const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0)
      return std::nullopt;
    if (size != 0 && count > std::numeric_limits<std::int64_t>::max() / size) {
      return std::nullopt;
    }
    count *= size;
  }
  return count;
}

at::Tensor zeros(const LiteralSyntax& literal,
                 const std::vector<std::int64_t>& sizes,
                 const std::vector<std::int64_t>& strides,
                 c10::ScalarType dtype) {
  const auto count = countElements(sizes);
  if (!count)
    throw ReadError{literal.offset, "the tensor's sizes overflow"};
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  try {
    if (*count > kLargestDenseTensor) {
      return at::zeros({1}, options)
          .view(std::vector<std::int64_t>(sizes.size(), 1))
          .expand(sizes);
    }
    std::int64_t reach = 1;
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] < 0 || strides[i] > kLargestDenseTensor)
        reach = -1;
      if (reach >= 0 && sizes[i] > 1)
        reach += (sizes[i] - 1) * strides[i];
      if (reach > kLargestDenseTensor)
        reach = -1;
    }
    if (strides.size() != sizes.size() || reach < 0) {
      return at::zeros(sizes, options);
    }
    return at::zeros({reach}, options).as_strided(sizes, strides);
  } catch (const c10::Error&) {
    throw ReadError{literal.offset, "a tensor of this type cannot be made"};
  }
}

double toDouble(const LiteralSyntax& literal) {
  return literal.kind == Kind::kFloat ? literal.f
                                      : static_cast<double>(literal.i);
}

at::Tensor readTensor(const LiteralSyntax& literal,
                      const c10::TensorTypePtr& type) {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  if (const auto known = type->sizes().concrete_sizes())
    sizes = *known;
  if (const auto known = type->strides().concrete_sizes())
    strides = *known;
  auto dtype = type->scalarType();

  if (literal.kind == Kind::kTensor) {
    return zeros(literal, sizes, strides, dtype.value_or(at::kFloat));
  }
  if (literal.kind == Kind::kScalarTensor) {
    const LiteralSyntax& item = literal.items[0];
    const bool number = item.kind == Kind::kInt || item.kind == Kind::kFloat ||
                        item.kind == Kind::kBool;
    if (!number) {
      throw ReadError{
          item.offset,
          std::string("a tensor's element cannot be ") + describe(item.kind)};
    }
    if (!dtype) {
      dtype = item.kind == Kind::kInt
                  ? at::kLong
                  : (item.kind == Kind::kBool ? at::kBool : at::kFloat);
    }
    at::Tensor tensor = zeros(literal, sizes, strides, *dtype);
    if (tensor.numel() != 1) {
      throw ReadError{literal.offset, "'{...}' has one element, its type has " +
                                          std::to_string(tensor.numel())};
    }
    return item.kind == Kind::kFloat ? tensor.fill_(item.f)
                                     : tensor.fill_(item.i);
  }
  if (!dtype) {
    std::string name = literal.s;
    for (const std::string backend : {"CPU", "CUDA"}) {
      if (name.rfind(backend, 0) == 0)
        name = name.substr(backend.size());
    }
    constexpr const char* kSuffix = "Type";
    if (name.size() > 4 && name.substr(name.size() - 4) == kSuffix) {
      name.resize(name.size() - 4);
    }
    dtype = scalarTypeNamed(name);
    if (!dtype) {
      throw ReadError{literal.offset,
                      "unknown tensor type '" + literal.s + "'"};
    }
  }
  at::Tensor tensor = zeros(literal, literal.sizes, {}, *dtype);
  if (static_cast<std::int64_t>(literal.items.size()) != tensor.numel()) {
    return tensor;
  }
  std::vector<double> elements;
  for (const LiteralSyntax& item : literal.items) {
    elements.push_back(toDouble(item));
  }
  at::Tensor filled =
      at::tensor(elements, at::kDouble).to(*dtype).view(literal.sizes);
  if (strides.size() == sizes.size() && sizes == literal.sizes) {
    tensor = zeros(literal, sizes, strides, *dtype);
  }
  return tensor.copy_(filled);
}

IValue readList(const LiteralSyntax& literal, const TypePtr& type) {
  if (literal.kind != Kind::kList)
    mismatch(literal, type);
  const TypePtr& element = type->castRaw<c10::ListType>()->getElementType();
  c10::impl::GenericList list(element);
  for (const LiteralSyntax& item : literal.items) {
    list.push_back(readConstant(item, element));
  }
  return list;
}

IValue readTuple(const LiteralSyntax& literal, const TypePtr& type) {
  const auto elements = type->castRaw<c10::TupleType>()->elements();
  if (literal.kind != Kind::kTuple || literal.items.size() != elements.size()) {
    mismatch(literal, type);
  }
  std::vector<IValue> values;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    values.push_back(readConstant(literal.items[i], elements[i]));
  }
  return c10::ivalue::Tuple::create(std::move(values));
}

IValue readDict(const LiteralSyntax& literal, const TypePtr& type) {
  if (literal.kind != Kind::kDict)
    mismatch(literal, type);
  const auto* dict_type = type->castRaw<c10::DictType>();
  c10::impl::GenericDict dict(dict_type->getKeyType(),
                              dict_type->getValueType());
  for (std::size_t i = 0; i + 1 < literal.items.size(); i += 2) {
    dict.insert_or_assign(
        readConstant(literal.items[i], dict_type->getKeyType()),
        readConstant(literal.items[i + 1], dict_type->getValueType()));
  }
  return dict;
}

IValue readNumber(const LiteralSyntax& literal, const TypePtr& type) {
  switch (literal.kind) {
    case Kind::kInt:
      return literal.i;
    case Kind::kFloat:
      return literal.f;
    case Kind::kBool:
      return literal.i != 0;
    case Kind::kComplex:
      return c10::complex<double>(literal.f, literal.imaginary);
    default:
      mismatch(literal, type);
  }
}

}  // namespace

IValue readConstant(const LiteralSyntax& literal, const TypePtr& type) {
  if (!type)
    return readConstant(literal, typeOf(literal));
  switch (type->kind()) {
    case TypeKind::IntType:
    case TypeKind::QSchemeType:
      if (literal.kind == Kind::kInt)
        return literal.i;
      break;
    case TypeKind::FloatType:
      if (literal.kind == Kind::kFloat)
        return literal.f;
      if (literal.kind == Kind::kInt)
        return toDouble(literal);
      break;
    case TypeKind::BoolType:
      if (literal.kind == Kind::kBool)
        return literal.i != 0;
      if (literal.kind == Kind::kInt && (literal.i == 0 || literal.i == 1)) {
        return literal.i != 0;
      }
      break;
    case TypeKind::ComplexType:
      if (literal.kind == Kind::kComplex || literal.kind == Kind::kFloat ||
          literal.kind == Kind::kInt) {
        return c10::complex<double>(
            literal.kind == Kind::kInt ? toDouble(literal) : literal.f,
            literal.imaginary);
      }
      break;
    case TypeKind::NumberType:
      return readNumber(literal, type);
    case TypeKind::StringType:
      if (literal.kind == Kind::kString)
        return literal.s;
      break;
    case TypeKind::DeviceObjType:
      if (literal.kind == Kind::kString) {
        try {
          return c10::Device(literal.s);
        } catch (const c10::Error&) {
          throw ReadError{literal.offset, "unknown device '" + literal.s + "'"};
        }
      }
      break;
    case TypeKind::NoneType:
      if (literal.kind == Kind::kNone)
        return IValue();
      break;
    case TypeKind::OptionalType:
      if (literal.kind == Kind::kNone)
        return IValue();
      return readConstant(literal,
                          type->castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ListType:
      return readList(literal, type);
    case TypeKind::TupleType:
      return readTuple(literal, type);
    case TypeKind::DictType:
      return readDict(literal, type);
    case TypeKind::AnyType:
      return readConstant(literal, nullptr);
    case TypeKind::TensorType:
      if (isTensor(literal.kind)) {
        return readTensor(literal, type->expect<c10::TensorType>());
      }
      break;
    default:
      throw ReadError{literal.offset, "a constant of type " + typeText(*type) +
                                          " cannot be read from text"};
  }
  mismatch(literal, type);
}

void setAttribute(torch::jit::Node& node, const AttributeSyntax& attribute,
                  const TypePtr& type) {
  const auto name = c10::Symbol::attr(attribute.name);
  const LiteralSyntax& value = attribute.value;
  switch (value.kind) {
    case Kind::kInt:
    case Kind::kBool:
      node.i_(name, value.i);
      return;
    case Kind::kFloat:
      node.f_(name, value.f);
      return;
    case Kind::kComplex:
      node.c_(name, c10::complex<double>(value.f, value.imaginary));
      return;
    case Kind::kString:
      node.s_(name, value.s);
      return;
    case Kind::kType:
      node.ty_(name, type);
      return;
    case Kind::kTensor:
    case Kind::kScalarTensor:
    case Kind::kPrintedTensor:
      node.t_(name, readTensor(value, c10::TensorType::get()));
      return;
    case Kind::kList:
      break;
    default:
      throw ReadError{value.offset, std::string("an attribute cannot be ") +
                                        describe(value.kind)};
  }
  std::vector<std::int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  for (const LiteralSyntax& item : value.items) {
    if (item.kind == Kind::kInt)
      ints.push_back(item.i);
    if (item.kind == Kind::kFloat)
      floats.push_back(item.f);
    if (item.kind == Kind::kString)
      strings.push_back(item.s);
  }
  const std::size_t count = value.items.size();
  if (ints.size() == count) {
    node.is_(name, std::move(ints));
  } else if (floats.size() == count) {
    node.fs_(name, std::move(floats));
  } else if (strings.size() == count) {
    node.ss_(name, std::move(strings));
  } else {
    throw ReadError{value.offset,
                    "expected integers only, floating-point numbers only or "
                    "strings only in an attribute's list"};
  }
}

}  // namespace pcg::opt
