#include "test/fuzz/lockstep.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <pcg/partition.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/error_report.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <sstream>
#include <typeinfo>

#include "test/fuzz/build.h"
#include "test/fuzz/random.h"

namespace pcg::fuzz {
namespace {

using c10::IValue;
using Kind = Type::Kind;
using torch::jit::Module;

// Results of this many earlier calls are held and compared after each call.
constexpr std::size_t kKept = 5;

std::uint64_t mixed(std::uint64_t seed, const std::string& name) {
  for (const char letter : name)
    seed = seed * 1099511628211u + static_cast<unsigned char>(letter);
  return Random(seed).next();
}

// One module with everything its caller holds.
struct Side {
  Module module;
  World arguments;   // of the call before
  World persistent;  // tensors that are passed again and again
  World kept;        // results of earlier calls
};

// ---- attributes -------------------------------------------------------------

struct Slot {
  std::string path;  // of the child that has it, or empty
  Attribute attribute;
};

void collectSlots(const ModuleSource& source, const std::string& path,
                  std::vector<Slot>& out) {
  for (const Attribute& attribute : source.attributes)
    out.push_back({path, attribute});
  for (const ModuleSource& child : source.children)
    collectSlots(child, child.name, out);
}

Module owner(const Side& side, const Slot& slot) {
  return slot.path.empty() ? side.module
                           : side.module.attr(slot.path).toModule();
}

World attributesOf(const Side& side, const std::vector<Slot>& slots) {
  World world;
  for (const Slot& slot : slots) {
    world.emplace_back("attribute " + slot.path + "." + slot.attribute.name,
                       owner(side, slot).attr(slot.attribute.name));
  }
  return world;
}

// ---- arguments --------------------------------------------------------------

class Arguments {
 public:
  Arguments(const Call& call, const Program& program, Side& side,
            const std::vector<Slot>& slots)
      : call_(call), program_(program), side_(side) {
    for (const at::Tensor& tensor : tensorsOf(side.kept))
      lent_.push_back(tensor);
    for (const at::Tensor& tensor : tensorsOf(attributesOf(side, slots)))
      lent_.push_back(tensor);
  }

  IValue make(const Variable& parameter) {
    return make(parameter.name, parameter.type);
  }

 private:
  IValue make(const std::string& name, const Type& type) {
    Random host(mixed(call_.host_seed, name));
    const auto element = [&](std::size_t i) {
      return tensor(name + std::to_string(i), type);
    };
    switch (type.kind) {
      case Kind::kTensor:
        return tensor(name, type);
      case Kind::kInt:
        return static_cast<std::int64_t>(host.below(5)) - 1;
      case Kind::kFloat:
        return 0.5 * static_cast<double>(host.below(6)) - 1.0;
      case Kind::kBool:
        return host.chance(50);
      case Kind::kTensorList: {
        c10::List<at::Tensor> list;
        const std::size_t count = host.below(4);
        for (std::size_t i = 0; i < count; ++i)
          list.push_back(element(i));
        return list;
      }
      case Kind::kIntList: {
        c10::List<std::int64_t> list;
        const std::size_t count = 1 + host.below(3);
        for (std::size_t i = 0; i < count; ++i)
          list.push_back(static_cast<std::int64_t>(host.below(4)));
        return list;
      }
      case Kind::kDict: {
        c10::Dict<std::string, at::Tensor> dict;
        const bool reversed = host.chance(30);
        dict.insert(reversed ? "b" : "a", element(0));
        if (host.chance(60))
          dict.insert(reversed ? "a" : "b", element(1));
        return dict;
      }
      case Kind::kOptional:
        return host.chance(30) ? IValue() : IValue(element(0));
      case Kind::kTuple:
        break;
    }
    std::vector<IValue> elements;
    for (std::size_t i = 0; i < type.elements.size(); ++i) {
      elements.push_back(
          make(name + "_" + std::to_string(i), type.elements[i]));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }

  at::Tensor tensor(const std::string& name, const Type& type) {
    at::Tensor result = choose(name, type);
    lent_.push_back(result);
    return result;
  }

  at::Tensor choose(const std::string& name, const Type& type) {
    Random source(mixed(call_.sources, name));
    if (!call_.fresh) {
      const std::size_t pick = source.below(100);
      if (pick < 40)
        return persistent(name, type);
      if (pick < 65) {
        if (auto found = lent(name, type, source))
          return *found;
      }
    }
    return fresh(name, type);
  }

  at::Tensor fresh(const std::string& name, const Type& type) {
    Random values(mixed(call_.seed, name));
    Random host(mixed(call_.host_seed, name + "layout"));
    const char dtype = call_.doubles && type.dtype == 'f' ? 'd' : type.dtype;
    at::Tensor made;
    if (type.dims.size() >= 2 && host.chance(10)) {
      // Not contiguous.
      std::string turned = type.dims;
      std::swap(turned[0], turned[1]);
      made = makeTensor(dtype, turned, call_.rows, values).transpose(0, 1);
    } else if (!type.dims.empty() && host.chance(5)) {
      made = makeTensor(dtype, "E" + type.dims, call_.rows, values)[0];
    } else {
      made = makeTensor(dtype, type.dims, call_.rows, values);
    }
    if (program_.gradients == GradientMode::kOn && made.is_floating_point() &&
        host.chance(30)) {
      made.requires_grad_();
    }
    return made;
  }

  // The tensor of the call before, with new values: a caller's static buffer.
  at::Tensor persistent(const std::string& name, const Type& type) {
    const std::string key = name + " " + std::to_string(call_.rows) + " " +
                            type.dtype + (call_.doubles ? "d" : "");
    at::Tensor values = fresh(name, type);
    for (auto& [known, value] : side_.persistent) {
      if (known == key) {
        // A program may have turned it with t_().
        if (value.toTensor().sizes() != values.sizes()) {
          value = values;
          return values;
        }
        const at::NoGradGuard no_grad;
        value.toTensor().copy_(values);
        return value.toTensor();
      }
    }
    side_.persistent.emplace_back(key, values);
    return values;
  }

  // Something that another argument, a result or an attribute holds too.
  std::optional<at::Tensor> lent(const std::string& name, const Type& type,
                                 Random& source) {
    const at::Tensor like = fresh(name, type);
    std::vector<at::Tensor> fitting;
    for (const at::Tensor& tensor : lent_) {
      if (tensor.sizes() == like.sizes() && tensor.dtype() == like.dtype())
        fitting.push_back(tensor);
    }
    if (fitting.empty())
      return std::nullopt;
    const at::Tensor found = source.oneOf(fitting);
    return source.chance(25) ? found.view_as(found) : found;
  }

  const Call& call_;
  const Program& program_;
  Side& side_;
  std::vector<at::Tensor> lent_;
};

// ---- what callers do between calls ------------------------------------------

at::Tensor randomLike(const at::Tensor& tensor, Random& random) {
  at::Tensor values =
      at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  fill(values, random);
  return values;
}

// Not into what is expanded, or of an inference mode that ended: on both sides
// alike.
void tryCopy(const at::Tensor& target, const at::Tensor& values) {
  try {
    target.copy_(values);
  } catch (const c10::Error&) {
  }
}

Module reloaded(const Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

void perform(const Action& action, Side& side, const std::vector<Slot>& slots,
             bool parameters_only) {
  const at::NoGradGuard no_grad;
  Random random(action.seed);
  const auto slotsThat = [&](auto fits) {
    std::vector<Slot> found;
    for (const Slot& slot : slots) {
      if (fits(slot.attribute))
        found.push_back(slot);
    }
    return found;
  };
  const auto is_tensor = [](const Attribute& attribute) {
    return attribute.type.kind == Kind::kTensor;
  };
  const auto is_writable_tensor = [&](const Attribute& attribute) {
    return is_tensor(attribute) &&
           (attribute.role == Attribute::Role::kParameter || !parameters_only);
  };
  switch (action.kind) {
    case Action::Kind::kWriteKept: {
      const std::vector<at::Tensor> tensors = tensorsOf(side.kept);
      if (tensors.empty())
        return;
      const at::Tensor target = random.oneOf(tensors);
      const at::Tensor values = randomLike(target, random);
      tryCopy(target, values);
      return;
    }
    case Action::Kind::kDropKept:
      if (!side.kept.empty())
        side.kept.erase(
            side.kept.begin() +
            static_cast<std::ptrdiff_t>(random.below(side.kept.size())));
      return;
    case Action::Kind::kWriteParameter:
    case Action::Kind::kSetData:
    case Action::Kind::kReplace: {
      const std::vector<Slot> found = slotsThat(is_writable_tensor);
      if (found.empty())
        return;
      const Slot slot = random.oneOf(found);
      Module module = owner(side, slot);
      const at::Tensor old = module.attr(slot.attribute.name).toTensor();
      at::Tensor values = randomLike(old, random);
      if (action.kind == Action::Kind::kWriteParameter) {
        tryCopy(old, values);
      } else if (action.kind == Action::Kind::kSetData) {
        if (values.dim() == 2 && random.chance(20))
          values = values.t().contiguous().t();
        old.set_data(values);
      } else {
        values.set_requires_grad(old.requires_grad());
        module.setattr(slot.attribute.name, values);
      }
      return;
    }
    case Action::Kind::kSetScalar: {
      const std::vector<Slot> found =
          slotsThat([&](const Attribute& a) { return !is_tensor(a); });
      if (found.empty())
        return;
      const Slot slot = random.oneOf(found);
      owner(side, slot)
          .setattr(slot.attribute.name,
                   makeAttribute(slot.attribute.type, random));
      return;
    }
    case Action::Kind::kTrain:
      side.module.train(random.chance(50));
      return;
    case Action::Kind::kSaveAndLoad:
      side.module = reloaded(side.module);
      return;
  }
}

// ---- exceptions -------------------------------------------------------------

// A message without what torch's interpreter puts before it: the call stack.
std::string messageOf(const std::string& what) {
  static const std::regex heading(R"((^|\n)[A-Za-z_.]*(Error|Exception): )");
  std::size_t from = 0;
  for (auto it = std::sregex_iterator(what.begin(), what.end(), heading);
       it != std::sregex_iterator(); ++it) {
    from = static_cast<std::size_t>(it->position() + it->length());
  }
  const std::size_t start = what.find_first_not_of("\n ", from);
  if (start == std::string::npos)
    return "";
  return what.substr(start, what.find('\n', start) - start);
}

std::string describe(const std::exception& error) {
  const auto* raised = dynamic_cast<const torch::jit::JITException*>(&error);
  const std::string name =
      raised == nullptr ? "error"
                        : raised->getPythonClassName().value_or("exception");
  return name + ": " + messageOf(error.what());
}

// ---- the comparison ---------------------------------------------------------

// Graphs and attributes, to see whether partitioning leaves them alone.
std::string fingerprint(const Module& module) {
  std::ostringstream out;
  out << module.type()->repr_str() << module.type()->numAttributes();
  for (const torch::jit::Method& method : module.get_methods())
    out << method.function().qualname().name() << *method.graph();
  for (const torch::jit::Module& child : module.children())
    out << fingerprint(child);
  for (const auto& attribute : module.named_attributes(/*recurse=*/false)) {
    out << attribute.name;
    if (attribute.value.isTensor()) {
      const at::Tensor& tensor = attribute.value.toTensor();
      out << tensor.unsafeGetTensorImpl() << tensor.const_data_ptr() << tensor;
    } else if (!attribute.value.isModule()) {
      out << attribute.value;
    }
  }
  return out.str();
}

std::int64_t sumOf(const std::string& json, const std::string& key) {
  const std::regex pattern("\"" + key + "\": ([0-9]+)");
  std::int64_t sum = 0;
  for (auto it = std::sregex_iterator(json.begin(), json.end(), pattern);
       it != std::sregex_iterator(); ++it) {
    sum += std::stoll((*it)[1].str());
  }
  return sum;
}

std::int64_t replaysOf(const Module& module) {
  if (!module.hasattr("pcg_sequence"))
    return 0;
  const IValue sequence = module.attr("pcg_sequence");
  return sumOf(sequence.toObject()
                   ->type()
                   ->getMethod("report")({sequence})
                   .toStringRef(),
               "replays");
}

PartitionOptions optionsOf(const Program& program) {
  PartitionOptions options;
  options.min_segment_size = program.min_segment_size;
  options.max_keys_per_segment = program.max_keys;
  options.make_capturable = program.make_capturable;
  options.no_graph_ops = program.no_graph_ops;
  options.no_graph_scopes = program.no_graph_scopes;
  options.backend = Backend::kHost;
  return options;
}

void requireGradients(Module& module) {
  for (at::Tensor parameter : module.parameters()) {
    if (parameter.is_floating_point())
      parameter.requires_grad_();
  }
}

bool drawsRandomNumbers(const ModuleSource& module) {
  const std::string text = module.render();
  for (const char* name :
       {"rand", "dropout", "bernoulli", "uniform_", "normal_"}) {
    if (text.find(name) != std::string::npos)
      return true;
  }
  return std::any_of(module.children.begin(), module.children.end(),
                     drawsRandomNumbers);
}

// What lockstep.h says of torch's optimizing executor.
bool optimizes(const Program& program) {
  return program.optimized_executor && program.gradients != GradientMode::kOn &&
         !drawsRandomNumbers(program.module);
}

bool hasCalls(torch::jit::Block* block) {
  for (torch::jit::Node* node : block->nodes()) {
    if (torch::jit::tryToGraphFunction(node) != nullptr)
      return true;
    for (torch::jit::Block* inner : node->blocks()) {
      if (hasCalls(inner))
        return true;
    }
  }
  return false;
}

// The clean-up of passes/prepare.cpp, as far as it can drop a draw.
void cleanUp(const Module& module) {
  for (const torch::jit::Method& method : module.get_methods()) {
    std::shared_ptr<torch::jit::Graph> graph = method.graph();
    while (hasCalls(graph->block()))
      torch::jit::Inline(*graph);
    torch::jit::ConstantPropagationImmutableTypes(graph);
    torch::jit::LowerSimpleTuples(graph);
    torch::jit::EliminateDeadCode(graph);
  }
}

class Lockstep {
 public:
  explicit Lockstep(const Program& program)
      : program_(program), optimized_(optimizes(program)) {
    collectSlots(program.module, "", slots_);
  }

  Outcome run() {
    const torch::jit::GraphOptimizerEnabledGuard executor(optimized_);
    if (!prepare())
      return std::move(outcome_);
    const c10::InferenceMode inference(program_.gradients ==
                                       GradientMode::kInference);
    const c10::AutoGradMode gradients(program_.gradients == GradientMode::kOn);
    for (std::size_t i = 0; i < program_.calls.size(); ++i) {
      for (const Action& action : program_.calls[i].before) {
        if (action.kind == Action::Kind::kSaveAndLoad)
          outcome_.replays += replaysOf(sides_[1].module);
        for (Side& side : sides_)
          perform(action, side, slots_, optimized_);
      }
      ++outcome_.calls;
      outcome_.difference = makeCall(program_.calls[i], i);
      if (outcome_.difference.failure != Failure::kNone) {
        outcome_.difference.text =
            "call " + std::to_string(i) + ", " + outcome_.difference.text;
        break;
      }
    }
    outcome_.replays += replaysOf(sides_[1].module);
    return std::move(outcome_);
  }

 private:
  bool fail(Failure failure, std::string text) {
    outcome_.difference = {failure, std::move(text)};
    return false;
  }

  bool prepare() {
    for (const Call& call : program_.calls) {
      if (find(call.method) == nullptr)
        return fail(Failure::kText, "no function '" + call.method + "'");
    }
    try {
      sides_[0].module = build(program_.module, program_.seed);
    } catch (const std::exception& error) {
      const std::string what = error.what();
      return fail(what.find("INTERNAL ASSERT FAILED") == std::string::npos
                      ? Failure::kText
                      : Failure::kCompiler,
                  what);
    }
    cleanUp(sides_[0].module);
    Module source = build(program_.module, program_.seed);
    if (program_.gradients == GradientMode::kOn) {
      requireGradients(sides_[0].module);
      requireGradients(source);
    }
    const std::string before = fingerprint(source);
    try {
      const PartitionedModule result = partition(source, optionsOf(program_));
      sides_[1].module = result.module;
      outcome_.segments =
          static_cast<std::int64_t>(result.report.segments.size());
      const PartitionedModule again = partition(source, optionsOf(program_));
      if (result.report.text() != again.report.text() ||
          result.report.json() != again.report.json()) {
        return fail(Failure::kReport,
                    result.report.text() + "\nagainst\n" + again.report.text());
      }
    } catch (const std::exception& error) {
      return fail(Failure::kRefused, error.what());
    }
    const std::string after = fingerprint(source);
    if (before != after)
      return fail(Failure::kOriginal, before + "\nbecame\n" + after);
    return true;
  }

  const Function* find(const std::string& method) const {
    for (const Function& function : program_.module.functions) {
      if (function.name == method)
        return &function;
    }
    return nullptr;
  }

  Difference makeCall(const Call& call, std::size_t index) {
    std::array<std::string, 2> errors;
    std::array<at::Tensor, 2> generators;
    std::array<World, 2> worlds;
    for (const std::size_t i : {0, 1}) {
      Side& side = sides_[i];
      Arguments arguments(call, program_, side, slots_);
      World& world = worlds[i];
      std::vector<IValue> stack;
      side.arguments.clear();
      for (const Variable& parameter : find(call.method)->parameters) {
        stack.push_back(arguments.make(parameter));
        side.arguments.emplace_back("argument " + parameter.name, stack.back());
      }
      at::manual_seed(call.seed);
      try {
        world.emplace_back(
            "result", side.module.get_method(call.method)(std::move(stack)));
      } catch (const std::exception& error) {
        errors[i] = describe(error);
      }
      generators[i] = at::detail::getDefaultCPUGenerator().get_state();
      const World attributes = attributesOf(side, slots_);
      world.insert(world.end(), side.arguments.begin(), side.arguments.end());
      world.insert(world.end(), attributes.begin(), attributes.end());
      world.insert(world.end(), side.kept.begin(), side.kept.end());
    }
    if (errors[0] != errors[1]) {
      return {Failure::kError,
              "expected '" + errors[0] + "', found '" + errors[1] + "'"};
    }
    outcome_.raised += errors[0].empty() ? 0 : 1;
    Difference difference = compare(worlds[0], worlds[1], !optimized_);
    if (difference.failure != Failure::kNone)
      return difference;
    if (!generators[0].equal(generators[1]))
      return {Failure::kRandom, "the generator's state differs"};
    if (errors[0].empty() && !optimized_) {
      for (const std::size_t i : {0, 1}) {
        World& kept = sides_[i].kept;
        kept.emplace_back("result of call " + std::to_string(index),
                          worlds[i].front().second);
        if (kept.size() > kKept)
          kept.erase(kept.begin());
      }
    }
    return {};
  }

  const Program& program_;
  const bool optimized_;
  std::vector<Slot> slots_;
  std::array<Side, 2> sides_;
  Outcome outcome_;
};

}  // namespace

Outcome runLockstep(const Program& program) {
  return Lockstep(program).run();
}

}  // namespace pcg::fuzz
