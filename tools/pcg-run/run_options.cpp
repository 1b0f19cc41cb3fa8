#include "tools/pcg-run/run_options.h"

#include <torch/version.h>

#include "tools/pcg-opt/command_line.h"
#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/pipeline.h"

#ifndef PCG_VERSION
#define PCG_VERSION "unknown"
#endif

namespace pcg::run {
namespace {

using opt::Arity;
using opt::OptionInfo;
using opt::parseChoice;
using opt::usageError;

using Group = opt::OptionGroup<RunOptions>;

std::vector<Group> makeGroups();

const std::vector<Group>& groups() {
  static const std::vector<Group> all = makeGroups();
  return all;
}

void setPartition(RunOptions& options, const std::string& braces) {
  options.partition = true;
  for (const auto& instance :
       opt::parsePipeline(std::string(opt::kPartition) + "{" + braces + "}")) {
    for (const auto& [name, value] : instance.options)
      opt::applyPassOption(options.partition_options, name, value);
  }
}

std::vector<Group> makeGroups() {
  std::vector<Group> all;
  all.push_back(
      {"General",
       {
           {"help", Arity::kFlag, "", "print this text (also -h)",
            [](RunOptions& o, const std::string&) {
              o.print_and_exit = helpText();
            }},
           {"h", Arity::kFlag, "", "as --help",
            [](RunOptions& o, const std::string&) {
              o.print_and_exit = helpText();
            },
            true},
           {"version", Arity::kFlag, "", "print the versions of pcg and torch",
            [](RunOptions& o, const std::string&) {
              o.print_and_exit =
                  "pcg-run " PCG_VERSION " (torch " TORCH_VERSION ")\n";
            }},
           {"completion", Arity::kValue, "bash",
            "print a completion script for a shell",
            [](RunOptions& o, const std::string& v) {
              parseChoice<int>("--completion", v, {{"bash", 0}});
              o.print_and_exit =
                  opt::bashCompletion("pcg-run", listOptions(groups(), false));
            },
            true},
       }});
  all.push_back(
      {"The call",
       {
           {"input", Arity::kValue, "VALUE",
            "an argument of the method; again for each further one",
            [](RunOptions& o, const std::string& v) { o.inputs.push_back(v); }},
           {"method", Arity::kValue, "NAME",
            "the method to call (default: forward)",
            [](RunOptions& o, const std::string& v) {
              if (v.empty())
                usageError("--method: expected a name");
              o.method = v;
            }},
           {"load", Arity::kValue, "LIB",
            "load a library that defines operators or classes first",
            [](RunOptions& o, const std::string& v) {
              o.libraries.push_back(opt::parseFileName("--load", v));
            }},
           {"device", Arity::kValue, "cpu|cuda",
            "where inputs are made and the model is moved (default: where its "
            "tensors are; cuda for a model without any, if there is one)",
            [](RunOptions& o, const std::string& v) {
              o.device = parseChoice<std::string>(
                  "--device", v, {{"cpu", "cpu"}, {"cuda", "cuda"}});
            }},
           {"seed", Arity::kValue, "N",
            "of random inputs and of the model's random numbers (default: 0)",
            [](RunOptions& o, const std::string& v) {
              o.seed =
                  static_cast<std::uint64_t>(opt::parseCount("--seed", v, 0));
            }},
       }});
  all.push_back(
      {"What is compared",
       {
           {"compare", Arity::kValue, "FILE",
            "call this TorchScript file, too, and compare every call",
            [](RunOptions& o, const std::string& v) {
              o.original = opt::parseFileName("--compare", v);
            }},
           {"partition", Arity::kOptionalValue, "OPTIONS",
            "partition the model first, with options as of pcg-opt "
            "--partition, and compare with the model as it is",
            [](RunOptions& o, const std::string& v) { setPartition(o, v); }},
           {"verify", Arity::kFlag, "",
            "compare with the same file, its segments run eagerly; sets "
            "PCG_VERIFY=1 for the model",
            [](RunOptions& o, const std::string&) { o.verify = true; }},
           {"backend", Arity::kValue, "auto|cuda|host|off",
            "sets PCG_BACKEND: what runs the segments",
            [](RunOptions& o, const std::string& v) {
              o.backend = parseChoice<Backend>("--backend", v,
                                               {{"auto", Backend::kAuto},
                                                {"cuda", Backend::kCuda},
                                                {"host", Backend::kHost},
                                                {"off", Backend::kOff}});
            }},
       }});
  all.push_back(
      {"How often, and what is printed",
       {
           {"calls", Arity::kValue, "N",
            "calls, each with new random values (default: 20)",
            [](RunOptions& o, const std::string& v) {
              o.calls = opt::parseCount("--calls", v, 1);
            }},
           {"warm-up", Arity::kValue, "N",
            "calls that times leave out: the first ones compile, warm up and "
            "capture (default: 5)",
            [](RunOptions& o, const std::string& v) {
              o.warm_up = opt::parseCount("--warm-up", v, 0);
            }},
           {"report", Arity::kOptionalValue, "text|json",
            "the form of the report (default: text)",
            [](RunOptions& o, const std::string& v) {
              o.json = !v.empty() &&
                       parseChoice<bool>("--report", v,
                                         {{"text", false}, {"json", true}});
            }},
           {"progress", Arity::kOptionalValue, "0|1",
            "say on standard error how far long work is (default: 1)",
            [](RunOptions& o, const std::string& v) {
              o.progress = opt::parseSwitch("--progress", v);
            }},
       }});
  return all;
}

}  // namespace

RunOptions parseCommandLine(const std::vector<std::string>& arguments) {
  RunOptions options;
  opt::ArgumentReader reader(arguments);
  bool has_model = false;
  while (const auto word = reader.next()) {
    if (!word->is_option) {
      if (has_model) {
        usageError("expected one model, found '" + options.model + "' and '" +
                   word->text + "'");
      }
      if (word->text == "-" || word->text.empty())
        usageError("expected the name of a TorchScript file");
      options.model = word->text;
      has_model = true;
      continue;
    }
    const auto* option = findOption(groups(), word->name);
    if (option == nullptr) {
      std::vector<std::string> names;
      for (const OptionInfo& info : listOptions(groups(), true))
        names.push_back(info.name);
      unknownOption(*word, names);
    }
    option->set(options, reader.valueFor(option->info(), *word));
    if (options.print_and_exit)
      return options;
  }
  if (!has_model)
    usageError("expected a TorchScript file; --help explains");
  if (options.verify && !options.original.empty())
    usageError("--verify and --compare exclude each other");
  if (options.verify && options.partition)
    usageError(
        "--verify and --partition exclude each other: --partition compares "
        "with the model as it is");
  if (options.backend == Backend::kCuda && options.device == "cpu")
    usageError("--backend=cuda and --device=cpu exclude each other");
  if (options.backend == Backend::kHost && options.device == "cuda")
    usageError("--backend=host and --device=cuda exclude each other");
  return options;
}

std::string helpText() {
  std::string out =
      "usage: pcg-run [options] MODEL\n"
      "\n"
      "Calls a TorchScript file, compares it with the model it came from, call "
      "by\n"
      "call, and prints what was captured and replayed and how long calls "
      "took.\n"
      "\n"
      "  pcg-run model_pcg.pt --compare=model.pt --input='f32[1,3,224,224]'\n"
      "  pcg-run model.pt --partition --backend=host --input='f32[8,64]'\n"
      "  pcg-run model_pcg.pt --verify --input=@saved.pt --calls=1000\n";
  addGroups(out, groups(), false);
  out +=
      "\n"
      "Values of --input:\n"
      "  f32[1,3,224,224]  a random tensor: f64, f32, f16, bf16, i64, i32, "
      "i16, "
      "i8, u8,\n"
      "                    bool, c64 or c128; f32[] has no dimension\n"
      "  i64[8](0,100)     its values are at least 0 and less than 100\n"
      "  f32[8](0.5)       all its values are 0.5\n"
      "  3  0.5  true  None  \"text\"\n"
      "  [f32[4], f32[8]]  a list; (f32[4], 3) a tuple; {\"a\": 1} a dict\n"
      "  @file.pt          what torch.save wrote; *@file.pt: each element of a "
      "tuple or\n"
      "                    list that it wrote is an argument\n"
      "Without a range, floating-point values are normally distributed and "
      "integers lie\n"
      "between 0 and 9.\n"
      "\n"
      "A call agrees where results, inputs afterwards, what shares memory with "
      "what,\n"
      "error messages and the state of the random number generator are the "
      "same "
      "bit by\n"
      "bit, and in the end the module's attributes.\n"
      "\n"
      "Exit code: 0 success; 1 the model or its inputs, or a difference; 2 the "
      "command\n"
      "line, or output that cannot be written; 3 an internal error.\n";
  return out;
}

}  // namespace pcg::run
