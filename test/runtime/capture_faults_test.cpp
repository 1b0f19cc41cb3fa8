#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/fault_injection.h"
#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

using c10::IValue;

[[noreturn]] void failOutOfMemory() {
  C10_THROW_ERROR(OutOfMemoryError, "injected: out of memory");
}

[[noreturn]] void failOtherwise() {
  throw std::runtime_error("injected");
}

struct Error {
  const char* name;
  void (*raise)();
};
constexpr Error kErrors[] = {{"out of memory", failOutOfMemory},
                             {"runtime error", failOtherwise}};

void resetCaptures(const torch::jit::Module& module) {
  torch::jit::Object(module.attr("pcg_sequence").toObject())
      .run_method("reset");
}

bool hasReasons(const torch::jit::Module& module) {
  const std::string report = reportOf(module);
  for (std::size_t at = report.find("\"reasons\": ["); at != std::string::npos;
       at = report.find("\"reasons\": [", at + 1)) {
    const std::size_t inside = report.find_first_not_of(" \n", at + 12);
    if (report[inside] == '"')
      return true;
  }
  return false;
}

class FaultWalk {
 public:
  FaultWalk(torch::jit::Module module,
            std::function<std::vector<IValue>()> inputs,
            bool with_gradients = false)
      : pair_(std::move(module), smallSegments()),
        inputs_(std::move(inputs)),
        with_gradients_(with_gradients) {}

  // Fails at each point of a warm-up, a capture and some replays: once, and
  // from that point on.
  void run() {
    for (const Error& error : kErrors) {
      for (const bool once : {true, false}) {
        int point = 0;
        while (failAt(point, once, error)) {
          if (::testing::Test::HasFailure()) {
            ADD_FAILURE() << error.name << (once ? " once" : " from then on")
                          << " at point " << point;
            return;
          }
          ++point;
        }
        EXPECT_GT(point, 0);
      }
    }
  }

  // Of each kind, in all walks.
  std::map<FaultKind, int> reached;

 private:
  // Returns false where there is no such point.
  bool failAt(int point, bool once, const Error& error) {
    resetCaptures(pair_.partitioned);
    int next = 0;
    {
      const FaultInjection fault([&](FaultKind kind) {
        const int here = next++;
        if (here == point || (here > point && !once)) {
          ++reached[kind];
          error.raise();
        }
      });
      for (int i = 0; i < 6; ++i)
        call();
    }
    const auto before = totalsOf(pair_.partitioned).replays;
    for (int i = 0; i < 4; ++i)
      call();
    const bool replays = totalsOf(pair_.partitioned).replays > before;
    if (once) {
      EXPECT_TRUE(replays) << reportOf(pair_.partitioned);
    } else {
      EXPECT_TRUE(replays || hasReasons(pair_.partitioned))
          << reportOf(pair_.partitioned);
    }
    return next > point;
  }

  void call() {
    const std::vector<IValue> inputs = inputs_();
    const at::AutoGradMode mode(with_gradients_);
    ++calls_;
    const auto run = [&](torch::jit::Module& module, IValue& arguments,
                         at::Tensor& random) {
      arguments =
          copyOf(c10::ivalue::Tuple::create(std::vector<IValue>(inputs)));
      at::manual_seed(calls_);
      const IValue result =
          module.forward(arguments.toTupleRef().elements().vec());
      random = at::detail::getDefaultCPUGenerator().get_state();
      return result;
    };
    IValue arguments[2];
    at::Tensor random[2];
    const IValue expected = run(pair_.original, arguments[0], random[0]);
    IValue found;
    try {
      found = run(pair_.partitioned, arguments[1], random[1]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "a fault reached the caller: " << error.what();
      return;
    }
    EXPECT_EQ("", difference(expected, found));
    EXPECT_EQ("", difference(arguments[0], arguments[1]));
    EXPECT_TRUE(at::equal(random[0], random[1])) << "random numbers";
    for (const auto& parameter : pair_.original.named_parameters()) {
      EXPECT_EQ("", difference(parameter.value,
                               pair_.partitioned.attr(parameter.name)))
          << parameter.name;
    }
  }

  ModulePair pair_;
  std::function<std::vector<IValue>()> inputs_;
  bool with_gradients_;
  std::uint64_t calls_ = 0;
};

std::vector<IValue> oneMatrix() {
  return {at::randn({3, 4})};
}

TEST(CaptureFaults, ArithmeticAndWeights) {
  FaultWalk walk(makeModule(R"(
def forward(self, x):
    h = torch.relu(x @ self.w + torch.arange(4))
    return torch.tanh(h) * 2.0, h.sum(-1)
)",
                            {{"w", at::randn({4, 4})}}),
                 oneMatrix);
  walk.run();
  EXPECT_GT(walk.reached[FaultKind::kNode], 0);
  EXPECT_GT(walk.reached[FaultKind::kCaptureBegin], 0);
  EXPECT_GT(walk.reached[FaultKind::kCaptureEnd], 0);
  EXPECT_GT(walk.reached[FaultKind::kAllocation], 0);
}

TEST(CaptureFaults, WritesToABufferAndAnInput) {
  FaultWalk walk(makeModule(R"(
def forward(self, x):
    x.mul_(0.5)
    self.total.add_(x.sum(0))
    y = torch.tanh(x) + self.total
    self.total.mul_(0.9)
    return y
)",
                            {{"total", at::zeros({4})}}),
                 oneMatrix);
  walk.run();
}

TEST(CaptureFaults, RandomNumbers) {
  FaultWalk walk(makeModule(R"(
def forward(self, x):
    h = torch.dropout(torch.relu(x), 0.5, True)
    s = float(h.max().item())
    return torch.dropout(h * s, 0.3, True) + torch.rand_like(x)
)"),
                 oneMatrix);
  walk.run();
}

// What `kept` holds lies in the slot that the next trip writes.
TEST(CaptureFaults, LoopWhoseSlotIsHeldOver) {
  FaultWalk walk(makeModule(R"(
def forward(self, x):
    kept = []
    h = x
    for i in range(3):
        h = torch.tanh(h * 0.5 + 1.0)
        s = float(h.sum().item())
        kept.append(h)
        h = torch.relu(h) * s
    return torch.stack(kept), h
)"),
                 oneMatrix);
  walk.run();
}

TEST(CaptureFaults, SeveralSegmentsAndBreaks) {
  FaultWalk walk(makeModule(kGatedNetwork, {{"w", at::randn({4, 4})},
                                            {"v", at::randn({4, 4})}}),
                 oneMatrix);
  walk.run();
}

TEST(CaptureFaults, GradientIsland) {
  FaultWalk walk(makeModule(kGradientIsland), oneMatrix,
                 /*with_gradients=*/true);
  walk.run();
}

// The third segment's capture finds room once the others' have gone.
TEST(CaptureFaults, CapturesNotInUseMakeRoomForAnother) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.tanh(x) * 2.0
)");
  for (const int size : {3, 4, 5}) {
    for (int i = 0; i < 3; ++i)
      pair.call({at::randn({size})});
  }
  const auto before = totalsOf(pair.partitioned).captures;
  bool failed = false;
  {
    const FaultInjection fault([&](FaultKind kind) {
      if (kind == FaultKind::kCaptureEnd && !std::exchange(failed, true))
        failOutOfMemory();
    });
    for (int i = 0; i < 2; ++i)
      pair.call({at::randn({6})});
  }
  EXPECT_TRUE(failed);
  EXPECT_EQ(totalsOf(pair.partitioned).captures, before + 1);
  for (const int size : {3, 4, 5})
    pair.call({at::randn({size})});
  EXPECT_EQ(totalsOf(pair.partitioned).captures, before + 4);
}

TEST(CaptureFaults, MemoryThatIsAlwaysShortEndsCapturing) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.tanh(x) * 2.0
)");
  int failures = 0;
  const FaultInjection fault([&](FaultKind kind) {
    if (kind == FaultKind::kCaptureEnd) {
      ++failures;
      failOutOfMemory();
    }
  });
  for (int i = 0; i < 20; ++i)
    pair.call({at::randn({3})});
  EXPECT_LE(failures, 2);
  EXPECT_EQ(totalsOf(pair.partitioned).replays, 0);
  EXPECT_NE(reportOf(pair.partitioned).find("out of memory"),
            std::string::npos);
}

}  // namespace
}  // namespace pcg::test
