#include "tools/pcg-opt/pcg_opt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcg/report.h>
#include <torch/script.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace pcg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Result {
  int code;
  std::string out;
  std::string err;
};

Result run(std::vector<std::string> arguments, const std::string& in = "") {
  arguments.insert(arguments.begin(), "pcg-opt");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  std::istringstream input(in);
  std::ostringstream out;
  std::ostringstream err;
  const int code =
      runPcgOpt(static_cast<int>(argv.size()), argv.data(), input, out, err);
  return {code, out.str(), err.str()};
}

constexpr const char* kText =
    "graph(%x : Tensor):\n"
    "  %a : Tensor = aten::relu(%x)\n"
    "  %b : Tensor = aten::tanh(%a)\n"
    "  %c : Tensor = aten::relu(%b)\n"
    "  %d : Tensor = aten::tanh(%c)\n"
    "  %s : Scalar = aten::item(%d)\n"
    "  return (%d, %s)\n";

torch::jit::Module makeModel() {
  torch::jit::Module inner("Inner");
  inner.register_parameter("weight", torch::ones({4}), false);
  inner.define("def forward(self, x):\n  return torch.relu(x * self.weight)\n");
  torch::jit::Module model("Model");
  model.register_module("inner", inner);
  model.register_buffer("state", torch::zeros({4}));
  model.define(R"(
def forward(self, x):
    y = self.inner.forward(x).tanh().sigmoid().neg()
    if bool(y.sum() > 0):
        y = y * 2
    self.state = y
    return y.relu().tanh().sigmoid().neg()

def reset(self):
    self.state = torch.zeros([4])

def _hidden(self, x):
    return x
)");
  return model;
}

std::string archiveOf(const torch::jit::Module& module,
                      const torch::jit::ExtraFilesMap& extra = {}) {
  std::ostringstream out;
  module.save(out, extra);
  return out.str();
}

torch::jit::Module load(const std::string& archive,
                        torch::jit::ExtraFilesMap* extra = nullptr) {
  std::istringstream in(archive);
  if (extra == nullptr)
    return torch::jit::load(in);
  return torch::jit::load(in, c10::nullopt, *extra);
}

class PcgOptFiles : public testing::Test {
 protected:
  PcgOptFiles() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pcg-opt-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~PcgOptFiles() override { std::filesystem::remove_all(folder_); }

  std::string in(const std::string& name) const { return folder_ + "/" + name; }
  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST(PcgOpt, HelpAndVersionAnswerAndSucceed) {
  const Result help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, StartsWith("usage: pcg-opt [options] [INPUT]"));
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(run({"--version"}).out, HasSubstr("torch 2."));
}

TEST(PcgOpt, NoArgumentsAtAllReadStandardInput) {
  std::istringstream in("graph():\n  return ()\n");
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(runPcgOpt(0, nullptr, in, out, err), 0);
  EXPECT_EQ(out.str(), "graph():\n  return ()\n");
}

TEST(PcgOpt, TextWithoutPassesIsPrintedUnchanged) {
  const Result result = run({}, kText);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, kText);
  EXPECT_EQ(result.err, "");
}

TEST(PcgOpt, PartitionOnTextPrintsTheOutlinedGraph) {
  const Result result = run({"--partition", "--report"}, kText);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("%d : Tensor = pcg::segment_0"),
                    HasSubstr("with pcg::segment_0 = graph(%x : Tensor):"),
                    Not(HasSubstr("run_segment"))));
  EXPECT_THAT(result.err, HasSubstr("1 segment, 1 break"));
}

TEST(PcgOpt, OneLineAndItsOwnExitCodeForEachKindOfMistake) {
  const auto expectLine = [](const Result& result, int code,
                             const std::string& start) {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith(start));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  };
  expectLine(run({"--nonsense"}), 2, "pcg-opt: error: unknown option");
  expectLine(run({"--lower"}, kText), 2, "pcg-opt: error: pass 'lower' needs");
  expectLine(run({"-o", "/no/such/folder/x"}, kText), 2,
             "pcg-opt: error: cannot write /no/such/folder/x");
  expectLine(run({"/no/such/file"}), 1, "pcg-opt: error: /no/such/file: ");
  expectLine(run({}), 1, "pcg-opt: error: <stdin>: is empty");
  expectLine(run({"--freeze"}, std::string("PK\x03\x04", 4)), 1,
             "pcg-opt: error: <stdin>: the archive is truncated");
}

TEST(PcgOpt, BrokenInvariantsOfHandWrittenSegmentsAreBadInput) {
  const std::string text =
      "graph(%x : Tensor):\n"
      "  %y : Tensor = pcg::segment_0[name=\"s\"](%x)\n"
      "  return (%y)\n"
      "with pcg::segment_0 = graph(%x : Tensor):\n"
      "  return (%x)\n";
  const Result result = run({"--verify"}, text);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("pass 'verify': invariant broken in "
                                    "segment 's': returns its input %x"));
}

TEST(PcgOpt, ResultsDoNotDependOnTheRun) {
  const Result first = run({"--partition", "--emit=dot"}, kText);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run({"--partition", "--emit=dot"}, kText).out, first.out);
  }
  const std::string archive = archiveOf(makeModel());
  const Result module = run({"--partition", "-o", "-"}, archive);
  ASSERT_EQ(module.code, 0) << module.err;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run({"--partition", "-o", "-"}, archive).out, module.out);
  }
}

// A host program's locale, of the kind that groups digits.
struct GroupedDigits : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(PcgOpt, ResultsDoNotDependOnTheLocale) {
  std::string text = "graph(%x0 : Tensor):\n";
  for (int i = 0; i < 1200; ++i) {
    text += "  %x" + std::to_string(i + 1) + " : Tensor = aten::relu(%x" +
            std::to_string(i) + ")\n";
  }
  text += "  %c : float = prim::Constant[value=0.5]()\n";
  text += "  %s : Scalar = aten::item(%x1200)\n  return (%s, %c)\n";
  for (const char* form :
       {"--emit=ir", "--emit=plan", "--emit=dot", "--emit=html",
        "--report=json", "--report", "--stats", "--remarks=all"}) {
    const Result expected = run({"--partition", form}, text);
    EXPECT_EQ(expected.code, 0) << expected.err;
    const std::locale before = std::locale::global(
        std::locale(std::locale::classic(), new GroupedDigits));
    const Result found = run({"--partition", form}, text);
    std::locale::global(before);
    EXPECT_EQ(expected.out, found.out) << form;
    EXPECT_EQ(expected.err, found.err) << form;
  }
}

// A host program calls pcg::partition in the locale that it has chosen.
TEST(PartitionReport, IsTheSameInEveryLocale) {
  const std::locale before = std::locale::global(
      std::locale(std::locale::classic(), new GroupedDigits));
  PartitionReport report;
  report.segments.push_back({"forward.segment_0", "forward", 2000, 1200});
  report.eager_kernels = 1200;
  const std::string text = report.text() + report.json();
  std::locale::global(before);
  EXPECT_THAT(text, AllOf(HasSubstr("1200 work-launching nodes of 2000"),
                          HasSubstr("50.0 %"), HasSubstr("\"nodes\": 2000")));
}

TEST(PcgOpt, AModuleIsPrintedMethodByMethod) {
  const Result result = run({}, archiveOf(makeModel()));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("# method forward\ngraph(%self"),
                    HasSubstr("# -----\n# method reset\ngraph(%self"),
                    HasSubstr("prim::CallMethod"), Not(HasSubstr("_hidden"))));
  const Result one = run({"--method=_hidden"}, archiveOf(makeModel()));
  EXPECT_THAT(one.out, StartsWith("# method _hidden\n"));
  EXPECT_THAT(one.out, Not(HasSubstr("forward")));
  // And what was printed can be read.
  const Result again = run({"--split-input-file"}, result.out);
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST(PcgOpt, AModuleWithoutPassesIsWrittenAsItIs) {
  const Result result =
      run({"-", "-o", "-"}, archiveOf(makeModel(), {{"a.txt", "hello"}}));
  ASSERT_EQ(result.code, 0) << result.err;
  torch::jit::ExtraFilesMap extra = {{"a.txt", ""}};
  torch::jit::Module module = load(result.out, &extra);
  EXPECT_EQ(extra.at("a.txt"), "hello");
  const auto x = torch::randn({4});
  EXPECT_TRUE(torch::equal(module.forward({x}).toTensor(),
                           makeModel().forward({x}).toTensor()));
}

TEST(PcgOpt, TorchPassesChangeTheMethodsOfAModule) {
  for (const std::vector<std::string>& passes :
       std::vector<std::vector<std::string>>{
           {"--inline", "--dce", "--cse"}, {"--prepare"}, {"--canonicalize"}}) {
    std::vector<std::string> arguments = passes;
    arguments.insert(arguments.end(), {"-o", "-"});
    const Result result = run(arguments, archiveOf(makeModel()));
    ASSERT_EQ(result.code, 0) << result.err;
    torch::jit::Module module = load(result.out);
    const auto x = torch::randn({4});
    torch::jit::Module original = makeModel();
    EXPECT_TRUE(torch::equal(module.forward({x}).toTensor(),
                             original.forward({x}).toTensor()));
    EXPECT_TRUE(torch::equal(module.attr("state").toTensor(),
                             original.attr("state").toTensor()));
  }
}

TEST(PcgOpt, PassesOneByOneAndPartitionAgree) {
  const std::string archive = archiveOf(makeModel());
  const Result quiet = run({"--partition", "-o", "-"}, archive);
  const Result loud = run({"--partition", "-o", "-", "--print-ir-after-all",
                           "--remarks=all", "--time-passes"},
                          archive);
  ASSERT_EQ(quiet.code, 0) << quiet.err;
  ASSERT_EQ(loud.code, 0) << loud.err;
  EXPECT_EQ(quiet.out, loud.out);
  EXPECT_THAT(loud.err, AllOf(HasSubstr("IR dump after prepare (forward) //"),
                              HasSubstr("IR dump after lower (reset) //"),
                              HasSubstr("remark: break: aten::Bool")));
}

TEST(PcgOpt, LowerMayBeAPassLikeOthers) {
  const Result result =
      run({"--pass-pipeline", "partition{min-segment-size=2},lower,dce",
           "--method=forward"},
          archiveOf(makeModel()));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("pcg::run_segment("));
  const Result file =
      run({"--pass-pipeline", "partition{min-segment-size=2},dce", "-o", "-"},
          archiveOf(makeModel()));
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_TRUE(load(file.out).hasattr("pcg_sequence"));
}

TEST(PcgOpt, CoverageBelowTheRequiredOneFails) {
  EXPECT_EQ(run({"--partition", "--require-coverage=100"}, kText).code, 0);
  const Result result = run(
      {"--partition", "--require-coverage=1", "--min-segment-size=5"}, kText);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("0.00 % of the kernel-launching nodes"));
}

TEST_F(PcgOptFiles, AFailureLeavesNoFile) {
  std::ofstream(in("bad.ir")) << "graph(%x : Tensor):\n  return (%y)\n";
  EXPECT_EQ(run({in("bad.ir"), "-o", in("out")}).code, 1);
  EXPECT_EQ(run({"--partition", "--require-coverage=99", "-o", in("out"),
                 "--min-segment-size=9"},
                kText)
                .code,
            1);
  EXPECT_FALSE(std::filesystem::exists(in("out")));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 1U);
}

TEST_F(PcgOptFiles, ReportsGoWhereTheResultDoesNot) {
  const Result to_file =
      run({"--partition", "--report=json", "-o", in("out")}, kText);
  EXPECT_THAT(to_file.out, StartsWith("{\"segments\": [{"));
  EXPECT_EQ(to_file.err, "");
  const Result to_stdout = run({"--partition", "--report=json"}, kText);
  EXPECT_THAT(to_stdout.err, StartsWith("{\"segments\": [{"));
  EXPECT_EQ(to_stdout.out, contents(in("out")));
}

TEST_F(PcgOptFiles, InputAndOutputMayBeOneFile) {
  std::ofstream(in("m.pt"), std::ios::binary) << archiveOf(makeModel());
  EXPECT_EQ(run({"--inline", in("m.pt"), "-o", in("m.pt")}).code, 0);
  EXPECT_THAT(run({in("m.pt")}).out, Not(HasSubstr("CallMethod")));
}

// Damaged archives must be refused or read, never end the process.
TEST(PcgOpt, SurvivesDamagedArchives) {
  const std::string good = archiveOf(makeModel(), {{"a.txt", "hello"}});
  std::mt19937 random(1);
  const auto below = [&](std::size_t bound) {
    return static_cast<std::size_t>(random()) % bound;
  };
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = good;
    if (round % 3 == 0) {
      damaged.resize(below(good.size()));
    } else {
      const std::size_t at = below(good.size());
      for (std::size_t i = 0;
           i < (round % 3 == 1 ? 1 : 1 + below(64)) && at + i < good.size();
           ++i) {
        damaged[at + i] = static_cast<char>(below(256));
      }
    }
    const Result result = run({"--partition", "-", "-o", "-"}, damaged);
    EXPECT_TRUE(result.code == 0 || result.code == 1) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'),
              result.code == 0 ? 0 : 1)
        << result.err;
    refused += result.code;
  }
  EXPECT_GT(refused, 200);
}

// So must command lines.
TEST_F(PcgOptFiles, SurvivesRandomCommandLines) {
  // Some of them name output files; those belong into the test's own folder.
  struct WorkingFolder {
    explicit WorkingFolder(const std::string& folder)
        : before(std::filesystem::current_path()) {
      std::filesystem::current_path(folder);
    }
    ~WorkingFolder() { std::filesystem::current_path(before); }
    const std::filesystem::path before;
  } working_folder(folder_);
  const std::vector<std::string> words = {"--partition",
                                          "--plan",
                                          "--outline",
                                          "-o",
                                          "-",
                                          "--dce",
                                          "--emit=plan",
                                          "--emit",
                                          "dot",
                                          "--report",
                                          "--report=json",
                                          "-p",
                                          "prepare,plan{",
                                          "plan{min-segment-size=2},outline",
                                          "--split-input-file",
                                          "--",
                                          "--x",
                                          "--min-segment-size",
                                          "3",
                                          "--no-graph",
                                          "aten::relu,b",
                                          "--stats",
                                          "--verify",
                                          "--remarks=all",
                                          "--verify-diagnostics",
                                          "--freeze",
                                          "--print-ir-after-all",
                                          "--print-ir-before",
                                          "--require-coverage=50",
                                          "--allow-unregistered-ops",
                                          "--verify-roundtrip",
                                          "--print-alias-db",
                                          "=",
                                          "-=",
                                          "--=",
                                          "---",
                                          "--partition=",
                                          "--plan=}{",
                                          "--classify",
                                          "--constant-propagation",
                                          "--cse",
                                          "--canonicalize",
                                          "--inline"};
  std::mt19937 random(1);
  for (int round = 0; round < 1500; ++round) {
    std::vector<std::string> arguments;
    std::string line;
    for (std::size_t count = random() % 6; count > 0; --count) {
      arguments.push_back(words[random() % words.size()]);
      line += arguments.back() + " ";
    }
    const Result result = run(arguments, kText);
    EXPECT_TRUE(result.code >= 0 && result.code <= 2) << line << result.err;
    EXPECT_TRUE(result.code == 0 || !result.err.empty()) << line;
  }
}

}  // namespace
}  // namespace pcg
