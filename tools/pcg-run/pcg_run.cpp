#include "tools/pcg-run/pcg_run.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/function_schema.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <pcg/partition.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "passes/json.h"
#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/environment.h"
#include "tools/pcg-opt/error_text.h"
#include "tools/pcg-opt/input.h"
#include "tools/pcg-opt/module_io.h"
#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/suggest.h"
#include "tools/pcg-run/comparison.h"
#include "tools/pcg-run/input_spec.h"
#include "tools/pcg-run/json_text.h"
#include "tools/pcg-run/run_options.h"
#include "tools/pcg-run/timing.h"

namespace pcg {
namespace run {
namespace {

using c10::IValue;
using opt::ToolError;
using torch::jit::Module;

constexpr std::size_t kMostDifferences = 10;
constexpr const char* kSequence = "pcg_sequence";

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// Values and errors of models may be long and hold anything.
std::string shortened(std::string text) {
  constexpr std::size_t kLongest = 400;
  if (text.size() > kLongest)
    text = text.substr(0, kLongest) + "...";
  return opt::printable(std::move(text));
}

// What a call did, for comparison.
struct Outcome {
  IValue arguments;  // After the call.
  IValue result;
  std::string error;  // Its last line, which excludes the stack of calls.
  bool internal = false;
  std::vector<at::Tensor> generators;  // Their states after the call.
  double seconds = 0;
};

std::string lastLine(const std::exception& error) {
  std::string text = error.what();
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error))
    text = torch_error->what_without_backtrace();
  const std::size_t end = text.find_last_not_of("\n\r\t ");
  text.resize(end == std::string::npos ? 0 : end + 1);
  const std::size_t start = text.find_last_of('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

class Tool {
 public:
  Tool(RunOptions options, std::ostream& out, std::ostream& err, bool terminal)
      : options_(std::move(options)),
        out_(out),
        err_(err),
        terminal_(terminal),
        diagnostics_(err, "pcg-run") {}

  int run() {
    const opt::WarningForwarder forwarder(diagnostics_);
    try {
      work();
      out_.flush();
      if (!out_)
        throw ToolError(opt::kBadUsage, "cannot write standard output");
      return opt::kSuccess;
    } catch (const ToolError& error) {
      return report(error);
    } catch (const std::bad_alloc&) {
      return report(ToolError(opt::kInternal, "out of memory"));
    } catch (const std::exception& error) {
      return report(ToolError(opt::kInternal, opt::briefMessage(error)));
    }
  }

 private:
  int report(const ToolError& error) {
    if (error.code() != opt::kInternal) {
      diagnostics_.error(error.where(), error.what());
      return error.code();
    }
    err_ << "pcg-run: internal error: ";
    if (!error.where().file.empty())
      err_ << error.where().file << ": ";
    err_ << error.what() << "; please report it\n";
    return error.code();
  }

  [[noreturn]] void badInput(const std::string& message) const {
    throw ToolError(opt::kBadInput, message, {options_.model, 0, 0, ""});
  }

  void work() {
    if (options_.device == "cuda" || options_.backend == Backend::kCuda) {
      if (!at::hasCUDA()) {
        throw ToolError(
            opt::kBadUsage,
            std::string(options_.device == "cuda" ? "--device=cuda"
                                                  : "--backend=cuda") +
                ": this machine has no CUDA device");
      }
    }
    for (const std::string& text : options_.inputs)
      inputs_.push_back(InputSpec::parse(text));
    opt::loadLibraries(options_.libraries);
    loadModels();
    findArguments();
    callAll();
    printReport();
    if (differing_calls_ > 0 || !state_difference_.empty()) {
      badInput(
          differing_calls_ > 0
              ? counted(static_cast<std::size_t>(differing_calls_), "call") +
                    " of " + std::to_string(options_.calls) +
                    (differing_calls_ == 1 ? " differs from "
                                           : " differ from ") +
                    reference_name_
              : "the module's state differs from that of " + reference_name_);
    }
  }

  // ---- models ----

  Module load(const std::string& path) {
    opt::ToolOptions options;
    options.input = path;
    options.format = opt::InputFormat::kModule;
    std::istringstream none;
    opt::Input input = opt::openInput(options, none);
    return opt::loadModule(input, diagnostics_).module;
  }

  void loadModels() {
    // Sequences choose their back end when they are made.
    if (options_.backend) {
      variables_.push_back(std::make_unique<opt::ScopedVariable>(
          "PCG_BACKEND", toString(*options_.backend)));
    }
    if (options_.verify) {
      const opt::ScopedVariable off("PCG_BACKEND", "off");
      reference_ = load(options_.model);
      reference_name_ = "its own nodes run eagerly";
      variables_.push_back(
          std::make_unique<opt::ScopedVariable>("PCG_VERIFY", "1"));
    } else if (!options_.original.empty()) {
      reference_ = load(options_.original);
      reference_name_ = options_.original;
    } else if (options_.partition) {
      reference_ = load(options_.model);
      reference_name_ = "the model as it is";
    }
    Module loaded = load(options_.model);
    model_ = options_.partition ? partitioned(loaded) : loaded;
    if (options_.verify && !model_.hasattr(kSequence)) {
      badInput(
          "is not partitioned, so --verify has nothing to check; use "
          "--partition");
    }
    chooseDevice();
  }

  Module partitioned(const Module& module) {
    PartitionOptions options = options_.partition_options;
    if (options_.backend)
      options.backend = *options_.backend;
    try {
      PartitionedModule result = pcg::partition(module, options);
      for (const std::string& warning : result.report.warnings)
        diagnostics_.warning({options_.model, 0, 0, ""}, warning);
      return std::move(result.module);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw ToolError(
          opt::isInternalError(error) ? opt::kInternal : opt::kBadInput,
          opt::briefMessage(error), {options_.model, 0, 0, ""});
    }
  }

  void chooseDevice() {
    if (!options_.device.empty()) {
      device_ = c10::Device(options_.device == "cuda" ? c10::kCUDA : c10::kCPU);
    } else if (options_.backend == Backend::kHost) {
      device_ = c10::Device(c10::kCPU);
    } else {
      device_ = c10::Device(options_.backend == Backend::kCuda ||
                                    (at::hasCUDA() && !options_.backend)
                                ? c10::kCUDA
                                : c10::kCPU);
      for (const at::Tensor& tensor : model_.parameters()) {
        device_ = tensor.device();
        return;
      }
      for (const at::Tensor& tensor : model_.buffers()) {
        device_ = tensor.device();
        return;
      }
      return;
    }
    model_.to(device_);
    if (reference_)
      reference_->to(device_);
  }

  // ---- arguments ----

  const c10::FunctionSchema& schema() const {
    return model_.get_method(options_.method).function().getSchema();
  }

  std::string signature() const {
    std::string text = options_.method + "(";
    const auto& arguments = schema().arguments();
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      text += (i > 1 ? ", " : "") + arguments[i].name() + ": " +
              arguments[i].type()->repr_str();
      if (arguments[i].default_value()) {
        std::ostringstream value;
        value << *arguments[i].default_value();
        text += " = " + value.str();
      }
    }
    return text + ")";
  }

  void findArguments() {
    std::vector<const Module*> modules = {&model_};
    if (reference_)
      modules.push_back(&*reference_);
    for (const Module* module : modules) {
      if (module->find_method(options_.method))
        continue;
      std::vector<std::string> names;
      for (const auto& method : module->get_methods())
        names.push_back(method.name());
      throw ToolError(
          opt::kBadInput,
          "has no method '" + options_.method + "'" +
              opt::didYouMean(options_.method, names),
          {module == &model_ ? options_.model : reference_name_, 0, 0, ""});
    }
    std::size_t given = 0;
    for (const InputSpec& input : inputs_)
      given += input.argumentCount();
    const auto& arguments = schema().arguments();
    const auto needed = static_cast<std::size_t>(std::count_if(
        arguments.begin() + 1, arguments.end(),
        [](const c10::Argument& item) { return !item.default_value(); }));
    const bool too_many = given + 1 > arguments.size();
    if (too_many || given < needed) {
      badInput(signature() + " takes " +
               (too_many
                    ? "at most " + counted(arguments.size() - 1, "argument")
                    : "at least " + counted(needed, "argument")) +
               ", and --input gives " + std::to_string(given));
    }
  }

  std::vector<IValue> makeArguments(std::uint64_t seed) const {
    at::manual_seed(seed);
    std::vector<IValue> values;
    const auto& arguments = schema().arguments();
    for (const InputSpec& input : inputs_) {
      for (std::size_t i = 0; i < input.argumentCount(); ++i) {
        values.push_back(
            input.make(i, arguments[values.size() + 1].type(), device_));
      }
    }
    return values;
  }

  // ---- calls ----

  bool onCuda() const { return device_.is_cuda(); }

  void synchronize() const {
    if (onCuda())
      at::detail::getCUDAHooks().deviceSynchronize(device_.index());
  }

  std::vector<at::Tensor> generatorStates() const {
    std::vector<at::Tensor> states = {
        at::globalContext()
            .defaultGenerator(c10::Device(c10::kCPU))
            .get_state()};
    if (onCuda()) {
      states.push_back(
          at::globalContext().defaultGenerator(device_).get_state());
    }
    return states;
  }

  Outcome call(Module& module, const IValue& arguments,
               std::uint64_t seed) const {
    using Time = std::chrono::steady_clock;
    Outcome outcome;
    outcome.arguments = copyOf(arguments);
    std::vector<IValue> stack = outcome.arguments.toTupleRef().elements().vec();
    const auto method = module.get_method(options_.method);
    at::manual_seed(seed);
    synchronize();
    const auto start = Time::now();
    try {
      outcome.result = method(std::move(stack));
      synchronize();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      outcome.error = lastLine(error);
      outcome.internal = opt::isInternalError(error);
      if (outcome.error.empty())
        outcome.error = "an error without a message";
    }
    outcome.seconds =
        std::chrono::duration<double>(Time::now() - start).count();
    outcome.generators = generatorStates();
    return outcome;
  }

  void callAll() {
    const at::NoGradGuard no_grad;
    std::unique_ptr<Progress> progress;
    if (options_.progress) {
      progress = std::make_unique<Progress>(
          err_, terminal_, [] { return std::chrono::steady_clock::now(); });
    }
    std::optional<Outcome> last_expected;
    std::optional<Outcome> last_found;
    for (std::int64_t i = 0; i < options_.calls; ++i) {
      if (progress) {
        progress->show("call " + std::to_string(i + 1) + " of " +
                       std::to_string(options_.calls));
      }
      const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(i);
      const IValue arguments = c10::ivalue::Tuple::create(makeArguments(seed));
      std::optional<Outcome> expected;
      // Who goes first changes, so that neither has warmer caches.
      if (reference_ && i % 2 == 0)
        expected = call(*reference_, arguments, seed);
      Outcome found = call(model_, arguments, seed);
      if (reference_ && i % 2 == 1)
        expected = call(*reference_, arguments, seed);
      if (i >= options_.warm_up) {
        times_.push_back(found.seconds);
        if (expected)
          reference_times_.push_back(expected->seconds);
      }
      if (!expected) {
        if (!found.error.empty()) {
          progress.reset();
          throw ToolError(
              found.internal ? opt::kInternal : opt::kBadInput,
              "call " + std::to_string(i + 1) + ": " + shortened(found.error),
              {options_.model, 0, 0, ""});
        }
        continue;
      }
      std::string what = compare(*expected, found);
      if (what.empty() && last_expected) {
        // A result that a later call overwrites, but only of one module.
        what = difference(last_expected->result, last_found->result);
        if (!what.empty())
          what = "changed the result of the call before: " + what;
      }
      raised_ += found.error.empty() ? 0 : 1;
      if (!what.empty())
        addDifference(i, std::move(what));
      last_expected = std::move(expected);
      last_found = std::move(found);
    }
    if (reference_)
      state_difference_ = shortened(stateDifference(*reference_, model_));
  }

  static std::string labelled(const char* label, const std::string& what) {
    if (what.empty())
      return "";
    return label + std::string(what[0] == '[' || what[0] == '.' ? "" : ": ") +
           what;
  }

  static std::string compare(const Outcome& expected, const Outcome& found) {
    if (expected.error != found.error) {
      const auto said = [](const Outcome& outcome) {
        return outcome.error.empty() ? std::string("no error")
                                     : "the error \"" + outcome.error + "\"";
      };
      return "expected " + said(expected) + ", found " + said(found);
    }
    std::string what =
        labelled("result", difference(expected.result, found.result));
    if (what.empty()) {
      what = labelled("arguments after the call",
                      difference(expected.arguments, found.arguments));
    }
    if (what.empty()) {
      const auto shared = [](const Outcome& outcome) {
        return sharing(
            c10::ivalue::Tuple::create({outcome.arguments, outcome.result}));
      };
      const std::string a = shared(expected);
      const std::string b = shared(found);
      if (a != b) {
        what = "arguments and results share memory differently: expected " + a +
               ", found " + b;
      }
    }
    for (std::size_t i = 0; what.empty() && i < expected.generators.size();
         ++i) {
      if (!at::equal(expected.generators[i], found.generators[i])) {
        what = std::string("the state of the ") + (i == 0 ? "CPU" : "CUDA") +
               " random number generator differs";
      }
    }
    return what;
  }

  void addDifference(std::int64_t call, std::string what) {
    ++differing_calls_;
    if (differences_.size() < kMostDifferences)
      differences_.emplace_back(call + 1, shortened(std::move(what)));
  }

  // ---- the report ----

  std::string sequenceReport() {
    if (!model_.hasattr(kSequence))
      return "";
    const IValue sequence = model_.attr(kSequence);
    return sequence.toObject()
        ->type()
        ->getMethod("report")({sequence})
        .toStringRef();
  }

  void printReport() {
    if (options_.json) {
      printJson();
    } else {
      printText();
    }
  }

  static std::string time(const Summary& summary) {
    char text[96];  // NOLINT(modernize-avoid-c-arrays)
    std::snprintf(text, sizeof(text), "%10.1f us  (%.1f to %.1f)",
                  1e6 * summary.median, 1e6 * summary.lower,
                  1e6 * summary.upper);
    return text;
  }

  void printText() {
    out_ << options_.model << ": " << counted(calls(), "call") << " of "
         << options_.method << " on " << device_.str() << '\n';
    if (reference_) {
      out_ << "compared with " << reference_name_ << ": "
           << options_.calls - differing_calls_ << " of " << options_.calls
           << " agree bit by bit\n";
      for (const auto& [number, what] : differences_)
        out_ << "  call " << number << ": " << what << '\n';
      if (static_cast<std::size_t>(differing_calls_) > differences_.size()) {
        out_ << "  and "
             << static_cast<std::size_t>(differing_calls_) - differences_.size()
             << " more\n";
      }
      if (!state_difference_.empty())
        out_ << "  state after all calls: " << state_difference_ << '\n';
      if (raised_ > 0)
        out_ << "  " << counted(raised_, "call") << " ended with an error\n";
    }
    printTimes();
    const std::string sequence = sequenceReport();
    if (sequence.empty()) {
      out_ << "not partitioned: everything ran as torch runs it\n";
    } else {
      out_ << "sequence: " << readableJson(sequence);
    }
  }

  std::size_t calls() const { return static_cast<std::size_t>(options_.calls); }

  void printTimes() {
    if (times_.empty()) {
      out_ << "no times: the first "
           << counted(static_cast<std::size_t>(options_.warm_up), "call")
           << " only warm up\n";
      return;
    }
    out_ << "times of a call, waited for: median (middle half) of "
         << times_.size() << ", after " << options_.warm_up << " to warm up\n";
    const Summary model = summarize(times_);
    if (reference_) {
      const Summary reference = summarize(reference_times_);
      char ratio[32];  // NOLINT(modernize-avoid-c-arrays)
      std::snprintf(ratio, sizeof(ratio), "  %.2fx",
                    reference.median / model.median);
      out_ << "  reference " << time(reference) << '\n'
           << "  model     " << time(model) << ratio << '\n';
    } else {
      out_ << "  model     " << time(model) << '\n';
    }
  }

  static void addTimes(JsonWriter& json, const char* name,
                       const std::vector<double>& times) {
    const Summary summary = summarize(times);
    json.key(name).beginObject();
    json.key("median_us").value(1e6 * summary.median);
    json.key("lower_us").value(1e6 * summary.lower);
    json.key("upper_us").value(1e6 * summary.upper);
    json.endObject();
  }

  void printJson() {
    JsonWriter json;
    json.beginObject();
    json.key("model").value(options_.model);
    json.key("method").value(options_.method);
    json.key("device").value(device_.str());
    json.key("calls").value(options_.calls);
    json.key("calls_with_error").value(static_cast<std::int64_t>(raised_));
    json.key("reference").value(reference_name_);
    json.key("differing_calls").value(differing_calls_);
    json.key("differences").beginArray();
    for (const auto& [number, what] : differences_) {
      json.beginObject();
      json.key("call").value(number);
      json.key("what").value(what);
      json.endObject();
    }
    json.endArray();
    json.key("state_difference").value(state_difference_);
    json.key("timed_calls").value(static_cast<std::int64_t>(times_.size()));
    json.key("times").beginObject();
    if (!times_.empty())
      addTimes(json, "model", times_);
    if (!reference_times_.empty())
      addTimes(json, "reference", reference_times_);
    json.endObject();
    const std::string sequence = sequenceReport();
    std::string text = json.take();
    text += ", \"sequence\": " + (sequence.empty() ? "null" : sequence) + "}";
    out_ << text << '\n';
  }

  const RunOptions options_;
  std::ostream& out_;
  std::ostream& err_;
  const bool terminal_;
  opt::Diagnostics diagnostics_;

  std::vector<std::unique_ptr<opt::ScopedVariable>> variables_;
  std::vector<InputSpec> inputs_;
  Module model_;
  std::optional<Module> reference_;
  std::string reference_name_;
  c10::Device device_ = c10::Device(c10::kCPU);

  std::int64_t differing_calls_ = 0;
  std::vector<std::pair<std::int64_t, std::string>> differences_;
  std::string state_difference_;
  std::size_t raised_ = 0;
  std::vector<double> times_;
  std::vector<double> reference_times_;
};

}  // namespace
}  // namespace run

int runPcgRun(int argc, const char* const* argv, std::ostream& out,
              std::ostream& err, bool terminal) {
  const opt::ClassicNumbers classic_numbers(out, err);
  try {
    const std::vector<std::string> arguments(argv + std::min(argc, 1),
                                             argv + argc);
    run::RunOptions options = run::parseCommandLine(arguments);
    if (options.print_and_exit) {
      out << *options.print_and_exit;
      out.flush();
      if (out)
        return opt::kSuccess;
      throw opt::ToolError(opt::kBadUsage, "cannot write standard output");
    }
    return run::Tool(std::move(options), out, err, terminal).run();
  } catch (const opt::ToolError& error) {
    err << "pcg-run: error: " << error.what() << '\n';
    return error.code();
  } catch (const std::exception& error) {
    err << "pcg-run: internal error: " << opt::briefMessage(error)
        << "; please report it\n";
    return opt::kInternal;
  }
}

}  // namespace pcg
