#include "tools/pcg-opt/ir_types.h"

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/custom_class.h>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "tools/pcg-opt/suggest.h"

namespace pcg::opt {
namespace {

using c10::TypePtr;

const std::map<std::string, c10::ScalarType>& scalarTypes() {
  static const std::map<std::string, c10::ScalarType> types = [] {
    std::map<std::string, c10::ScalarType> named;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
      const auto type = static_cast<c10::ScalarType>(i);
      if (type != c10::ScalarType::Undefined)
        named[c10::toString(type)] = type;
    }
    return named;
  }();
  return types;
}

const std::map<std::string, TypePtr>& plainTypes() {
  static const std::map<std::string, TypePtr> types = {
      {"Tensor", c10::TensorType::get()},
      {"int", c10::IntType::get()},
      {"float", c10::FloatType::get()},
      {"bool", c10::BoolType::get()},
      {"complex", c10::ComplexType::get()},
      {"str", c10::StringType::get()},
      {"Scalar", c10::NumberType::get()},
      {"number", c10::NumberType::get()},
      {"NoneType", c10::NoneType::get()},
      {"None", c10::NoneType::get()},
      {"Any", c10::AnyType::get()},
      {"AnyClassType", c10::AnyClassType::get()},
      {"AnyEnumType", c10::AnyEnumType::get()},
      {"list", c10::AnyListType::get()},
      {"tuple", c10::AnyTupleType::get()},
      {"Device", c10::DeviceObjType::get()},
      {"Generator", c10::GeneratorType::get()},
      {"Stream", c10::StreamObjType::get()},
      {"Storage", c10::StorageType::get()},
      {"QScheme", c10::QSchemeType::get()},
      {"Capsule", c10::CapsuleType::get()},
      {"ScalarType", c10::IntType::get()},
      {"Layout", c10::IntType::get()},
      {"MemoryFormat", c10::IntType::get()},
  };
  return types;
}

bool endsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

TypePtr tensorOf(std::optional<c10::ScalarType> scalar) {
  return c10::TensorType::create(scalar, std::nullopt, c10::SymbolicShape(),
                                 c10::VaryingShape<c10::Stride>(),
                                 std::nullopt);
}

std::optional<c10::Device> readDevice(const TypeSyntax& syntax) {
  if (syntax.device.empty())
    return std::nullopt;
  try {
    return c10::Device(syntax.device);
  } catch (const std::exception&) {
    throw ReadError{syntax.offset, "unknown device '" + syntax.device + "'"};
  }
}

}  // namespace

std::string typeText(const c10::Type& type) {
  std::ostringstream out;
  out << type;
  return out.str();
}

std::optional<c10::ScalarType> scalarTypeNamed(const std::string& name) {
  const auto found = scalarTypes().find(name);
  if (found == scalarTypes().end())
    return std::nullopt;
  return found->second;
}

TypeReader::TypeReader()
    : unit_(std::make_shared<torch::jit::CompilationUnit>()) {}

TypePtr TypeReader::read(const TypeSyntax& syntax) {
  switch (syntax.kind) {
    case TypeSyntax::Kind::kName:
      return readName(syntax);
    case TypeSyntax::Kind::kClass:
      return readClass(syntax);
    case TypeSyntax::Kind::kTensor:
      return readTensor(syntax);
    case TypeSyntax::Kind::kList:
      return c10::ListType::create(read(syntax.arguments[0]));
    case TypeSyntax::Kind::kOptional:
      return c10::OptionalType::create(read(syntax.arguments[0]));
    case TypeSyntax::Kind::kGeneric:
      return readGeneric(syntax);
    case TypeSyntax::Kind::kTuple:
    case TypeSyntax::Kind::kNamedTuple:
      break;
  }
  std::vector<TypePtr> elements;
  for (const TypeSyntax& argument : syntax.arguments) {
    elements.push_back(read(argument));
  }
  if (syntax.kind == TypeSyntax::Kind::kTuple) {
    return c10::TupleType::create(std::move(elements));
  }
  for (std::size_t i = 0; i < syntax.fields.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (syntax.fields[i] == syntax.fields[j]) {
        throw ReadError{syntax.offset, "a named tuple has two fields '" +
                                           syntax.fields[i] + "'"};
      }
    }
  }
  return c10::TupleType::createNamed(std::nullopt, syntax.fields, elements);
}

TypePtr TypeReader::readName(const TypeSyntax& syntax) {
  const std::string& name = syntax.name;
  if (syntax.undefined)
    return readTensor(syntax);
  const auto plain = plainTypes().find(name);
  if (plain != plainTypes().end())
    return plain->second;
  if (const auto scalar = scalarTypeNamed(name))
    return tensorOf(scalar);
  constexpr std::size_t kSuffix = 6;
  if (endsWith(name, "Tensor")) {
    if (const auto scalar =
            scalarTypeNamed(name.substr(0, name.size() - kSuffix))) {
      return tensorOf(scalar);
    }
  }
  if (name.size() == 1 && name[0] >= 'a' && name[0] <= 'z') {
    return c10::VarType::create(name);
  }
  if (name == "Function") {
    throw ReadError{syntax.offset,
                    "functions cannot be read from text; --inline removes "
                    "calls of them before a module is printed"};
  }
  std::vector<std::string> known;
  for (const auto& [word, type] : plainTypes())
    known.push_back(word);
  for (const auto& [word, type] : scalarTypes())
    known.push_back(word);
  throw ReadError{syntax.offset,
                  "unknown type '" + name + "'" + didYouMean(name, known)};
}

TypePtr TypeReader::readClass(const TypeSyntax& syntax) {
  constexpr const char* kCustom = "__torch__.torch.classes.";
  if (syntax.name.rfind(kCustom, 0) == 0) {
    if (auto type = torch::getCustomClass(syntax.name))
      return type;
    throw ReadError{syntax.offset,
                    "unknown class '" + syntax.name +
                        "'; --load=LIB adds the classes of a library"};
  }
  c10::ClassTypePtr& type = made_up_[syntax.name];
  if (!type) {
    type = c10::ClassType::create(c10::QualifiedName(syntax.name), unit_,
                                  /*is_module=*/true);
  }
  return type;
}

TypePtr TypeReader::readTensor(const TypeSyntax& syntax) {
  std::optional<c10::ScalarType> scalar;
  std::string name = syntax.name;
  if (name != "Tensor") {
    if (!syntax.sizes && endsWith(name, "Tensor")) {
      name = name.substr(0, name.size() - 6);
    }
    scalar = scalarTypeNamed(name);
    if (!scalar) {
      throw ReadError{syntax.offset, "unknown tensor type '" + name + "'"};
    }
  }
  if (!syntax.sizes) {
    if (syntax.strides) {
      throw ReadError{syntax.offset, "strides are given without sizes"};
    }
    return c10::TensorType::create(scalar, readDevice(syntax),
                                   c10::SymbolicShape(),
                                   c10::VaryingShape<c10::Stride>(),
                                   syntax.requires_grad, syntax.undefined);
  }
  const std::size_t rank = syntax.sizes->size();
  for (const auto& size : *syntax.sizes) {
    if (size && *size < 0) {
      throw ReadError{syntax.offset, "a tensor's size is negative"};
    }
  }
  if (syntax.strides && syntax.strides->size() != rank) {
    throw ReadError{syntax.offset, "expected " + std::to_string(rank) +
                                       " strides, found " +
                                       std::to_string(syntax.strides->size())};
  }
  const c10::VaryingShape<int64_t> sizes(*syntax.sizes);
  const c10::VaryingShape<int64_t> strides =
      syntax.strides ? c10::VaryingShape<int64_t>(*syntax.strides)
                     : c10::VaryingShape<int64_t>(rank);
  return c10::TensorType::create(scalar, readDevice(syntax), sizes, strides,
                                 syntax.requires_grad, syntax.undefined);
}

TypePtr TypeReader::readGeneric(const TypeSyntax& syntax) {
  std::vector<TypePtr> arguments;
  for (const TypeSyntax& argument : syntax.arguments) {
    arguments.push_back(read(argument));
  }
  const std::string& name = syntax.name;
  const auto expect_count = [&](std::size_t count) {
    if (arguments.size() != count) {
      throw ReadError{syntax.offset, "expected " + std::to_string(count) +
                                         " types in " + name + ", found " +
                                         std::to_string(arguments.size())};
    }
  };
  if (name == "Tuple")
    return c10::TupleType::create(arguments);
  if (name == "Union") {
    if (arguments.size() < 2)
      expect_count(2);
    return c10::UnionType::create(arguments);
  }
  if (name == "Dict") {
    expect_count(2);
    try {
      return c10::DictType::create(arguments[0], arguments[1]);
    } catch (const std::exception&) {
      throw ReadError{
          syntax.arguments[0].offset,
          "a dict cannot have keys of type " + typeText(*arguments[0])};
    }
  }
  expect_count(1);
  if (name == "Future")
    return c10::FutureType::create(arguments[0]);
  if (name == "RRef")
    return c10::RRefType::create(arguments[0]);
  if (name == "Await")
    return c10::AwaitType::create(arguments[0]);
  if (name == "List")
    return c10::ListType::create(arguments[0]);
  return c10::OptionalType::create(arguments[0]);
}

TypePtr TypeReader::declareAttribute(const TypePtr& type,
                                     const std::string& name,
                                     const TypePtr& attribute_type) {
  const auto as_class = type->cast<c10::ClassType>();
  if (!as_class || !as_class->name())
    return nullptr;
  if (as_class->hasAttribute(name))
    return as_class->getAttribute(name);
  const auto known = made_up_.find(as_class->name()->qualifiedName());
  if (known == made_up_.end() || known->second != as_class)
    return nullptr;
  as_class->addAttribute(name, attribute_type);
  return attribute_type;
}

}  // namespace pcg::opt
