#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <atomic>
#include <cstdint>
#include <sstream>
#include <thread>

#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

using c10::IValue;

TEST(PartitionedModule, HostReadIsLiveAtEveryCall) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.relu(x)
    s = float(h.max().item())
    return torch.tanh(h / (s + 1.0)) * s
)");
  for (int i = 0; i < 6; ++i)
    pair.call({at::randn({4, 5}) * (i + 1)});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, HostScalarArgumentIsPartOfTheKey) {
  ModulePair pair(R"(
def forward(self, x, alpha: float, k: int, flip: bool):
    y = torch.roll(x, k, 0) * alpha
    if flip:
        y = -y
    return torch.logsumexp(y, -1)
)");
  const at::Tensor x = at::randn({6, 3});
  for (int round = 0; round < 4; ++round) {
    pair.call({x, 1.0, std::int64_t{0}, false});
    pair.call({x, 2.0, std::int64_t{2}, false});
    pair.call({x, 2.0, std::int64_t{2}, true});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, HeldResultsAreNeverOverwritten) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.relu(x) * 3.0
    return h, h.sum(-1), h.t()
)");
  std::vector<std::pair<IValue, IValue>> held;
  for (int i = 0; i < 6; ++i) {
    const IValue result = pair.call({at::randn({4, 5})});
    held.emplace_back(copyOf(result), result);
  }
  for (const auto& [then, now] : held)
    EXPECT_EQ("", difference(then, now));
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, ShapeThatWouldBroadcastIsItsOwnKey) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.softmax(x, -1) * float(x.shape[0])
)");
  for (int round = 0; round < 3; ++round) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{
             {4, 8}, {1, 8}, {4, 1}, {0, 8}}) {
      pair.call({at::randn(shape)});
    }
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, StridesArePartOfTheKey) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.relu(x) + x.flatten()[0]
)");
  const at::Tensor x = at::randn({4, 6});
  for (int round = 0; round < 3; ++round) {
    pair.call({x});
    pair.call({x.t()});
    pair.call({x.narrow(1, 0, 3)});
    pair.call({at::randn({1, 6}).expand({4, 6})});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, WrittenInputIsWrittenForTheCaller) {
  ModulePair pair(R"(
def forward(self, x, d):
    x.mul_(0.5).add_(d)
    return x.exp().sum(-1)
)");
  for (int i = 0; i < 5; ++i)
    pair.call({at::randn({3, 4}), at::randn({3, 4})});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

// Autograd finds by a version counter that a tensor it saved has changed.
TEST(PartitionedModule, ReplaysCountAsWrites) {
  ModulePair pair(R"(
def forward(self, x):
    self.total.add_(x.sum())
    x.mul_(0.5)
    return x.exp().sum(-1) + self.total
)",
                  {{"total", at::zeros({1})}});
  const at::Tensor total = pair.partitioned.attr("total").toTensor();
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = at::randn({3, 4});
    const auto before = x._version();
    const auto total_before = total._version();
    pair.partitioned.forward({x});
    EXPECT_GT(x._version(), before) << i;
    EXPECT_GT(total._version(), total_before) << i;
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, MayBeResetWhileOtherThreadsCallIt) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.relu(x) * 2.0
    s = float(h.sum().item())
    return torch.tanh(h) * s
)");
  std::atomic<bool> done{false};
  std::thread resetting([&] {
    const at::NoGradGuard no_grad;
    while (!done) {
      pair.partitioned.run_method("forward", at::ones({2, 2}));
      const IValue sequence = pair.partitioned.attr("pcg_sequence");
      torch::jit::Object(sequence.toObject()).run_method("reset");
    }
  });
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 300; ++i) {
    const at::Tensor x = at::full({3, 4}, 1.0 + i);
    EXPECT_TRUE(at::equal(pair.original.forward({x}).toTensor(),
                          pair.partitioned.forward({x}).toTensor()))
        << i;
  }
  done = true;
  resetting.join();
}

TEST(PartitionedModule, OverlappingInputsOfWhichOneIsWrittenAreExact) {
  ModulePair pair(R"(
def forward(self, x, y):
    x.add_(1.0)
    z = y * 2.0
    x.mul_(3.0)
    return z + y
)");
  for (int i = 0; i < 5; ++i) {
    const at::Tensor base = at::randn({8});
    pair.call({base.narrow(0, 0, 6), base.narrow(0, 2, 6)});
  }
}

TEST(PartitionedModule, ResultThatAliasesAnInputAliasesTheCallersTensor) {
  torch::jit::Module module = makeModule(R"(
def forward(self, x):
    y = x * 2.0
    return x.t(), x, y, y
)");
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({3, 4});
    const IValue result = partitioned.forward({x});
    const auto& out = result.toTupleRef().elements();
    EXPECT_EQ(out[0].toTensor().data_ptr(), x.data_ptr());
    EXPECT_TRUE(out[1].toTensor().is_same(x));
    EXPECT_TRUE(out[2].toTensor().is_same(out[3].toTensor()));
  }
}

TEST(PartitionedModule, StateAssignedInACallIsSeenByTheNext) {
  torch::jit::Module module("Stream");
  module.register_parameter("w", at::randn({6, 6}), false);
  module.register_buffer("state", at::zeros({1, 6}));
  module.define(R"(
def forward(self, x):
    s = torch.tanh(x @ self.w + self.state * 0.9)
    self.state = s
    return torch.sigmoid(s.sum(1))

def reset(self):
    self.state = torch.zeros_like(self.state)
)");
  ModulePair pair(module, smallSegments());
  for (int i = 0; i < 8; ++i) {
    if (i == 5)
      pair.call("reset", {});
    pair.call({at::randn({1, 6})});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, BufferIsWrittenOncePerCall) {
  torch::jit::Module module("Cache");
  module.register_parameter("w", at::randn({4, 4}), false);
  module.register_buffer("k", at::zeros({8, 4}));
  module.define(R"(
def forward(self, x, pos: int):
    q = x @ self.w
    self.k[pos].add_(q[0])
    att = torch.softmax(q @ self.k[: pos + 1].t(), -1)
    return att @ self.k[: pos + 1]
)");
  ModulePair pair(module, smallSegments());
  for (int round = 0; round < 4; ++round) {
    for (std::int64_t position = 0; position < 3; ++position) {
      pair.call({at::randn({1, 4}), position});
    }
  }
  EXPECT_EQ("",
            difference(pair.original.attr("k"), pair.partitioned.attr("k")));
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, ExceptionInAHostBranchReachesTheCaller) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.relu(x)
    assert x.shape[0] <= 4, "too many rows"
    return h + 1.0
)");
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({3, 3})});
    pair.call({at::randn({6, 3})});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, BranchWithABreakIsTakenInUntilACallReachesIt) {
  ModulePair pair(R"(
def forward(self, x, gate: bool):
    h = torch.relu(x) + 1.0
    if gate:
        if bool(h.sum() > 0.0):
            h = h * 2.0
    return torch.tanh(h)
)");
  EXPECT_EQ(pair.report.segments.size(), 1u);
  for (int i = 0; i < 4; ++i)
    pair.call({at::randn({3}), false});
  EXPECT_EQ(totalsOf(pair.partitioned).segments, 1);
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({3}), true});
    pair.call({at::randn({3}), false});
  }
  EXPECT_GT(totalsOf(pair.partitioned).segments, 1);
}

TEST(PartitionedModule, LoopResultsAreFreshInEveryTrip) {
  ModulePair pair(R"(
def forward(self, x, n: int):
    outs = [torch.tanh(x)]
    for i in range(n):
        h = torch.tanh(outs[-1] + 1.0) * 0.5
        if bool(h.sum() > 100.0):
            h = h * 0.0
        outs.append(h)
    return torch.stack(outs)
)");
  for (int i = 0; i < 5; ++i)
    pair.call({at::randn({3}), std::int64_t{4}});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, CarriedLoopValueIsReadAfresh) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.tanh(x)
    n = 0
    err = 1.0
    while err > 0.1 and n < 50:
        h = torch.cos(h) * 0.9 + x * 0.01
        err = float((h - torch.cos(h) * 0.9).abs().max().item())
        n += 1
    return h, n
)");
  for (int i = 0; i < 5; ++i)
    pair.call({at::randn({5})});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, RandomNumbersAreThoseOfTheOriginal) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.dropout(torch.relu(x), 0.5, True)
    s = float(h.sum().item())
    return h + torch.rand_like(h) * s
)");
  for (int i = 0; i < 6; ++i)
    pair.call({at::ones({8, 8})});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, MaskedSelectionSplitsItsSegment) {
  ModulePair pair(R"(
def forward(self, x, valid):
    y = torch.tanh(x) * 2.0
    z = y[valid]
    return z.mean() + z.sum(0).max()
)");
  for (int i = 0; i < 6; ++i) {
    at::Tensor valid = at::rand({20}) < 0.1 * (i + 2);
    valid[0] = true;
    pair.call({at::randn({20, 6}), valid});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
  EXPECT_NE(reportOf(pair.partitioned).find("aten::index"), std::string::npos);
}

TEST(PartitionedModule, IndexingByIntegersStaysInOneSegment) {
  ModulePair pair(R"(
def forward(self, x, idx):
    y = torch.tanh(x) * 2.0
    z = y[idx]
    return torch.softmax(z, -1) @ z.t()
)");
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({20, 6}), at::randint(0, 20, {9})});
  }
  EXPECT_EQ(totalsOf(pair.partitioned).segments, 1);
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(PartitionedModule, DropoutThatReturnsItsInputAliasesIt) {
  torch::jit::Module module = makeModule(R"(
def forward(self, x):
    y = torch.dropout(x, 0.5, False)
    return y, torch.exp(x)
)");
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({3});
    const IValue result = partitioned.forward({x});
    EXPECT_EQ(result.toTupleRef().elements()[0].toTensor().data_ptr(),
              x.data_ptr());
  }
}

// ---- weights ----------------------------------------------------------------

constexpr const char* kLinear = R"(
def forward(self, x):
    return torch.relu(x @ self.w) + 1.0
)";

TEST(BoundWeights, InPlaceChangeIsSeenWithoutAnotherCapture) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  ModulePair pair(module, smallSegments());
  for (int i = 0; i < 4; ++i)
    pair.call({at::randn({3, 4})});
  const auto captures = totalsOf(pair.partitioned).captures;
  for (auto* each : {&pair.original, &pair.partitioned}) {
    const at::NoGradGuard no_grad;
    each->attr("w").toTensor().mul_(2.0);
  }
  for (int i = 0; i < 3; ++i)
    pair.call({at::randn({3, 4})});
  EXPECT_EQ(totalsOf(pair.partitioned).captures, captures);
}

TEST(BoundWeights, ReassignmentIsSeen) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  ModulePair pair(module, smallSegments());
  for (int i = 0; i < 4; ++i)
    pair.call({at::randn({3, 4})});
  const at::Tensor other = at::randn({4, 4});
  for (auto* each : {&pair.original, &pair.partitioned}) {
    each->setattr("w", other.clone());
  }
  for (int i = 0; i < 4; ++i)
    pair.call({at::randn({3, 4})});
  for (auto* each : {&pair.original, &pair.partitioned}) {
    each->attr("w").toTensor().set_data(other + 1.0);
  }
  for (int i = 0; i < 4; ++i)
    pair.call({at::randn({3, 4})});
}

TEST(BoundWeights, ChangeOfTypeIsSeen) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  ModulePair pair(module, smallSegments());
  for (int i = 0; i < 3; ++i)
    pair.call({at::randn({3, 4})});
  pair.original.to(at::kDouble);
  pair.partitioned.to(at::kDouble);
  for (int i = 0; i < 3; ++i)
    pair.call({at::randn({3, 4}, at::kDouble)});
}

TEST(BoundWeights, OriginalSharesThemAndStaysUsable) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  EXPECT_FALSE(module.hasattr("pcg_sequence"));
  EXPECT_TRUE(
      module.attr("w").toTensor().is_same(partitioned.attr("w").toTensor()));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 4});
  EXPECT_EQ("", difference(module.forward({x}), partitioned.forward({x})));
}

TEST(BoundWeights, SecondInstanceOfTheClassIsUntouched) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  torch::jit::Module twin = module.deepcopy();
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 4});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ("", difference(twin.forward({x}), partitioned.forward({x})));
  }
  EXPECT_FALSE(twin.hasattr("pcg_sequence"));
}

// ---- save, load, freeze, copy -----------------------------------------------

torch::jit::Module saveAndLoad(const torch::jit::Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

torch::jit::Module network() {
  torch::jit::Module module = makeModule(
      kGatedNetwork, {{"w", at::randn({4, 4})}, {"v", at::randn({4, 4})}});
  module.eval();
  return module;
}

void expectSame(torch::jit::Module& expected, torch::jit::Module& found,
                at::ScalarType type = at::kFloat) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({3, 4}, type);
    EXPECT_EQ("", difference(expected.forward({x}), found.forward({x})));
  }
}

TEST(SavedModule, LoadsAndReplays) {
  torch::jit::Module module = network();
  torch::jit::Module loaded =
      saveAndLoad(partition(module, smallSegments()).module);
  expectSame(module, loaded);
  EXPECT_GT(totalsOf(loaded).replays, 0);
}

TEST(SavedModule, IsSavedAgainAfterItCaptured) {
  torch::jit::Module module = network();
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  expectSame(module, partitioned);
  torch::jit::Module loaded = saveAndLoad(saveAndLoad(partitioned));
  expectSame(module, loaded);
  EXPECT_GT(totalsOf(loaded).replays, 0);
}

TEST(SavedModule, WeightsChangedAfterLoadingAreSeen) {
  torch::jit::Module module = network();
  torch::jit::Module loaded =
      saveAndLoad(partition(module, smallSegments()).module);
  expectSame(module, loaded);
  for (auto* each : {&module, &loaded})
    each->to(at::kDouble);
  expectSame(module, loaded, at::kDouble);
  const at::Tensor other = at::randn({4, 4}, at::kDouble);
  for (auto* each : {&module, &loaded}) {
    each->attr("v").toTensor().set_data(other.clone());
  }
  expectSame(module, loaded, at::kDouble);
}

TEST(SavedModule, SurvivesFreezing) {
  torch::jit::Module module = network();
  torch::jit::Module loaded =
      saveAndLoad(partition(module, smallSegments()).module);
  torch::jit::Module frozen = torch::jit::freeze(loaded);
  expectSame(module, frozen);
  torch::jit::Module again = saveAndLoad(frozen);
  expectSame(module, again);
}

TEST(SavedModule, SurvivesOptimizeForInference) {
  torch::jit::Module module = network();
  torch::jit::Module loaded =
      saveAndLoad(partition(module, smallSegments()).module);
  torch::jit::Module optimized = torch::jit::optimize_for_inference(loaded);
  expectSame(module, optimized);
}

TEST(SavedModule, WorksInsideAFrozenParent) {
  torch::jit::Module module = network();
  torch::jit::Module parent("Parent");
  parent.register_module("child", partition(module, smallSegments()).module);
  parent.define(R"(
def forward(self, x):
    return self.child.forward(x) + 1.0
)");
  parent.eval();
  torch::jit::Module frozen = torch::jit::freeze(parent);
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({3, 4});
    EXPECT_EQ("", difference(module.forward({x}).toTensor() + 1.0,
                             frozen.forward({x})));
  }
}

TEST(SavedModule, DeepCopyUsesItsOwnWeights) {
  torch::jit::Module module = network();
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  expectSame(module, partitioned);
  torch::jit::Module copy = partitioned.deepcopy();
  torch::jit::Module reference = module.deepcopy();
  for (auto* each : {&copy, &reference}) {
    const at::NoGradGuard no_grad;
    each->attr("w").toTensor().mul_(-1.5);
  }
  expectSame(reference, copy);
  expectSame(module, partitioned);
}

TEST(SavedModule, FrozenModuleCanBePartitioned) {
  torch::jit::Module frozen = torch::jit::freeze(network());
  ModulePair pair(frozen, smallSegments());
  for (int i = 0; i < 4; ++i)
    pair.call({at::randn({3, 4})});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
  torch::jit::Module loaded = saveAndLoad(pair.partitioned);
  expectSame(pair.original, loaded);
}

TEST(SavedModule, GoesAwayWithItsSequence) {
  torch::jit::Module module = network();
  c10::weak_intrusive_ptr<c10::ivalue::Object> sequence{
      c10::intrusive_ptr<c10::ivalue::Object>()};
  {
    torch::jit::Module partitioned = partition(module, smallSegments()).module;
    expectSame(module, partitioned);
    sequence = c10::weak_intrusive_ptr<c10::ivalue::Object>(
        partitioned.attr("pcg_sequence").toObject());
  }
  EXPECT_TRUE(sequence.expired());
}

TEST(SharedParts, TiedWeightsStayTiedAndSharedSubmoduleStaysShared) {
  torch::jit::Module block("Block");
  block.register_parameter("w", at::randn({4, 4}), false);
  block.define("def forward(self, x):\n    return torch.tanh(x @ self.w)\n");
  torch::jit::Module module("Tied");
  module.register_module("a", block);
  module.register_module("b", block);
  module.register_parameter("w", block.attr("w").toTensor(), false);
  module.define(R"(
def forward(self, x):
    return self.b.forward(self.a.forward(x)) @ self.w
)");
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  EXPECT_TRUE(partitioned.attr("a").toObject() ==
              partitioned.attr("b").toObject());
  torch::jit::Module loaded = saveAndLoad(partitioned);
  EXPECT_TRUE(loaded.attr("w").toTensor().is_same(
      loaded.attr("a").toModule().attr("w").toTensor()));
  const at::NoGradGuard no_grad;
  loaded.attr("w").toTensor().mul_(0.5);
  module.attr("w").toTensor().mul_(0.5);
  expectSame(module, loaded);
}

// ---- modes ------------------------------------------------------------------

TEST(Modes, GradientsCrossTheBorderExactly) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({3, 4});
    std::vector<at::Tensor> gradients;
    for (auto* each : {&module, &partitioned}) {
      const at::Tensor input = x.clone().requires_grad_(true);
      each->forward({input}).toTensor().sum().backward();
      gradients.push_back(input.grad());
    }
    EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  }
}

TEST(Modes, InferenceModeForOneCallOnly) {
  torch::jit::Module module = makeModule(kLinear, {{"w", at::randn({4, 4})}});
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::randn({3, 4});
    const c10::InferenceMode inference(i % 2 == 0);
    const at::NoGradGuard no_grad;
    const IValue found = partitioned.forward({x});
    EXPECT_EQ("", difference(module.forward({x}), found));
    EXPECT_EQ(found.toTensor().is_inference(), i % 2 == 0);
  }
}

TEST(Modes, GradientIslandGivesTheSameForces) {
  torch::jit::Module module = makeModule(kGradientIsland);
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = at::randn({6, 3});
    EXPECT_EQ("", difference(module.forward({x}), partitioned.forward({x})));
  }
}

TEST(Modes, GradientIslandOfTrainableWeightsIsReplayed) {
  // Torch's own differentiation of graphs rounds in other ways.
  const torch::jit::GraphOptimizerEnabledGuard plain(false);
  torch::jit::Module module = makeModule(R"(
def forward(self, pos):
    p = pos.detach().requires_grad_(True)
    e = torch.tanh(p @ self.w).sum()
    g = torch.autograd.grad([e], [p])[0]
    assert g is not None
    return e.detach(), -g
)",
                                         {{"w", at::randn({3, 3})}});
  module.attr("w").toTensor().requires_grad_();
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = at::randn({6, 3});
    EXPECT_EQ("", difference(module.forward({x}), partitioned.forward({x})));
  }
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

TEST(Keys, AreBoundedInNumber) {
  PartitionOptions options = smallSegments();
  options.max_keys_per_segment = 4;
  ModulePair pair(makeModule(R"(
def forward(self, x):
    return torch.relu(x) + 1.0
)"),
                  options);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t n = 1; n <= 24; ++n)
      pair.call({at::randn({n})});
  }
}

}  // namespace
}  // namespace pcg::test
