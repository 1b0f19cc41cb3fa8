#include "tools/pcg-opt/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-run/run_options.h"

namespace pcg::opt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string usageError(const std::vector<std::string>& arguments) {
  try {
    parseCommandLine(arguments);
  } catch (const ToolError& error) {
    EXPECT_EQ(error.code(), kBadUsage);
    return error.what();
  }
  return "(no error)";
}

TEST(CommandLine, DefaultsReadStandardInputAndPrint) {
  const ToolOptions options = parseCommandLine({});
  EXPECT_EQ(options.input, "-");
  EXPECT_EQ(options.output, "-");
  EXPECT_FALSE(options.output_given);
  EXPECT_TRUE(options.pipeline.empty());
  EXPECT_TRUE(options.verify_each);
  EXPECT_EQ(options.report, ReportFormat::kNone);
}

TEST(CommandLine, DashesAndValuesAreAlike) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"--min-segment-size=7", "m.pt", "-o", "out"},
           {"--min-segment-size", "7", "-o=out", "m.pt"},
           {"-min-segment-size", "7", "--o", "out", "--", "m.pt"},
           {"m.pt", "-min-segment-size=7", "--o=out"}}) {
    const ToolOptions options = parseCommandLine(arguments);
    EXPECT_EQ(options.partition.min_segment_size, 7);
    EXPECT_EQ(options.input, "m.pt");
    EXPECT_EQ(options.output, "out");
    EXPECT_TRUE(options.output_given);
  }
}

TEST(CommandLine, TheLastOfSeveralValuesCounts) {
  EXPECT_EQ(parseCommandLine({"--min-segment-size=7", "--min-segment-size=2"})
                .partition.min_segment_size,
            2);
}

TEST(CommandLine, AfterTwoDashesEverythingIsInput) {
  EXPECT_EQ(parseCommandLine({"--", "--odd"}).input, "--odd");
}

TEST(CommandLine, PatternsAreSortedIntoOperatorsAndScopes) {
  const ToolOptions options =
      parseCommandLine({"--no-graph=aten::add,decoder.sample", "--no-graph",
                        "mylib::*", "--graph-safe=a::b,c::*"});
  EXPECT_THAT(options.partition.no_graph_ops,
              ElementsAre("aten::add", "mylib::*"));
  EXPECT_THAT(options.partition.no_graph_scopes, ElementsAre("decoder.sample"));
  EXPECT_THAT(options.partition.graph_safe_ops, ElementsAre("a::b", "c::*"));
}

TEST(CommandLine, PassesRunInTheOrderGiven) {
  const ToolOptions options = parseCommandLine(
      {"--dce", "--partition", "--cse", "--plan=min-segment-size=2"});
  EXPECT_EQ(toString(options.pipeline),
            "dce,partition,cse,plan{min-segment-size=2}");
}

TEST(CommandLine, EveryOptionalValueIsOptional) {
  const ToolOptions options = parseCommandLine(
      {"--report", "--remarks", "--split-input-file", "--verify-each"});
  EXPECT_EQ(options.report, ReportFormat::kText);
  EXPECT_TRUE(options.remarks.missed);
  EXPECT_FALSE(options.remarks.passed);
  EXPECT_EQ(options.split_marker, "# -----");
  EXPECT_TRUE(options.verify_each);
  const ToolOptions others =
      parseCommandLine({"--report=json", "--remarks=all",
                        "--split-input-file=%%", "--verify-each=0"});
  EXPECT_EQ(others.report, ReportFormat::kJson);
  EXPECT_TRUE(others.remarks.missed);
  EXPECT_TRUE(others.remarks.passed);
  EXPECT_EQ(others.split_marker, "%%");
  EXPECT_FALSE(others.verify_each);
}

TEST(CommandLine, AllOtherOptionsAreTaken) {
  const ToolOptions options = parseCommandLine({"--input-format=ir",
                                                "--method=a,b",
                                                "--method",
                                                "c",
                                                "--load=l.so",
                                                "--allow-unregistered-ops",
                                                "--dump-pass-pipeline",
                                                "--emit=dot",
                                                "--require-coverage=82.5%",
                                                "--stats",
                                                "--time-passes",
                                                "--print-ir-before=plan",
                                                "--print-ir-after=plan,verify",
                                                "--print-ir-before-all",
                                                "--print-ir-after-all",
                                                "--print-ir-after-change",
                                                "--print-ir-after-failure",
                                                "--print-alias-db",
                                                "--verify-roundtrip",
                                                "--verify-diagnostics",
                                                "--no-make-capturable",
                                                "--with-reorder",
                                                "--no-verify",
                                                "--backend=host",
                                                "--max-keys-per-segment=3"});
  EXPECT_EQ(options.format, InputFormat::kIr);
  EXPECT_THAT(options.methods, ElementsAre("a", "b", "c"));
  EXPECT_THAT(options.libraries, ElementsAre("l.so"));
  EXPECT_TRUE(options.allow_unregistered_ops);
  EXPECT_TRUE(options.dump_pipeline);
  EXPECT_EQ(options.emit, Emit::kDot);
  EXPECT_DOUBLE_EQ(options.require_coverage.value(), 82.5);
  EXPECT_TRUE(options.stats);
  EXPECT_TRUE(options.time_passes);
  EXPECT_THAT(options.print_before, ElementsAre("plan"));
  EXPECT_THAT(options.print_after, ElementsAre("plan", "verify"));
  EXPECT_TRUE(options.print_before_all);
  EXPECT_TRUE(options.print_after_all);
  EXPECT_TRUE(options.print_after_change);
  EXPECT_TRUE(options.print_after_failure);
  EXPECT_TRUE(options.print_alias_db);
  EXPECT_TRUE(options.verify_roundtrip);
  EXPECT_TRUE(options.verify_diagnostics);
  EXPECT_FALSE(options.partition.make_capturable);
  EXPECT_TRUE(options.partition.reorder);
  EXPECT_FALSE(options.partition.verify);
  EXPECT_EQ(options.partition.backend, Backend::kHost);
  EXPECT_EQ(options.partition.max_keys_per_segment, 3);
}

TEST(CommandLine, MistakesAreNamed) {
  EXPECT_THAT(usageError({"--reprot"}), HasSubstr("did you mean '--report'?"));
  EXPECT_THAT(usageError({"--outlin"}), HasSubstr("did you mean '--outline'?"));
  EXPECT_THAT(usageError({"-q"}), HasSubstr("unknown option '-q'"));
  EXPECT_THAT(usageError({"--o"}), HasSubstr("-o: expected a value"));
  EXPECT_THAT(usageError({"--method="}), HasSubstr("expected a value"));
  EXPECT_THAT(usageError({"--method=a,,b"}), HasSubstr("is empty"));
  EXPECT_THAT(usageError({"--load="}), HasSubstr("expected a file name"));
  EXPECT_THAT(usageError({"a", "b"}), HasSubstr("expected one input"));
  EXPECT_THAT(usageError({""}), HasSubstr("name is empty"));
  EXPECT_THAT(usageError({"--verify-each=2"}), HasSubstr("expected 0 or 1"));
  EXPECT_THAT(usageError({"--require-coverage=nan"}),
              HasSubstr("expected a percentage"));
  EXPECT_THAT(usageError({"--min-segment-size=1.5"}),
              HasSubstr("expected an integer of at least 1"));
  EXPECT_THAT(usageError({"--print-ir-after=pla"}),
              HasSubstr("did you mean 'plan'?"));
  EXPECT_THAT(usageError({"--lower=backend=tpu"}),
              HasSubstr("expected auto, cuda, host or off"));
  EXPECT_THAT(usageError({"--dce", "-p", "cse"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(usageError({"--input-format=pt"}),
              HasSubstr("expected auto, ir or module"));
}

TEST(CommandLine, HelpFitsEightyColumnsAndNamesEverything) {
  const std::string text = helpText(true);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
  }
  for (const PassInfo& info : passInfos()) {
    EXPECT_THAT(text, HasSubstr("--" + info.name));
  }
  EXPECT_THAT(helpText(false), testing::Not(HasSubstr("--print-alias-db")));
  EXPECT_THAT(bashCompletion(), HasSubstr("--print-ir-after="));
}

// `--name` of each entry that a help text has.
std::vector<std::string> optionsOf(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  -", 0) == 0)
      names.push_back(line.substr(2, line.find_first_of(" =[", 2) - 2));
  }
  return names;
}

TEST(Documentation, NamesEveryOption) {
  std::ifstream file(PCG_SOURCE_DIR "/docs/pcg-opt.md");
  const std::string page{std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>()};
  const std::size_t run = page.find("## Options of pcg-run");
  ASSERT_NE(run, std::string::npos);
  const std::vector<std::string> names = optionsOf(helpText(true));
  EXPECT_GT(names.size(), 50U);
  for (const std::string& name : names)
    EXPECT_THAT(page.substr(0, run), HasSubstr("`" + name));
  for (const std::string& name : optionsOf(run::helpText()))
    EXPECT_THAT(page.substr(run), HasSubstr("`" + name));
}

TEST(Pipeline, TextsReadBack) {
  for (const std::string text :
       {"dce", "partition", "prepare,plan{min-segment-size=3 graph-safe=a::b}",
        "partition{backend=host min-segment-size=2},dce"}) {
    EXPECT_EQ(toString(parsePipeline(text)), text);
  }
  EXPECT_EQ(toString(parsePipeline(" dce ,\tplan{ min-segment-size=3, } ")),
            "dce,plan{min-segment-size=3}");
}

TEST(Pipeline, TheDefaultOneIsDocumented) {
  EXPECT_EQ(toString(partitionPipeline({})),
            "prepare,annotate,make-capturable,plan,outline,verify");
  PartitionPipelineOptions options;
  options.make_capturable = false;
  options.verify = false;
  options.lower = true;
  EXPECT_EQ(toString(partitionPipeline(options)),
            "prepare,annotate,plan,outline,lower");
}

}  // namespace
}  // namespace pcg::opt
