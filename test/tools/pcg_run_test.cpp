#include "tools/pcg-run/pcg_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcg/partition.h>
#include <torch/script.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-run/json_text.h"
#include "tools/pcg-run/run_options.h"
#include "tools/pcg-run/timing.h"

namespace pcg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Result {
  int code;
  std::string out;
  std::string err;
};

Result run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "pcg-run");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream err;
  const int code = runPcgRun(static_cast<int>(argv.size()), argv.data(), out,
                             err, /*terminal=*/false);
  return {code, out.str(), err.str()};
}

constexpr const char* kGated = R"(
def forward(self, x, scale: float = 2.0):
    y = x.relu().tanh().sigmoid().neg()
    if bool(y.sum() > -5.0):
        y = y * scale
    x.add_(1.0)
    return y.relu().tanh().sigmoid().neg(), x

def noisy(self, x):
    return torch.rand_like(x) + x

def checked(self, x):
    assert x.numel() == 0, "never empty"
    return x
)";

class PcgRun : public testing::Test {
 protected:
  PcgRun() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pcg-run-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    model_ = save("model.pt", kGated);
  }
  ~PcgRun() override { std::filesystem::remove_all(folder_); }

  std::string save(const std::string& name, const std::string& source) const {
    torch::jit::Module module("Model");
    module.register_parameter("weight", torch::ones({4}), false);
    module.register_buffer("count", torch::zeros({1}));
    module.define(source);
    module.save(folder_ + "/" + name);
    return folder_ + "/" + name;
  }

  std::string folder_;
  std::string model_;
};

TEST_F(PcgRun, APartitionedModelAgreesWithItself) {
  const Result result = run({model_, "--partition=min-segment-size=1",
                             "--backend=host", "--input=f32[2,4]"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("20 calls of forward on cpu"),
            HasSubstr("20 of 20 agree bit by bit"),
            HasSubstr("times of a call"), HasSubstr("  reference "),
            HasSubstr("backend host"), HasSubstr("name forward.segment_0"),
            HasSubstr("replays 19")));
}

TEST_F(PcgRun, AFileIsComparedWithItsOriginal) {
  PartitionOptions options;
  options.min_segment_size = 1;
  const std::string path = folder_ + "/partitioned.pt";
  partition(torch::jit::load(model_), options).module.save(path);
  const Result result = run({path, "--compare", model_, "--backend=host",
                             "--input=f32[2,4]", "--input=0.5"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("compared with " + model_ + ": 20 of 20"));
  const Result verified =
      run({path, "--verify", "--backend=host", "--input=f32[2,4]"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out,
              AllOf(HasSubstr("its own nodes run eagerly: 20 of 20"),
                    HasSubstr("replays 19")));
}

TEST_F(PcgRun, EveryKindOfDifferenceIsFound) {
  struct Case {
    const char* source;
    const char* expected;
  };
  const std::string original = save("original.pt", R"(
def forward(self, x):
    self.count.add_(1.0)
    y = x * 2.0
    return y, y
)");
  int number = 0;
  for (const Case& item : std::vector<Case>{
           {"def forward(self, x):\n"
            "    self.count.add_(1.0)\n"
            "    y = x * 2.0\n"
            "    y[0] += 1e-6\n"
            "    return y, y\n",
            "call 1: result[0]: 1 of 4 elements differ"},
           {"def forward(self, x):\n"
            "    self.count.add_(1.0)\n"
            "    y = x * 2.0\n"
            "    x.zero_()\n"
            "    return y, y\n",
            "call 1: arguments after the call[0]: 4 of 4"},
           {"def forward(self, x):\n"
            "    self.count.add_(1.0)\n"
            "    return x * 2.0, x * 2.0\n",
            "share memory differently: expected 0 1 1, found 0 1 2"},
           {"def forward(self, x):\n"
            "    self.count.add_(1.0)\n"
            "    y = x * 2.0 + torch.rand([1]) * 0.0\n"
            "    return y, y\n",
            "the state of the CPU random number generator differs"},
           {"def forward(self, x):\n"
            "    assert False, 'no'\n"
            "    y = x * 2.0\n"
            "    return y, y\n",
            "call 1: expected no error, found the error"},
           {"def forward(self, x):\n"
            "    y = x * 2.0\n"
            "    return y, y\n",
            "state after all calls: count: 1 of 1 element differs"}}) {
    const std::string changed =
        save("changed" + std::to_string(number++) + ".pt", item.source);
    const Result result =
        run({changed, "--compare", original, "--input=f32[4]", "--calls=3"});
    EXPECT_EQ(result.code, 1) << item.expected;
    EXPECT_THAT(result.out, HasSubstr(item.expected));
    EXPECT_THAT(result.err, HasSubstr("pcg-run: error: " + changed + ": "));
  }
}

// A replay that wrote over a result which the caller still holds.
TEST_F(PcgRun, AResultThatALaterCallOverwritesIsFound) {
  const std::string original = save("original.pt", R"(
def forward(self, x):
    self.count.copy_(x)
    return self.count + 0.0
)");
  const std::string changed = save("changed.pt", R"(
def forward(self, x):
    self.count.copy_(x)
    return self.count.view([1])
)");
  const Result result =
      run({changed, "--compare", original, "--input=f32[1]", "--calls=3"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("call 2: changed the result of the call "
                                    "before: 1 of 1 element differs"));
}

TEST_F(PcgRun, ErrorsOfBothAgreeAndErrorsOfOneAreTheInputs) {
  const Result both = run({model_, "--partition", "--backend=host",
                           "--method=checked", "--input=f32[4]"});
  EXPECT_EQ(both.code, 0) << both.out << both.err;
  EXPECT_THAT(both.out, HasSubstr("20 calls ended with an error"));
  const Result alone = run({model_, "--method=checked", "--input=f32[4]"});
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err,
              AllOf(HasSubstr("call 1: "), HasSubstr("never empty")));
}

TEST_F(PcgRun, RandomNumbersOfBothAreTheSame) {
  const Result result =
      run({model_, "--partition=min-segment-size=1", "--backend=host",
           "--method=noisy", "--input=f32[4]", "--seed=7"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST_F(PcgRun, JsonHoldsWhatTheTextSays) {
  const Result result =
      run({model_, "--partition=min-segment-size=1", "--backend=host",
           "--input=f32[2,4]", "--report=json", "--calls=4", "--warm-up=4"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("\"calls\": 4"), HasSubstr("\"differing_calls\": 0"),
            HasSubstr("\"timed_calls\": 0, \"times\": {}"),
            HasSubstr("\"sequence\": {\"backend\": \"host\"")));
  EXPECT_THAT(run({model_, "--input=f32[4]", "--report=json"}).out,
              HasSubstr("\"sequence\": null}"));
  EXPECT_THAT(run({model_, "--input=f32[4]", "--calls=2"}).out,
              HasSubstr("no times: the first 5 calls only warm up"));
}

TEST_F(PcgRun, WhatAModelReturnsDoesNotSpoilTheReport) {
  const std::string original =
      save("original.pt", "def forward(self):\n    return 'a'\n");
  const std::string changed =
      save("changed.pt", "def forward(self):\n    return '\\n" +
                             std::string(100000, 'b') + "'\n");
  const Result result = run({changed, "--compare", original, "--calls=1"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("call 1: result: expected a, found ?bbbb"));
  EXPECT_LT(result.out.size(), 1000U);
}

TEST_F(PcgRun, TheEnvironmentIsAsBefore) {
  ::setenv("PCG_BACKEND", "off", 1);
  ::unsetenv("PCG_VERIFY");
  run({model_, "--backend=host", "--partition", "--input=f32[4]"});
  EXPECT_STREQ(std::getenv("PCG_BACKEND"), "off");
  EXPECT_EQ(std::getenv("PCG_VERIFY"), nullptr);
  ::unsetenv("PCG_BACKEND");
}

TEST_F(PcgRun, OneLineAndAnExitCodeForEachMistake) {
  struct Case {
    std::vector<std::string> arguments;
    int code;
    const char* expected;
  };
  std::ofstream(folder_ + "/text.pt") << "graph(): return ()";
  for (const Case& item : std::vector<Case>{
           {{}, 2, "expected a TorchScript file"},
           {{"-"}, 2, "expected the name of a TorchScript file"},
           {{"a.pt", "b.pt"}, 2, "expected one model"},
           {{"a.pt", "--inptu=3"}, 2, "did you mean '--input'?"},
           {{"a.pt", "--calls=0"}, 2, "expected an integer of at least 1"},
           {{"a.pt", "--verify", "--compare=b.pt"}, 2, "exclude each other"},
           {{"a.pt", "--verify", "--partition"}, 2, "exclude each other"},
           {{"a.pt", "--backend=gpu"}, 2, "expected auto, cuda, host or off"},
           {{"a.pt", "--backend=host", "--device=cuda"}, 2, "exclude"},
           {{"a.pt", "--backend=cuda", "--device=cpu"}, 2, "exclude"},
           {{"a.pt", "--partition=min=2"}, 2, "has no option 'min'"},
           {{"a.pt", "--load=none.so"}, 2, "cannot load a library"},
           {{"a.pt", "--input=f32["}, 2, "expected a size"},
           {{folder_ + "/none.pt"}, 1, "No such file"},
           {{folder_ + "/text.pt"}, 1, "is no TorchScript file"},
           {{model_}, 1, "takes at least 1 argument, and --input gives 0"},
           {{model_, "--input=1", "--input=2", "--input=3"},
            1,
            "takes at most 2 arguments, and --input gives 3"},
           {{model_, "--input=3"}, 1, "expected Tensor, found an int"},
           {{model_, "--method=forwrd"}, 1, "did you mean 'forward'?"},
           {{model_, "--verify", "--input=f32[4]"}, 1, "is not partitioned"},
           {{model_, "--compare=none.pt"}, 1, "none.pt: No such file"}}) {
    const Result result = run(item.arguments);
    EXPECT_EQ(result.code, item.code) << item.expected << result.err;
    EXPECT_THAT(result.err, HasSubstr(item.expected));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(PcgRunHelp, FitsEightyColumnsAndAnswers) {
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_THAT(run({"--version"}).out, HasSubstr("pcg-run "));
  EXPECT_THAT(run({"--completion=bash"}).out, HasSubstr("-F _pcg_run pcg-run"));
  std::istringstream lines(run::helpText());
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 80U) << line;
}

TEST(Summarize, GivesMedianAndQuartiles) {
  const run::Summary odd = run::summarize({5, 1, 3, 2, 4});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.lower, 2);
  EXPECT_EQ(odd.upper, 4);
  EXPECT_EQ(run::summarize({1, 2}).median, 1.5);
  EXPECT_EQ(run::summarize({7}).upper, 7);
}

TEST(Progress, SpeaksOfLongWorkOnly) {
  std::chrono::steady_clock::time_point now;
  const auto clock = [&] { return now; };
  const auto at = [&](int seconds, run::Progress& progress) {
    now =
        std::chrono::steady_clock::time_point() + std::chrono::seconds(seconds);
    progress.show("second " + std::to_string(seconds));
  };
  std::ostringstream file;
  {
    run::Progress progress(file, false, clock);
    for (int second = 0; second <= 14; ++second)
      at(second, progress);
  }
  EXPECT_EQ(file.str(), "pcg-run: second 2\npcg-run: second 12\n");
  now = {};
  std::ostringstream terminal;
  {
    run::Progress progress(terminal, true, clock);
    at(10, progress);
    at(10, progress);
    at(11, progress);
  }
  EXPECT_EQ(terminal.str(), "\rpcg-run: second 10\rpcg-run: second 11\r" +
                                std::string(18, ' ') + "\r");
}

TEST(ReadableJson, PutsPlainValuesInOneLine) {
  EXPECT_EQ(run::readableJson(R"({"a": 1, "l": [{"n": "x\"y", "r": ["p"]}]})"),
            "a 1\n  l:\n    n x\"y\n      r:\n        p\n");
  EXPECT_EQ(run::readableJson("no json"), "no json\n");
  EXPECT_EQ(run::readableJson(std::string(1000, '[')),
            std::string(1000, '[') + "\n");
}

}  // namespace
}  // namespace pcg
