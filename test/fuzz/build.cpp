#include "test/fuzz/build.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/serialization/import_source.h>

#include <memory>
#include <utility>
#include <vector>

namespace pcg::fuzz {
namespace {

using c10::IValue;
using Kind = Type::Kind;

constexpr const char* kNoGradName =
    "__torch__.torch.autograd.grad_mode.no_grad";

// torch.no_grad, as scripting a Python model brings it into a file.
constexpr const char* kNoGradSource = R"(
class no_grad:
  prev : bool
  def __init__(self: __torch__.torch.autograd.grad_mode.no_grad) -> NoneType:
    self.prev = False
    return None
  def __enter__(self: __torch__.torch.autograd.grad_mode.no_grad) -> NoneType:
    self.prev = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    return None
  def __exit__(self: __torch__.torch.autograd.grad_mode.no_grad,
    exc_type: Any,
    exc_value: Any,
    traceback: Any) -> NoneType:
    torch.set_grad_enabled(self.prev)
    return None
)";

// The names of Python that programs use and that torch's own resolver lacks.
class Names final : public torch::jit::NativeResolver {
 public:
  explicit Names(std::shared_ptr<torch::jit::CompilationUnit> unit)
      : constants_(std::make_unique<std::vector<IValue>>()),
        importer_(
            std::move(unit), constants_.get(),
            [](const std::string&) {
              return std::make_shared<torch::jit::Source>(
                  std::string(kNoGradSource));
            },
            /*version=*/3) {}

  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& function,
      const torch::jit::SourceRange& where) override {
    if (name == "no_grad") {
      return std::make_shared<torch::jit::ClassValue>(
          importer_.loadType(c10::QualifiedName(kNoGradName))
              ->cast<c10::ClassType>());
    }
    if (name == "RuntimeError" || name == "ValueError")
      return std::make_shared<torch::jit::ExceptionValue>(name);
    return NativeResolver::resolveValue(name, function, where);
  }

 private:
  std::unique_ptr<std::vector<IValue>> constants_;
  torch::jit::SourceImporter importer_;
};

c10::TypePtr jitType(const Type& type) {
  switch (type.kind) {
    case Kind::kInt:
      return c10::IntType::get();
    case Kind::kFloat:
      return c10::FloatType::get();
    case Kind::kBool:
      return c10::BoolType::get();
    case Kind::kTensorList:
      return c10::ListType::ofTensors();
    case Kind::kIntList:
      return c10::ListType::ofInts();
    case Kind::kDict:
      return c10::DictType::create(c10::StringType::get(),
                                   c10::TensorType::get());
    case Kind::kOptional:
      return c10::OptionalType::create(c10::TensorType::get());
    default:
      return c10::TensorType::get();
  }
}

}  // namespace

IValue makeAttribute(const Type& type, Random& random) {
  const auto tensor = [&] {
    return makeTensor(type.dtype, type.dims, 3, random);
  };
  switch (type.kind) {
    case Kind::kTensor:
      return tensor();
    case Kind::kInt:
      return static_cast<std::int64_t>(random.below(3));
    case Kind::kFloat:
      return 0.5 * static_cast<double>(1 + random.below(4));
    case Kind::kBool:
      return random.chance(50);
    case Kind::kTensorList: {
      c10::List<at::Tensor> list;
      const std::size_t count = random.below(3);
      for (std::size_t i = 0; i < count; ++i)
        list.push_back(tensor());
      return list;
    }
    case Kind::kIntList:
      return c10::List<std::int64_t>({1, 2});
    case Kind::kDict: {
      c10::Dict<std::string, at::Tensor> dict;
      dict.insert("a", tensor());
      return dict;
    }
    case Kind::kOptional:
      return random.chance(50) ? IValue(tensor()) : IValue();
    case Kind::kTuple:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "no attribute is a tuple");
}

torch::jit::Module build(const ModuleSource& source, std::uint64_t seed) {
  torch::jit::Module module(source.name);
  module.register_attribute("training", c10::BoolType::get(), true);
  for (const ModuleSource& child : source.children)
    module.register_module(child.name, build(child, seed + 1));
  for (const Attribute& attribute : source.attributes) {
    // A stream of its own: another attribute may go without changing this one.
    std::uint64_t own = seed;
    for (const char letter : attribute.name)
      own = own * 31 + static_cast<unsigned char>(letter);
    Random values(own);
    IValue value = makeAttribute(attribute.type, values);
    switch (attribute.role) {
      case Attribute::Role::kParameter:
        module.register_parameter(attribute.name, value.toTensor(), false);
        break;
      case Attribute::Role::kBuffer:
        module.register_buffer(attribute.name, value.toTensor());
        break;
      case Attribute::Role::kPlain:
        module.register_attribute(attribute.name, jitType(attribute.type),
                                  std::move(value));
        break;
    }
  }
  module.define(source.render(),
                std::make_shared<Names>(module._ivalue()->compilation_unit()));
  return module;
}

void fill(const at::Tensor& tensor, Random& random) {
  const std::int64_t count = tensor.numel();
  for (std::int64_t i = 0; i < count; ++i) {
    if (tensor.scalar_type() == at::kLong) {
      tensor.data_ptr<std::int64_t>()[i] =
          static_cast<std::int64_t>(random.below(4));
    } else if (tensor.scalar_type() == at::kBool) {
      tensor.data_ptr<bool>()[i] = random.chance(50);
    } else {
      const double value =
          (static_cast<double>(random.below(4001)) - 2000.0) / 1000.0;
      if (tensor.scalar_type() == at::kDouble)
        tensor.data_ptr<double>()[i] = value;
      else
        tensor.data_ptr<float>()[i] = static_cast<float>(value);
    }
  }
}

at::Tensor makeTensor(char dtype, const std::string& dims, std::int64_t rows,
                      Random& random) {
  std::vector<std::int64_t> sizes;
  for (const char dim : dims) {
    sizes.push_back(dim == 'N' ? rows : dim == 'D' ? 4 : dim == 'E' ? 2 : 1);
  }
  const at::ScalarType type = dtype == 'i'   ? at::kLong
                              : dtype == 'b' ? at::kBool
                              : dtype == 'd' ? at::kDouble
                                             : at::kFloat;
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(type));
  fill(tensor, random);
  return tensor;
}

}  // namespace pcg::fuzz
