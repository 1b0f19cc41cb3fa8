#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/nvtx_recorder/recorder.h"
#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const char* const kTanh = R"(
def forward(self, x):
    return torch.tanh(torch.relu(x) * 2.0)
)";

// To be set before the first range of the process.
[[maybe_unused]] const int kNvtxTool =
    ::setenv("NVTX_INJECTION64_PATH", PCG_NVTX_RECORDER, 1);

// PCG_LOG for as long as it lives; null to have none.
class LogVariable {
 public:
  explicit LogVariable(const char* level) {
    if (level != nullptr) {
      ::setenv("PCG_LOG", level, 1);
    } else {
      ::unsetenv("PCG_LOG");
    }
  }
  ~LogVariable() { ::unsetenv("PCG_LOG"); }
  LogVariable(const LogVariable&) = delete;
  LogVariable& operator=(const LogVariable&) = delete;
};

// What is said on stderr while a module is partitioned and called.
std::string saidWith(const char* level, int shapes, int calls_each) {
  const LogVariable variable(level);
  const at::NoGradGuard no_grad;
  testing::internal::CaptureStderr();
  PartitionOptions options = smallSegments();
  options.max_keys_per_segment = 2;
  auto module = partition(makeModule(kTanh), options).module;
  for (int call = 0; call < calls_each; ++call) {
    for (int shape = 1; shape <= shapes; ++shape)
      module.forward({at::ones({shape})});
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Log, SaysNothingByDefaultWhereNothingIsLost) {
  EXPECT_THAT(saidWith(nullptr, 2, 3), IsEmpty());
}

TEST(Log, WarnsOnceOfALossByDefault) {
  const std::string said = saidWith(nullptr, 50, 3);
  EXPECT_THAT(said, HasSubstr("pcg: warning: forward.segment_0: key churn"));
  EXPECT_EQ(said.find("pcg:"), said.rfind("pcg:")) << said;
}

TEST(Log, OffSaysNothing) {
  EXPECT_THAT(saidWith("off", 50, 3), IsEmpty());
}

TEST(Log, InfoTellsOfCapturesAndReasons) {
  EXPECT_THAT(saidWith("info", 2, 3),
              AllOf(HasSubstr("pcg: info: forward.segment_0: captured"),
                    Not(HasSubstr("debug"))));
}

TEST(Log, DebugTellsOfWarmUpsToo) {
  EXPECT_THAT(saidWith("debug", 2, 3),
              AllOf(HasSubstr("pcg: debug: forward.segment_0: warms up"),
                    HasSubstr("captured")));
}

TEST(Log, AnotherWordIsAnErrorThatNamesTheLevels) {
  try {
    saidWith("verbose", 1, 1);
    FAIL() << "expected an exception";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("expected off, warning, info or debug in PCG_LOG, "
                          "found 'verbose'"));
  }
  (void)testing::internal::GetCapturedStderr();
}

std::vector<std::string> seen;

std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& function) {
  seen.emplace_back(function.name());
  return nullptr;
}

TEST(Trace, ProfilersSeeWhatASegmentDoes) {
  const at::NoGradGuard no_grad;
  auto module = partition(makeModule(kTanh), smallSegments()).module;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&see).scopes({at::RecordScope::USER_SCOPE}));
  for (int call = 0; call < 3; ++call)
    module.forward({at::ones({3})});
  at::removeCallback(handle);
  EXPECT_THAT(seen, testing::ElementsAre("forward.segment_0 warm-up",
                                         "forward.segment_0 capture",
                                         "forward.segment_0 replay",
                                         "forward.segment_0 replay"));
}

TEST(Trace, NvtxToolsSeeWhatASegmentDoes) {
  const at::NoGradGuard no_grad;
  auto module = partition(makeModule(kTanh), smallSegments()).module;
  takeNvtxRanges();
  for (int call = 0; call < 3; ++call)
    module.forward({at::ones({3})});
  EXPECT_THAT(takeNvtxRanges(),
              testing::ElementsAre("pcg: forward.segment_0 warm-up", "end",
                                   "pcg: forward.segment_0 capture", "end",
                                   "pcg: forward.segment_0 replay", "end",
                                   "pcg: forward.segment_0 replay", "end"));
}

TEST(Report, MayBeAskedForWhileOthersCapture) {
  auto module = partition(makeModule(kTanh), smallSegments()).module;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&module, t] {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 20; ++i)
        module.forward({at::ones({1 + (i + t) % 5})});
    });
  }
  for (int i = 0; i < 100; ++i)
    EXPECT_THAT(reportOf(module), HasSubstr("pool_bytes"));
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_GT(totalsOf(module).captures, 0);
  EXPECT_THAT(reportOf(module), Not(HasSubstr("\"pool_bytes\": 0,")));
}

}  // namespace
}  // namespace pcg::test
