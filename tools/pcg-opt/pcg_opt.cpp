#include "tools/pcg-opt/pcg_opt.h"

#include <c10/util/Exception.h>
#include <pcg/partition.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/environment.h"
#include "tools/pcg-opt/error_text.h"
#include "tools/pcg-opt/explain.h"
#include "tools/pcg-opt/html.h"
#include "tools/pcg-opt/input.h"
#include "tools/pcg-opt/ir_printer.h"
#include "tools/pcg-opt/ir_reader.h"
#include "tools/pcg-opt/module_io.h"
#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/output_file.h"
#include "tools/pcg-opt/passes.h"
#include "tools/pcg-opt/runner.h"

namespace pcg {
namespace opt {
namespace {

using torch::jit::Graph;

constexpr const char* kDefaultMarker = "# -----";

// The name under which reports list the graph of an IR text.
constexpr const char* kTextMethod = "graph";

// The error with the input's name, unless it names a file already.
ToolError atFile(const std::string& name, const ToolError& error) {
  if (error.code() == kBadUsage || !error.where().file.empty())
    return error;
  return {error.code(), error.what(), {name, 0, 0, ""}};
}

bool isBlankText(const std::string& text) {
  bool comment = false;
  for (const char c : text) {
    if (c == '\n')
      comment = false;
    if (c == '#')
      comment = true;
    if (!comment && c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      return false;
    }
  }
  return true;
}

bool contains(const Pipeline& pipeline, const std::string& pass) {
  return std::any_of(
      pipeline.begin(), pipeline.end(),
      [&](const PassInstance& item) { return item.pass->name == pass; });
}

class Tool {
 public:
  Tool(ToolOptions options, std::istream& in, std::ostream& out,
       std::ostream& err)
      : options_(std::move(options)),
        in_(in),
        out_(out),
        err_(err),
        diagnostics_(err),
        runner_(options_, diagnostics_, err) {}

  int run() {
    const WarningForwarder forwarder(diagnostics_);
    try {
      loadLibraries(options_.libraries);
      if (options_.output != "-") {
        file_ = std::make_unique<OutputFile>(options_.output);
      }
      if (options_.input == "-" && &in_ == &std::cin && ::isatty(0) != 0) {
        err_ << "pcg-opt: reading standard input; ctrl-d ends it\n";
      }
      Input input = openInput(options_, in_);
      prepareWork(input);
      if (input.kind == Input::Kind::kModule) {
        try {
          runModule(input);
        } catch (const ToolError& error) {
          throw atFile(input.name, error);
        }
      } else {
        runText(input);
      }
      if (options_.time_passes)
        err_ << runner_.times().text();
      finishOutput();
    } catch (const ToolError& error) {
      report(error);
    } catch (const std::bad_alloc&) {
      report(ToolError(kInternal, "out of memory"));
    } catch (const std::exception& error) {
      report(ToolError(kInternal, briefMessage(error)));
    }
    return exit_code_;
  }

 private:
  // ---- the command line, now that the input is known ----

  void prepareWork(const Input& input) {
    const bool is_module = input.kind == Input::Kind::kModule;
    emit_ = options_.emit.value_or(
        is_module && options_.output_given ? Emit::kArchive : Emit::kIr);
    expandPipeline(is_module);
    checkUsage(is_module);
    if (options_.dump_pipeline) {
      err_ << "pass pipeline: " << toString(pipeline_) << '\n';
    }
    if (!file_ && emit_ == Emit::kArchive && &out_ == &std::cout &&
        ::isatty(1) != 0) {
      usageError("a TorchScript file is not written to a terminal; use -o");
    }
  }

  void expandPipeline(bool is_module) {
    for (const PassInstance& instance : options_.pipeline) {
      partition_at_.reset();
      if (instance.pass != nullptr) {
        pipeline_.push_back(instance);
        continue;
      }
      for (const auto& [name, value] : instance.options) {
        applyPassOption(options_.partition, name, value);
      }
      PartitionPipelineOptions which;
      which.make_capturable = options_.partition.make_capturable;
      which.reorder = options_.partition.reorder;
      which.verify = options_.partition.verify;
      which.lower = is_module && emit_ == Emit::kArchive;
      const Pipeline passes = partitionPipeline(which);
      partition_at_ = pipeline_.size();
      pipeline_.insert(pipeline_.end(), passes.begin(), passes.end());
    }
    if (emit_ == Emit::kPlan || emit_ == Emit::kDot || emit_ == Emit::kHtml) {
      // What comes after the plan would make it stale.
      while (!pipeline_.empty() && pipeline_.back().pass->name != "plan") {
        pipeline_.pop_back();
      }
    }
  }

  [[noreturn]] static void usageError(const std::string& message) {
    throw ToolError(kBadUsage, message);
  }

  void checkUsage(bool is_module) const {
    if (!is_module)
      checkTextUsage();
    bool planned = false;
    bool outlined = false;
    for (const PassInstance& instance : pipeline_) {
      const std::string& name = instance.pass->name;
      if (name == "plan") {
        planned = true;
      } else if (name == "outline") {
        if (!planned)
          usageError("pass 'outline' needs 'plan' right before it");
        planned = false;
        outlined = true;
      } else if (name == "lower") {
        outlined = false;
        planned = false;
      } else if (name != "verify" && name != "classify") {
        planned = false;
      }
    }
    if (emit_ == Emit::kArchive && outlined) {
      usageError(
          "outlined segments cannot be written as a module; add the pass "
          "'lower', or use --emit=ir");
    }
    if (!contains(pipeline_, "plan")) {
      const auto needs = [](const std::string& option) {
        usageError(option + " needs --partition, or a pipeline with 'plan'");
      };
      if (emit_ == Emit::kPlan)
        needs("--emit=plan");
      if (emit_ == Emit::kDot)
        needs("--emit=dot");
      if (emit_ == Emit::kHtml)
        needs("--emit=html");
      if (options_.report != ReportFormat::kNone)
        needs("--report");
      if (options_.stats)
        needs("--stats");
      if (options_.require_coverage)
        needs("--require-coverage");
      if (options_.remarks.missed || options_.remarks.passed) {
        needs("--remarks");
      }
    }
    if (options_.verify_diagnostics && is_module) {
      usageError("--verify-diagnostics needs IR text");
    }
    if (options_.verify_diagnostics && options_.output_given) {
      usageError("--verify-diagnostics and -o exclude each other");
    }
    if (options_.split_marker && is_module) {
      usageError("--split-input-file needs IR text");
    }
    if (options_.split_marker && emit_ == Emit::kHtml) {
      usageError(
          "--emit=html makes one page of one graph; it and "
          "--split-input-file exclude each other");
    }
  }

  void checkTextUsage() const {
    for (const PassInstance& instance : pipeline_) {
      if (instance.pass->needs_module) {
        usageError("pass '" + instance.pass->name +
                   "' needs a module, and the input is IR text");
      }
    }
    if (emit_ == Emit::kArchive) {
      usageError("--emit=archive needs a module, and the input is IR text");
    }
    if (!options_.methods.empty()) {
      usageError("--method needs a module, and the input is IR text");
    }
  }

  // ---- messages and results ----

  void fail(ExitCode code) { exit_code_ = std::max<int>(exit_code_, code); }

  void report(const ToolError& error) {
    fail(error.code());
    if (error.code() == kInternal) {
      err_ << "pcg-opt: internal error: ";
      if (!error.where().file.empty())
        err_ << error.where().file << ": ";
      err_ << error.what() << "; please report it\n";
      return;
    }
    diagnostics_.error(error.where(), error.what());
  }

  std::ostream& result() { return file_ ? file_->stream() : out_; }

  void finishOutput() {
    if (exit_code_ != kSuccess)
      return;
    if (file_) {
      file_->commit();
      return;
    }
    flushStandardOutput();
  }

  void flushStandardOutput() {
    out_.flush();
    if (!out_)
      throw ToolError(kBadUsage, "cannot write standard output");
  }

  // Where a report goes: standard output where that is free.
  std::ostream& reportStream() { return file_ ? out_ : err_; }

  void makeReports(const PartitionReport& report) {
    for (const std::string& warning : report.warnings) {
      diagnostics_.warning({}, warning);
    }
    if (options_.report == ReportFormat::kText)
      reportStream() << report.text();
    if (options_.report == ReportFormat::kJson) {
      reportStream() << report.json() << '\n';
    }
    if (options_.stats)
      err_ << statistics(report);
    if (options_.require_coverage &&
        report.coverage() < *options_.require_coverage) {
      const auto percent = [](double value) {
        char text[16];  // NOLINT(modernize-avoid-c-arrays)
        std::snprintf(text, sizeof(text), "%.2f %%", value);
        return std::string(text);
      };
      throw ToolError(kBadInput,
                      percent(report.coverage()) +
                          " of the kernel-launching nodes are in segments, "
                          "--require-coverage asks for " +
                          percent(*options_.require_coverage));
    }
  }

  std::string show(const MethodState& method) const {
    switch (emit_) {
      case Emit::kPlan:
        return planText(method);
      case Emit::kDot:
        return planDot(method);
      default:
        return printGraph(*method.graph);
    }
  }

  static std::string showPage(const std::string& name, const WorkState& state) {
    return planHtml(name, state.methods, state.report, state.options);
  }

  void lookAtResult(const WorkState& state) {
    for (const MethodState& method : state.methods) {
      if (options_.verify_roundtrip)
        checkRoundtrip(*method.graph);
      if (options_.print_alias_db) {
        err_ << "alias analysis of " << method.name << ":\n"
             << torch::jit::AliasDb(method.graph).toString();
      }
    }
  }

  void checkRoundtrip(const Graph& graph) {
    const std::string text = printGraph(graph);
    const SourceText source("<printed IR>", text);
    ReadOptions options;
    options.allow_unregistered_ops = true;
    const auto again = readIr(source, options, diagnostics_);
    if (!again) {
      throw ToolError(kBadInput, "the printed IR cannot be read back");
    }
    const std::string second = printGraph(*again->graph);
    const auto difference =
        std::mismatch(text.begin(), text.end(), second.begin(), second.end());
    if (difference.first == text.end() && difference.second == second.end()) {
      return;
    }
    throw ToolError(kBadInput, "the printed IR reads back as something else",
                    locate(source, static_cast<std::size_t>(difference.first -
                                                            text.begin())));
  }

  // ---- IR text ----

  void runText(const Input& input) {
    if (!options_.split_marker) {
      runPart(input.name, {input.text, 1});
    } else {
      std::vector<std::size_t> near_misses;
      const std::string& marker = *options_.split_marker;
      const auto parts = splitText(input.text, marker, near_misses);
      if (marker == kDefaultMarker) {
        for (const std::size_t line : near_misses) {
          diagnostics_.warning({input.name, line, 1, ""},
                               "this line is no split marker; expected "
                               "exactly '# -----'");
        }
      }
      for (const TextPart& part : parts)
        runPart(input.name, part);
    }
    if (exit_code_ != kSuccess && !file_)
      flushStandardOutput();
  }

  void runPart(const std::string& name, const TextPart& part) {
    const SourceText source(name, part.text, part.first_line);
    if (options_.verify_diagnostics)
      diagnostics_.beginVerification(source);
    const bool blank = options_.split_marker && isBlankText(part.text);
    std::optional<std::string> text;
    if (!blank)
      text = runChunk(source);
    if (options_.verify_diagnostics) {
      if (exit_code_ == kBadInput)
        exit_code_ = kSuccess;  // As expected?
      if (!diagnostics_.endVerification())
        mismatch_ = true;
      if (mismatch_)
        fail(kBadInput);
      return;
    }
    if (!text)
      return;
    if (any_output_)
      result() << *options_.split_marker << '\n';
    any_output_ = true;
    result() << *text;
  }

  // The result, or nothing after an error, which has been reported.
  std::optional<std::string> runChunk(const SourceText& source) {
    try {
      ReadOptions read_options;
      read_options.allow_unregistered_ops = options_.allow_unregistered_ops;
      const auto read = readIr(source, read_options, diagnostics_);
      if (!read) {
        fail(kBadInput);
        return std::nullopt;
      }
      WorkState state;
      state.options = options_.partition;
      state.methods.push_back(
          {kTextMethod, read->graph, std::nullopt, nullptr});
      runner_.run(pipeline_, state);
      lookAtResult(state);
      if (!options_.verify_diagnostics)
        makeReports(state.report);
      if (emit_ == Emit::kHtml)
        return showPage(source.name(), state);
      return show(state.methods[0]);
    } catch (const ToolError& error) {
      report(atFile(source.name(), error));
      return std::nullopt;
    }
  }

  // ---- modules ----

  // Whether the passes must run one by one, beside pcg::partition.
  bool wantsPassView() const {
    return options_.print_before_all || options_.print_after_all ||
           options_.print_after_change || options_.print_after_failure ||
           !options_.print_before.empty() || !options_.print_after.empty() ||
           options_.remarks.missed || options_.remarks.passed ||
           options_.time_passes || options_.print_alias_db ||
           options_.verify_roundtrip;
  }

  void runModule(Input& input) {
    WorkState state;
    state.options = options_.partition;
    state.options.methods = options_.methods;
    state.loaded = loadModule(input, diagnostics_);
    takeMethods(state);
    if (emit_ == Emit::kArchive && partition_at_) {
      partitionModule(state);
    } else {
      runner_.run(pipeline_, state);
      lookAtResult(state);
      makeReports(state.report);
      if (emit_ == Emit::kArchive && !pipeline_.empty() &&
          pipeline_.back().pass->name != "lower") {
        commit(state);
      }
    }
    if (emit_ == Emit::kArchive) {
      saveModule(*state.loaded, result());
      return;
    }
    if (emit_ == Emit::kHtml) {
      result() << showPage(input.name, state);
      return;
    }
    for (const MethodState& method : state.methods) {
      if (any_output_)
        result() << kDefaultMarker << '\n';
      any_output_ = true;
      if (emit_ == Emit::kIr)
        result() << "# method " << method.name << '\n';
      result() << show(method);
    }
  }

  // The pipeline ends in the default one: pcg::partition does that part, and
  // where somebody looks, its passes run beside it.
  void partitionModule(WorkState& state) {
    const auto begin =
        pipeline_.begin() + static_cast<std::ptrdiff_t>(*partition_at_);
    const Pipeline first(pipeline_.begin(), begin);
    if (!first.empty()) {
      runner_.run(first, state);
      commit(state);
    }
    std::optional<PartitionReport> seen;
    if (wantsPassView()) {
      WorkState view;
      view.options = state.options;
      view.loaded = state.loaded;
      for (const MethodState& method : state.methods) {
        view.methods.push_back(
            {method.name, method.graph->copy(), std::nullopt, nullptr});
      }
      runner_.run(Pipeline(begin, pipeline_.end() - 1), view);
      lookAtResult(view);
      seen = std::move(view.report);
    }
    PartitionedModule partitioned = [&] {
      try {
        return partition(state.loaded->module, state.options);
      } catch (const std::bad_alloc&) {
        throw;
      } catch (const std::exception& error) {
        throw ToolError(isInternalError(error) ? kInternal : kBadInput,
                        briefMessage(error));
      }
    }();
    if (seen && (seen->json() != partitioned.report.json())) {
      throw ToolError(kInternal,
                      "the passes, run one by one, made another plan than "
                      "pcg::partition");
    }
    state.loaded->module = std::move(partitioned.module);
    if (seen) {
      WorkState lowered;
      lowered.loaded = state.loaded;
      for (const MethodState& method : state.methods) {
        const auto function = state.loaded->module.get_method(method.name);
        lowered.methods.push_back(
            {method.name,
             torch::jit::toGraphFunction(function.function()).graph(),
             std::nullopt, nullptr});
      }
      runner_.printAfter("lower", lowered);
    }
    makeReports(partitioned.report);
  }

  ToolOptions options_;
  std::istream& in_;
  std::ostream& out_;
  std::ostream& err_;
  Diagnostics diagnostics_;
  Runner runner_;

  Emit emit_ = Emit::kIr;
  Pipeline pipeline_;
  // Where the default pipeline starts, if the pipeline ends with it.
  std::optional<std::size_t> partition_at_;
  std::unique_ptr<OutputFile> file_;
  bool any_output_ = false;
  bool mismatch_ = false;
  int exit_code_ = kSuccess;
};

}  // namespace
}  // namespace opt

int runPcgOpt(int argc, const char* const* argv, std::istream& in,
              std::ostream& out, std::ostream& err) {
  const opt::ClassicNumbers classic_numbers(out, err);
  try {
    const std::vector<std::string> arguments(argv + std::min(argc, 1),
                                             argv + argc);
    opt::ToolOptions options = opt::parseCommandLine(arguments);
    if (options.print_and_exit) {
      out << *options.print_and_exit;
      out.flush();
      if (out)
        return opt::kSuccess;
      throw opt::ToolError(opt::kBadUsage, "cannot write standard output");
    }
    return opt::Tool(std::move(options), in, out, err).run();
  } catch (const opt::ToolError& error) {
    err << "pcg-opt: error: " << error.what() << '\n';
    return error.code();
  } catch (const std::exception& error) {
    err << "pcg-opt: internal error: " << opt::briefMessage(error)
        << "; please report it\n";
    return opt::kInternal;
  }
}

}  // namespace pcg
