#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Sleep.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/host_read.h"
#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

using c10::IValue;
using Inputs = std::function<std::vector<IValue>(int call)>;

const c10::Device kGpu(c10::kCUDA, 0);

at::Tensor gpu(const at::Tensor& tensor) {
  return tensor.to(kGpu);
}

/// A program that is called six times; `least_replays` of its segments' runs
/// must be replays.
struct Program {
  const char* name;
  const char* source;
  Inputs inputs;
  int least_replays;
};

std::ostream& operator<<(std::ostream& out, const Program& program) {
  return out << program.name;
}

const Program kPrograms[] = {
    {"HostReadIsLiveAtEveryCall", R"(
def forward(self, x):
    h = torch.relu(x)
    s = float(h.max().item())
    return torch.tanh(h / (s + 1.0)) * s
)",
     [](int i) {
       return std::vector<IValue>{gpu(at::randn({4, 5}) * (i + 1))};
     },
     8},
    {"WrittenInputIsWrittenForTheCaller", R"(
def forward(self, x, d):
    x.mul_(0.5).add_(d)
    return x.exp().sum(-1)
)",
     [](int) {
       return std::vector<IValue>{gpu(at::randn({3, 4})),
                                  gpu(at::randn({3, 4}))};
     },
     4},
    {"RandomNumbersAreThoseOfTheOriginal", R"(
def forward(self, x):
    h = torch.dropout(torch.relu(x), 0.5, True)
    s = float(h.sum().item())
    r = torch.rand_like(h) * s
    return h + r, torch.multinomial(torch.softmax(h, -1), 2)
)",
     [](int) {
       return std::vector<IValue>{gpu(at::ones({8, 8}))};
     },
     8},
    {"MaskedSelectionSplitsItsSegment", R"(
def forward(self, x, valid):
    y = torch.tanh(x) * 2.0
    z = y[valid]
    return z.mean() + z.sum(0).max()
)",
     [](int i) {
       at::Tensor valid = at::arange(20) < 3 * (i % 3) + 4;
       return std::vector<IValue>{gpu(at::randn({20, 6})), gpu(valid)};
     },
     4},
    {"HostTensorOperandIsLive", R"(
def forward(self, x, t):
    return torch.sin(x * t) + t
)",
     [](int i) {
       return std::vector<IValue>{gpu(at::ones({7})), at::scalar_tensor(i % 2)};
     },
     3},
    {"RoundTripThroughHostMemoryHappensEveryCall", R"(
def forward(self, x, y):
    a = x + 1.0
    b = (y * 2.0).to('cpu')
    c = torch.cumsum(b, 0) + 1.0
    return a + x @ y + c.to(x.device)
)",
     [](int) {
       return std::vector<IValue>{gpu(at::randn({4, 4})),
                                  gpu(at::randn({4, 4}))};
     },
     4},
    {"HostTensorAmongResultsIsNotTakenForDeviceMemory", R"(
def forward(self, x):
    n = torch.scalar_tensor(x.shape[0])
    return torch.relu(x) + 1.0, n
)",
     [](int) {
       return std::vector<IValue>{gpu(at::randn({3, 4}))};
     },
     0},
    {"LoopResultsAreFreshInEveryTrip", R"(
def forward(self, x, n: int):
    outs = [torch.tanh(x)]
    for i in range(n):
        h = torch.tanh(outs[-1] + 1.0) * 0.5
        if bool(h.sum() > 100.0):
            h = h * 0.0
        outs.append(h)
    return torch.stack(outs)
)",
     [](int) {
       return std::vector<IValue>{gpu(at::randn({3})), std::int64_t{4}};
     },
     16},
    {"ExceptionInAHostBranchReachesTheCaller", R"(
def forward(self, x):
    h = torch.relu(x)
    assert x.shape[0] <= 4, "too many rows"
    return h + 1.0
)",
     [](int i) {
       return std::vector<IValue>{gpu(at::randn({i % 2 == 0 ? 3 : 6, 3}))};
     },
     1},
    {"MaskedStoreOfAScalarIsCaptured", R"(
def forward(self, x):
    y = x.clone()
    y[y < 0] = 0
    return y.sum(-1)
)",
     [](int) {
       return std::vector<IValue>{gpu(at::randn({6, 5}))};
     },
     4},
};

// TorchScript's fuser rounds differently from the operators it fuses; the
// original is compared as those run.
class WithoutFuser {
 public:
  WithoutFuser() : before_(torch::jit::tensorExprFuserEnabled()) {
    torch::jit::setTensorExprFuserEnabled(false);
  }
  ~WithoutFuser() { torch::jit::setTensorExprFuserEnabled(before_); }

 private:
  bool before_;
};

class OnGpu : public testing::TestWithParam<Program> {
 protected:
  void SetUp() override {
    if (at::cuda::getNumGPUs() == 0)
      GTEST_SKIP() << "no GPU is visible";
  }

 private:
  WithoutFuser without_fuser_;
};

TEST_P(OnGpu, BehavesAsTheOriginal) {
  const Program& program = GetParam();
  ModulePair pair(program.source, {}, kGpu);
  std::vector<std::pair<IValue, IValue>> held;
  for (int i = 0; i < 6; ++i) {
    const IValue result = pair.call(program.inputs(i));
    held.emplace_back(copyOf(result), result);
  }
  for (const auto& [then, now] : held)
    EXPECT_EQ("", difference(then, now));
  EXPECT_GE(totalsOf(pair.partitioned).replays, program.least_replays)
      << reportOf(pair.partitioned);
}

INSTANTIATE_TEST_SUITE_P(Programs, OnGpu, testing::ValuesIn(kPrograms),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

class GpuModule : public testing::Test {
 protected:
  void SetUp() override {
    if (at::cuda::getNumGPUs() == 0)
      GTEST_SKIP() << "no GPU is visible";
  }

  static torch::jit::Module network() {
    torch::jit::Module module =
        makeModule(kGatedNetwork,
                   {{"w", at::randn({64, 64})}, {"v", at::randn({64, 64})}});
    module.to(kGpu);
    module.eval();
    return module;
  }

 private:
  WithoutFuser without_fuser_;
};

TEST_F(GpuModule, ScalarReadIsThatOfItem) {
  for (const auto type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor tensor = gpu(at::full({1}, 3)).to(type);
    EXPECT_EQ(readScalar(tensor).toDouble(), tensor.item().toDouble());
    EXPECT_EQ(readScalar(tensor).type(), tensor.item().type());
  }
  EXPECT_THROW(readScalar(gpu(at::zeros({2}))), std::exception);
}

TEST_F(GpuModule, ResultsOnOtherStreamsAreRight) {
  torch::jit::Module module = network();
  torch::jit::Module partitioned =
      partition(module, smallSegments(kGpu)).module;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 12; ++i) {
    const c10::cuda::CUDAStreamGuard guard(
        i % 3 == 0 ? c10::cuda::getDefaultCUDAStream()
                   : c10::cuda::getStreamFromPool());
    const at::Tensor x = gpu(at::randn({8, 64}));
    EXPECT_EQ("", difference(module.forward({x}), partitioned.forward({x})));
  }
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

// Memory that a replay on one stream uses must not be given to work on another
// before the replay is done.
TEST_F(GpuModule, ResetWaitsForReplaysOnOtherStreams) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.tanh(x) * 2.0 + torch.relu(x)
)",
                  {}, kGpu);
  const at::NoGradGuard no_grad;
  const auto make = [](double value) {
    return at::full({1 << 20}, value, kGpu);
  };
  for (int i = 0; i < 4; ++i)
    pair.partitioned.forward({make(i)});
  const at::Tensor x = make(0.5);
  const at::Tensor expected = at::tanh(x) * 2.0 + at::relu(x);
  at::cuda::getCurrentCUDAStream().synchronize();
  const auto other = at::cuda::getStreamFromPool(false, 0);
  IValue result;
  {
    const c10::cuda::CUDAStreamGuard guard(other);
    at::cuda::sleep(200'000'000);
    result = pair.partitioned.forward({x});
  }
  const IValue sequence = pair.partitioned.attr("pcg_sequence");
  torch::jit::Object(sequence.toObject()).run_method("reset");
  std::vector<at::Tensor> later;
  for (int i = 0; i < 8; ++i)
    later.push_back(make(7.0));
  other.synchronize();
  EXPECT_TRUE(at::equal(expected, result.toTensor()));
  for (const at::Tensor& tensor : later)
    EXPECT_TRUE(at::equal(tensor, make(7.0)));
}

TEST_F(GpuModule, EachThreadGetsItsOwnResults) {
  torch::jit::Module module = network();
  torch::jit::Module partitioned =
      partition(module, smallSegments(kGpu)).module;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (int i = 0; i < 50; ++i) {
        const at::Tensor x = gpu(at::randn({8, 64}));
        if (!difference(module.forward({x}), partitioned.forward({x}))
                 .empty()) {
          ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

TEST_F(GpuModule, WeightsMovedOrReassignedAreSeen) {
  torch::jit::Module module = network();
  ModulePair pair(module, smallSegments(kGpu));
  for (int i = 0; i < 3; ++i)
    pair.call({gpu(at::randn({8, 64}))});
  const at::Tensor other = gpu(at::randn({64, 64}));
  for (auto* each : {&pair.original, &pair.partitioned}) {
    each->attr("v").toTensor().set_data(other.clone());
  }
  for (int i = 0; i < 3; ++i)
    pair.call({gpu(at::randn({8, 64}))});
  for (auto* each : {&pair.original, &pair.partitioned})
    each->to(at::kHalf);
  for (int i = 0; i < 3; ++i)
    pair.call({gpu(at::randn({8, 64})).to(at::kHalf)});
}

TEST_F(GpuModule, InferenceModeForOneCallOnly) {
  torch::jit::Module module = network();
  torch::jit::Module partitioned =
      partition(module, smallSegments(kGpu)).module;
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = gpu(at::randn({8, 64}));
    const c10::InferenceMode inference(i % 2 == 0);
    const at::NoGradGuard no_grad;
    EXPECT_EQ("", difference(module.forward({x}), partitioned.forward({x})));
  }
}

TEST_F(GpuModule, GradientIslandGivesTheSameForces) {
  torch::jit::Module module = makeModule(kGradientIsland);
  torch::jit::Module partitioned =
      partition(module, smallSegments(kGpu)).module;
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = gpu(at::randn({6, 3}));
    EXPECT_EQ("", difference(module.forward({x}), partitioned.forward({x})));
  }
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

TEST_F(GpuModule, LoadingAndDestroyingLeavesNoMemoryBehind) {
  torch::jit::Module module = network();
  const at::NoGradGuard no_grad;
  const at::Tensor x = gpu(at::randn({8, 64}));
  const auto usedAfterRounds = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      torch::jit::Module partitioned =
          partition(module, smallSegments(kGpu)).module;
      for (int call = 0; call < 3; ++call)
        partitioned.forward({x});
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return total - free;
  };
  const std::size_t before = usedAfterRounds(5);
  const std::size_t after = usedAfterRounds(40);
  EXPECT_LE(after, before + (8u << 20))
      << "used before " << (before >> 20) << " MiB, after " << (after >> 20);
}

}  // namespace
}  // namespace pcg::test
