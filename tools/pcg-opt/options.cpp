#include "tools/pcg-opt/options.h"

#include <torch/version.h>

#include <utility>

#include "tools/pcg-opt/command_line.h"
#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/suggest.h"

#ifndef PCG_VERSION
#define PCG_VERSION "unknown"
#endif

namespace pcg::opt {
namespace {

using Group = OptionGroup<ToolOptions>;

// ---- values -----------------------------------------------------------------

std::vector<std::string> passNames() {
  std::vector<std::string> names;
  for (const PassInfo& info : passInfos())
    names.push_back(info.name);
  return names;
}

std::vector<std::string> passList(const std::string& option,
                                  const std::string& text) {
  std::vector<std::string> items = splitList(option, text);
  for (const std::string& item : items) {
    if (findPass(item) == nullptr) {
      usageError(option + ": unknown pass '" + item + "'" +
                 didYouMean(item, passNames()));
    }
  }
  return items;
}

void append(std::vector<std::string>& to, std::vector<std::string> items) {
  to.insert(to.end(), items.begin(), items.end());
}

void appendPasses(Pipeline& to, Pipeline items) {
  to.insert(to.end(), items.begin(), items.end());
}

void addNoGraph(PartitionOptions& options, const std::string& pattern) {
  (pattern.find("::") != std::string::npos ? options.no_graph_ops
                                           : options.no_graph_scopes)
      .push_back(pattern);
}

void addGraphSafe(const std::string& option, PartitionOptions& options,
                  const std::string& pattern) {
  if (pattern.find("::") == std::string::npos) {
    usageError(option +
               ": expected an operator such as mylib::op or mylib::*, "
               "found '" +
               pattern + "'");
  }
  options.graph_safe_ops.push_back(pattern);
}

Backend parseBackendOption(const std::string& option, const std::string& text) {
  return parseChoice<Backend>(option, text,
                              {{"auto", Backend::kAuto},
                               {"cuda", Backend::kCuda},
                               {"host", Backend::kHost},
                               {"off", Backend::kOff}});
}

// ---- the table --------------------------------------------------------------

std::string passListing();

std::string versionText() {
  return "pcg-opt " PCG_VERSION " (torch " TORCH_VERSION ")\n";
}

std::vector<Group> makeGroups() {
  std::vector<Group> groups;

  groups.push_back(
      {"General",
       {
           {"o", Arity::kValue, "FILE",
            "write the result to FILE ('-', the default: standard output)",
            [](ToolOptions& o, const std::string& v) {
              o.output = parseFileName("-o", v);
              o.output_given = true;
            }},
           {"help", Arity::kFlag, "", "print this text (also -h)",
            [](ToolOptions& o, const std::string&) {
              o.print_and_exit = helpText(false);
            }},
           {"h", Arity::kFlag, "", "as --help",
            [](ToolOptions& o, const std::string&) {
              o.print_and_exit = helpText(false);
            },
            true},
           {"help-hidden", Arity::kFlag, "",
            "print it with rarely used options",
            [](ToolOptions& o, const std::string&) {
              o.print_and_exit = helpText(true);
            }},
           {"version", Arity::kFlag, "", "print the versions of pcg and torch",
            [](ToolOptions& o, const std::string&) {
              o.print_and_exit = versionText();
            }},
           {"completion", Arity::kValue, "SHELL",
            "print a completion script for SHELL (bash)",
            [](ToolOptions& o, const std::string& v) {
              parseChoice<int>("--completion", v, {{"bash", 0}});
              o.print_and_exit = bashCompletion();
            },
            true},
       }});

  groups.push_back(
      {"Input",
       {
           {"input-format", Arity::kValue, "auto|ir|module",
            "what INPUT is; auto looks at its content",
            [](ToolOptions& o, const std::string& v) {
              o.format =
                  parseChoice<InputFormat>("--input-format", v,
                                           {{"auto", InputFormat::kAuto},
                                            {"ir", InputFormat::kIr},
                                            {"module", InputFormat::kModule}});
            }},
           {"method", Arity::kValue, "NAME,..",
            "work on these methods of a module (default: all public ones)",
            [](ToolOptions& o, const std::string& v) {
              append(o.methods, splitList("--method", v));
            }},
           {"load", Arity::kValue, "LIB",
            "load a library that defines operators or classes first",
            [](ToolOptions& o, const std::string& v) {
              o.libraries.push_back(parseFileName("--load", v));
            }},
           {"split-input-file", Arity::kOptionalValue, "MARKER",
            "IR text holds several graphs, with a line '#~-----' between them",
            [](ToolOptions& o, const std::string& v) {
              o.split_marker = v.empty() ? "# -----" : v;
            }},
           {"allow-unregistered-ops", Arity::kFlag, "",
            "accept operators that nobody has registered in IR text",
            [](ToolOptions& o, const std::string&) {
              o.allow_unregistered_ops = true;
            }},
       }});

  groups.push_back(
      {"Pipeline (passes run in the order given)",
       {
           {"partition", Arity::kOptionalValue, "OPTIONS",
            "the default pipeline: prepare, annotate, make-capturable, plan, "
            "outline, verify and, where a file is written, lower",
            [](ToolOptions& o, const std::string& v) {
              appendPasses(o.pipeline, parsePipeline("partition{" + v + "}"));
            }},
           {"pass-pipeline", Arity::kValue, "TEXT",
            "run e.g. 'prepare,plan{min-segment-size=2},outline'",
            [](ToolOptions& o, const std::string& v) {
              appendPasses(o.pipeline, parsePipeline(v));
            }},
           {"p", Arity::kValue, "TEXT", "as --pass-pipeline",
            [](ToolOptions& o, const std::string& v) {
              appendPasses(o.pipeline, parsePipeline(v));
            },
            true},
           {"list-passes", Arity::kFlag, "",
            "print the passes and their options",
            [](ToolOptions& o, const std::string&) {
              o.print_and_exit = passListing();
            }},
           {"dump-pass-pipeline", Arity::kFlag, "",
            "print the pipeline that runs to standard error",
            [](ToolOptions& o, const std::string&) { o.dump_pipeline = true; }},
       }});

  groups.push_back(
      {"Partitioning",
       {
           {"min-segment-size", Arity::kValue, "N",
            "runs with fewer kernel-launching nodes stay eager (default: 4)",
            [](ToolOptions& o, const std::string& v) {
              o.partition.min_segment_size =
                  parseCount("--min-segment-size", v, 1);
            }},
           {"no-graph", Arity::kValue, "PATTERN,..",
            "keep eager: operators (aten::index_add, mylib::*) or, without "
            "'::', "
            "a scope (decoder.sample)",
            [](ToolOptions& o, const std::string& v) {
              for (const auto& item : splitList("--no-graph", v)) {
                addNoGraph(o.partition, item);
              }
            }},
           {"graph-safe", Arity::kValue, "PATTERN,..",
            "trust these operators outside aten and prim",
            [](ToolOptions& o, const std::string& v) {
              for (const auto& item : splitList("--graph-safe", v)) {
                addGraphSafe("--graph-safe", o.partition, item);
              }
            }},
           {"no-make-capturable", Arity::kFlag, "",
            "leave make-capturable out of --partition",
            [](ToolOptions& o, const std::string&) {
              o.partition.make_capturable = false;
            }},
           {"with-reorder", Arity::kFlag, "",
            "put reorder into --partition, in front of plan",
            [](ToolOptions& o, const std::string&) {
              o.partition.reorder = true;
            }},
           {"no-verify", Arity::kFlag, "", "leave verify out of --partition",
            [](ToolOptions& o, const std::string&) {
              o.partition.verify = false;
            }},
           {"backend", Arity::kValue, "auto|cuda|host|off",
            "back end recorded in the module's sequence",
            [](ToolOptions& o, const std::string& v) {
              o.partition.backend = parseBackendOption("--backend", v);
            }},
           {"max-keys-per-segment", Arity::kValue, "N",
            "captured graphs kept for one segment (default: 64)",
            [](ToolOptions& o, const std::string& v) {
              o.partition.max_keys_per_segment =
                  parseCount("--max-keys-per-segment", v, 1);
            }},
       }});

  groups.push_back(
      {"Output",
       {
           {"emit", Arity::kValue, "archive|ir|plan|dot|html",
            "the result: a TorchScript file (default with -o for a module), IR "
            "text (default otherwise), each node with its segment or the "
            "reason why it stays eager, the same for Graphviz, or the source "
            "as a page, each line with its segments and breaks",
            [](ToolOptions& o, const std::string& v) {
              o.emit = parseChoice<Emit>("--emit", v,
                                         {{"archive", Emit::kArchive},
                                          {"ir", Emit::kIr},
                                          {"plan", Emit::kPlan},
                                          {"dot", Emit::kDot},
                                          {"html", Emit::kHtml}});
            }},
           {"report", Arity::kOptionalValue, "text|json",
            "print segments and breaks, with reasons and source lines: to "
            "standard output where -o names a file, else to standard error",
            [](ToolOptions& o, const std::string& v) {
              o.report = v.empty() ? ReportFormat::kText
                                   : parseChoice<ReportFormat>(
                                         "--report", v,
                                         {{"text", ReportFormat::kText},
                                          {"json", ReportFormat::kJson}});
            }},
           {"remarks", Arity::kOptionalValue, "missed|passed|all",
            "say at its source line why a node stays eager (missed), or what "
            "became a segment (passed)",
            [](ToolOptions& o, const std::string& v) {
              o.remarks = v.empty() ? Remarks{true, false}
                                    : parseChoice<Remarks>(
                                          "--remarks", v,
                                          {{"missed", Remarks{true, false}},
                                           {"passed", Remarks{false, true}},
                                           {"all", Remarks{true, true}}});
            }},
           {"require-coverage", Arity::kValue, "P",
            "fail if less than P % of the kernel-launching nodes are in "
            "segments",
            [](ToolOptions& o, const std::string& v) {
              o.require_coverage = parsePercent("--require-coverage", v);
            }},
           {"stats", Arity::kFlag, "", "print counts to standard error",
            [](ToolOptions& o, const std::string&) { o.stats = true; }},
           {"time-passes", Arity::kFlag, "",
            "print the time each pass took to standard error",
            [](ToolOptions& o, const std::string&) { o.time_passes = true; }},
       }});

  groups.push_back(
      {"Looking inside (to standard error)",
       {
           {"print-ir-before", Arity::kValue, "PASS,..",
            "print IR before a pass",
            [](ToolOptions& o, const std::string& v) {
              append(o.print_before, passList("--print-ir-before", v));
            }},
           {"print-ir-after", Arity::kValue, "PASS,..", "print IR after a pass",
            [](ToolOptions& o, const std::string& v) {
              append(o.print_after, passList("--print-ir-after", v));
            }},
           {"print-ir-before-all", Arity::kFlag, "",
            "print IR before every pass",
            [](ToolOptions& o, const std::string&) {
              o.print_before_all = true;
            }},
           {"print-ir-after-all", Arity::kFlag, "", "print IR after every pass",
            [](ToolOptions& o, const std::string&) {
              o.print_after_all = true;
            }},
           {"print-ir-after-change", Arity::kFlag, "",
            "print IR after every pass that changed it",
            [](ToolOptions& o, const std::string&) {
              o.print_after_change = true;
            }},
           {"print-ir-after-failure", Arity::kFlag, "",
            "print IR where a pass fails",
            [](ToolOptions& o, const std::string&) {
              o.print_after_failure = true;
            }},
           {"print-alias-db", Arity::kFlag, "",
            "print torch's alias analysis of the result",
            [](ToolOptions& o, const std::string&) { o.print_alias_db = true; },
            true},
       }});

  groups.push_back(
      {"Checking",
       {
           {"verify-each", Arity::kOptionalValue, "0|1",
            "check after each pass that graphs are well formed (default: 1)",
            [](ToolOptions& o, const std::string& v) {
              o.verify_each = parseSwitch("--verify-each", v);
            }},
           {"verify-roundtrip", Arity::kFlag, "",
            "check that printed IR reads back to the same text",
            [](ToolOptions& o, const std::string&) {
              o.verify_roundtrip = true;
            },
            true},
           {"verify-diagnostics", Arity::kFlag, "",
            "compare messages with comments in the input such as "
            "'# expected-error @+1 {{text}}'; nothing else is printed",
            [](ToolOptions& o, const std::string&) {
              o.verify_diagnostics = true;
            }},
       }});
  return groups;
}

const std::vector<Group>& groups() {
  static const std::vector<Group> all = makeGroups();
  return all;
}

// ---- help -------------------------------------------------------------------

void addPasses(std::string& out, bool from_torch) {
  for (const PassInfo& info : passInfos()) {
    if (info.from_torch != from_torch)
      continue;
    addEntry(out, "  --" + info.name,
             info.summary + (info.needs_module ? " (modules only)" : ""));
    for (const PassOptionInfo& option : info.options) {
      addEntry(out, "    " + option.name + "=" + option.value, option.help);
    }
  }
}

std::string passListing() {
  std::string out = "Passes of pcg, with their options:\n";
  addPasses(out, false);
  out += "\nPasses of torch:\n";
  addPasses(out, true);
  return out;
}

// ---- reading a command line -------------------------------------------------

class CommandLineReader {
 public:
  explicit CommandLineReader(const std::vector<std::string>& arguments)
      : reader_(arguments) {}

  ToolOptions read() {
    while (const auto word = reader_.next()) {
      if (!word->is_option) {
        addInput(word->text);
        continue;
      }
      readOption(*word);
      if (options_.print_and_exit)
        return std::move(options_);
    }
    check();
    return std::move(options_);
  }

 private:
  void addInput(const std::string& argument) {
    if (has_input_) {
      usageError("expected one input, found '" + options_.input + "' and '" +
                 argument + "'");
    }
    if (argument.empty())
      usageError("the input's name is empty");
    options_.input = argument;
    has_input_ = true;
  }

  void readOption(const ArgumentReader::Word& word) {
    const auto* option = findOption(groups(), word.name);
    if (option == nullptr) {
      const PassInfo* pass = findPass(word.name);
      if (pass == nullptr)
        unknownOption(word, allNames());
      addPassFlag(*pass, word.value);
      return;
    }
    const std::string value = reader_.valueFor(option->info(), word);
    if (word.name == "pass-pipeline" || word.name == "p") {
      has_pipeline_ = true;
    } else if (word.name == kPartition) {
      has_flag_ = true;
    }
    option->set(options_, value);
  }

  static std::vector<std::string> allNames() {
    std::vector<std::string> names;
    for (const OptionInfo& option : listOptions(groups(), true))
      names.push_back(option.name);
    append(names, passNames());
    return names;
  }

  void addPassFlag(const PassInfo& pass,
                   const std::optional<std::string>& value) {
    has_flag_ = true;
    const std::string braces = value ? "{" + *value + "}" : "";
    appendPasses(options_.pipeline, parsePipeline(pass.name + braces));
  }

  void check() const {
    for (const PassInstance& instance : options_.pipeline) {
      PartitionOptions unused;
      for (const auto& [name, value] : instance.options) {
        applyPassOption(unused, name, value);
      }
    }
    if (has_pipeline_ && has_flag_) {
      usageError("--pass-pipeline and passes as options exclude each other");
    }
  }

  ArgumentReader reader_;
  ToolOptions options_;
  bool has_input_ = false;
  bool has_pipeline_ = false;
  bool has_flag_ = false;
};

}  // namespace

ToolOptions parseCommandLine(const std::vector<std::string>& arguments) {
  return CommandLineReader(arguments).read();
}

void applyPassOption(PartitionOptions& options, const std::string& name,
                     const std::string& value) {
  if (name == "min-segment-size") {
    options.min_segment_size = parseCount(name, value, 1);
  } else if (name == "max-keys-per-segment") {
    options.max_keys_per_segment = parseCount(name, value, 1);
  } else if (name == "backend") {
    options.backend = parseBackendOption(name, value);
  } else if (name == "no-graph") {
    if (value.empty())
      usageError(name + ": expected a value");
    addNoGraph(options, value);
  } else {
    addGraphSafe(name, options, value);
  }
}

std::string helpText(bool with_hidden) {
  std::string out =
      "usage: pcg-opt [options] [INPUT]\n"
      "\n"
      "Cuts TorchScript models into segments that run as CUDA graphs, and runs "
      "single\n"
      "passes on them. INPUT is a TorchScript file, as torch.jit.save writes "
      "it, or IR\n"
      "text; '-' or nothing is standard input. Without passes it is checked "
      "and\n"
      "printed, or written again.\n"
      "\n"
      "  pcg-opt --partition --report model.pt -o model_pcg.pt\n"
      "  pcg-opt --partition --emit=plan model.pt\n"
      "  pcg-opt --prepare --plan --outline graph.ir\n";
  addGroups(out, groups(), with_hidden);
  out += "\nPasses of pcg (--plan=min-segment-size=2 sets a pass's option):\n";
  addPasses(out, false);
  out += "\nPasses of torch:\n";
  addPasses(out, true);
  out +=
      "\n"
      "IR text is what pcg-opt prints. '#' starts a comment. Classes such as\n"
      "__torch__.M may be named freely; subgraphs follow their graph, as\n"
      "'with pcg::segment_0 = graph(...)'. Tensors written <Tensor> are "
      "zeros.\n"
      "\n"
      "Exit code: 0 success; 1 the input, or what a pass or check found in "
      "it; 2 the\n"
      "command line, or an output that cannot be written; 3 an internal "
      "error. An\n"
      "output file appears only on success.\n";
  return out;
}

std::string bashCompletion() {
  std::vector<OptionInfo> options = listOptions(groups(), false);
  std::string passes;
  for (const std::string& name : passNames())
    passes += (passes.empty() ? "" : "|") + name;
  for (OptionInfo& option : options) {
    if (option.value == "PASS,..")
      option.value = passes;
  }
  for (const std::string& name : passNames()) {
    OptionInfo pass;
    pass.name = name;
    options.push_back(pass);
  }
  return bashCompletion("pcg-opt", options);
}

}  // namespace pcg::opt
