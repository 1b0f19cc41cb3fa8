#include "test/support/module_pair.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>

#include <regex>
#include <sstream>
#include <unordered_map>

namespace pcg::test {
namespace {

using c10::IValue;

std::int64_t sumOf(const std::string& json, const std::string& key) {
  const std::regex pattern("\"" + key + "\": ([0-9]+)");
  std::int64_t sum = 0;
  for (auto it = std::sregex_iterator(json.begin(), json.end(), pattern);
       it != std::sregex_iterator(); ++it) {
    sum += std::stoll((*it)[1].str());
  }
  return sum;
}

using Storages = std::unordered_map<const void*, c10::Storage>;

at::Tensor copyTensor(const at::Tensor& tensor, Storages& storages) {
  auto [it, added] = storages.try_emplace(
      tensor.storage().unsafeGetStorageImpl(), c10::Storage());
  if (added) {
    const at::Tensor bytes =
        at::empty({0}, tensor.options().dtype(at::kByte))
            .set_(tensor.storage(), 0,
                  {static_cast<std::int64_t>(tensor.storage().nbytes())}, {1})
            .clone();
    it->second = bytes.storage();
  }
  return at::empty({0}, tensor.options())
      .set_(it->second, tensor.storage_offset(), tensor.sizes(),
            tensor.strides());
}

IValue copyValue(const IValue& value, Storages& storages) {
  if (value.isTensor()) {
    return value.toTensor().defined()
               ? IValue(copyTensor(value.toTensor(), storages))
               : value;
  }
  if (value.isTuple()) {
    std::vector<IValue> elements;
    for (const IValue& element : value.toTupleRef().elements()) {
      elements.push_back(copyValue(element, storages));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.type()->containedType(0));
    for (const IValue& element : value.toListRef()) {
      list.push_back(copyValue(element, storages));
    }
    return list;
  }
  if (value.isGenericDict()) {
    const auto old = value.toGenericDict();
    c10::impl::GenericDict dict(old.keyType(), old.valueType());
    for (const auto& item : old) {
      dict.insert(item.key(), copyValue(item.value(), storages));
    }
    return dict;
  }
  return value;
}

// What scripts of Python see as `torch.ops.library`: the frontend for C++ knows
// the operators of `aten` only.
class OperatorLibraries : public torch::jit::SugaredValue {
 public:
  std::string kind() const override { return "operator libraries"; }
  std::shared_ptr<torch::jit::SugaredValue> attr(
      const torch::jit::SourceRange& /*where*/,
      torch::jit::GraphFunction& /*m*/, const std::string& library) override {
    return std::make_shared<torch::jit::BuiltinModule>(library);
  }
};

class OperatorResolver : public torch::jit::Resolver {
 public:
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& /*function*/,
      const torch::jit::SourceRange& /*where*/) override {
    if (name == "torch")
      return std::make_shared<torch::jit::BuiltinModule>("aten");
    if (name == "ops")
      return std::make_shared<OperatorLibraries>();
    return nullptr;
  }
};

bool sameBits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a, b) || (a.is_floating_point() &&
                             at::allclose(a, b, 0, 0, /*equal_nan=*/true));
}

}  // namespace

const char* const kGradientIsland = R"(
def forward(self, pos):
    p = pos.detach().requires_grad_(True)
    e = torch.exp(-(p * p).sum(-1)).sum()
    g = torch.autograd.grad([e], [p])[0]
    assert g is not None
    return e.detach(), -g
)";

const char* const kGatedNetwork = R"(
def forward(self, x):
    h = torch.relu(x @ self.w)
    s = float(h.max().item())
    return torch.tanh(h @ self.v) * s
)";

std::string reportOf(const torch::jit::Module& module) {
  return torch::jit::Module(module)
      .attr("pcg_sequence")
      .toObject()
      ->type()
      ->getMethod("report")({module.attr("pcg_sequence")})
      .toStringRef();
}

Totals totalsOf(const torch::jit::Module& module) {
  const std::string json = reportOf(module);
  Totals totals;
  totals.captures = sumOf(json, "captures");
  totals.replays = sumOf(json, "replays");
  totals.eager_calls = sumOf(json, "eager_calls");
  for (std::size_t at = json.find("\"name\""); at != std::string::npos;
       at = json.find("\"name\"", at + 1)) {
    ++totals.segments;
  }
  return totals;
}

PartitionOptions smallSegments(c10::Device device) {
  PartitionOptions options;
  options.min_segment_size = 1;
  options.backend = device.is_cpu() ? Backend::kHost : Backend::kAuto;
  return options;
}

torch::jit::Module makeModule(
    const std::string& source,
    const std::map<std::string, at::Tensor>& parameters) {
  torch::jit::Module module("Model");
  for (const auto& [name, value] : parameters) {
    module.register_parameter(name, value, /*is_buffer=*/false);
  }
  module.define(source, std::make_shared<OperatorResolver>());
  return module;
}

ModulePair::ModulePair(const std::string& source,
                       const std::map<std::string, at::Tensor>& parameters,
                       c10::Device device)
    : ModulePair(
          [&] {
            torch::jit::Module module = makeModule(source, parameters);
            module.to(device);
            return module;
          }(),
          smallSegments(device)) {}

ModulePair::ModulePair(torch::jit::Module module,
                       const PartitionOptions& options)
    : original(module.deepcopy()) {
  PartitionedModule result = partition(module, options);
  partitioned = result.module;
  report = result.report;
}

IValue ModulePair::call(const std::vector<IValue>& inputs) {
  return call("forward", inputs);
}

IValue ModulePair::call(const std::string& method,
                        const std::vector<IValue>& inputs) {
  const at::NoGradGuard no_grad;
  const auto seed = static_cast<std::uint64_t>(1000 + calls_++);
  const IValue all = c10::ivalue::Tuple::create(std::vector<IValue>(inputs));
  const auto run = [&](torch::jit::Module& module, IValue& arguments,
                       std::string& error) {
    arguments = copyOf(all);
    at::manual_seed(seed);
    try {
      return module.get_method(method)(arguments.toTupleRef().elements().vec());
    } catch (const std::exception& caught) {
      error = caught.what();
      // The call stacks differ; the message proper stands at the end.
      const auto end = error.find_last_not_of("\n ");
      error = error.substr(0, end + 1);
      error = error.substr(error.find_last_of('\n') + 1);
      return IValue();
    }
  };
  IValue expected_arguments, found_arguments;
  std::string expected_error, found_error;
  const IValue expected = run(original, expected_arguments, expected_error);
  const IValue found = run(partitioned, found_arguments, found_error);
  EXPECT_EQ(expected_error, found_error) << "call " << calls_;
  EXPECT_EQ("", difference(expected, found)) << "result of call " << calls_;
  EXPECT_EQ("", difference(expected_arguments, found_arguments))
      << "inputs after call " << calls_;
  return found;
}

IValue copyOf(const IValue& value) {
  Storages storages;
  return copyValue(value, storages);
}

std::string difference(const IValue& expected, const IValue& found) {
  std::ostringstream out;
  if (expected.isTensor() && found.isTensor()) {
    const at::Tensor& a = expected.toTensor();
    const at::Tensor& b = found.toTensor();
    if (a.defined() != b.defined())
      return "one tensor is undefined";
    if (!a.defined())
      return "";
    if (a.sizes() != b.sizes() || a.dtype() != b.dtype() ||
        a.strides() != b.strides() || a.device() != b.device() ||
        a.requires_grad() != b.requires_grad()) {
      out << a.toString() << a.sizes() << " against " << b.toString()
          << b.sizes();
      return out.str();
    }
    if (!sameBits(a, b)) {
      out << "values differ, by at most "
          << (a.to(at::kDouble) - b.to(at::kDouble)).abs().max();
    }
    return out.str();
  }
  if (expected.tagKind() != found.tagKind()) {
    return expected.tagKind() + " against " + found.tagKind();
  }
  if (expected.isTuple() || expected.isList()) {
    const auto a = expected.isTuple() ? expected.toTupleRef().elements().vec()
                                      : expected.toListRef().vec();
    const auto b = found.isTuple() ? found.toTupleRef().elements().vec()
                                   : found.toListRef().vec();
    if (a.size() != b.size())
      return "containers of different length";
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::string inner = difference(a[i], b[i]);
      if (!inner.empty())
        return std::to_string(i) + ": " + inner;
    }
    return "";
  }
  if (expected.isGenericDict()) {
    const auto a = expected.toGenericDict();
    const auto b = found.toGenericDict();
    if (a.size() != b.size())
      return "dicts of different size";
    for (const auto& item : a) {
      const auto it = b.find(item.key());
      if (it == b.end())
        return "a key is missing";
      const std::string inner = difference(item.value(), it->value());
      if (!inner.empty())
        return inner;
    }
    return "";
  }
  if (expected.isDouble() && expected.toDouble() != expected.toDouble()) {
    return found.toDouble() != found.toDouble() ? "" : "NaN against a number";
  }
  if (expected == found)
    return "";
  out << expected << " against " << found;
  return out.str();
}

}  // namespace pcg::test
