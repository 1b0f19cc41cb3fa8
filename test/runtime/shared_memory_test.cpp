// Arguments and attributes that share memory with each other from one call to
// the next, or start to require a gradient.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

using c10::IValue;

const char* const kWritesSecond = R"(
def forward(self, x, y):
    y.copy_(x.neg() + 1.0)
    return torch.exp(x)
)";

TEST(SharedMemory, TwoArgumentsMayBeOneThoughEarlierOnesWereNot) {
  ModulePair pair(kWritesSecond);
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor y = at::randn({3, 4});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i)
      pair.call({x, y});
    pair.call({x, x});
    pair.call({y, y});
    pair.call({x, x.view_as(x)});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(SharedMemory, ArgumentsMayOverlapAtAnotherDistance) {
  ModulePair pair(kWritesSecond);
  const at::Tensor base = at::randn({12});
  for (int round = 0; round < 4; ++round) {
    for (const std::int64_t distance : {4, 2, 1, 0}) {
      pair.call({base.narrow(0, 0, 4), base.narrow(0, distance, 4)});
    }
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(SharedMemory, ArgumentMayBeABufferThatIsWritten) {
  torch::jit::Module original("Model");
  original.register_buffer("state", at::randn({4}));
  original.define(R"(
def forward(self, x):
    self.state.mul_(0.5)
    return torch.exp(x) + 1.0
)");
  torch::jit::Module source = original.deepcopy();
  torch::jit::Module partitioned = partition(source, smallSegments()).module;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 12; ++i) {
    const bool shared = i % 4 == 3;
    const at::Tensor other = at::randn({4});
    const auto call = [&](torch::jit::Module& module) {
      return module.forward({shared ? module.attr("state").toTensor() : other});
    };
    EXPECT_EQ("", difference(call(original), call(partitioned))) << i;
  }
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

TEST(SharedMemory, ArgumentThatComesToRequireAGradientKeepsItsHistory) {
  torch::jit::Module original("Model");
  original.register_parameter("weight", at::randn({4}).requires_grad_(),
                              /*is_buffer=*/false);
  original.define(R"(
def forward(self, x):
    x.mul_(self.weight)
    return x
)");
  torch::jit::Module source = original.deepcopy();
  torch::jit::Module partitioned = partition(source, smallSegments()).module;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::randn({4});
    const IValue expected = original.forward({x.clone()});
    const IValue found = partitioned.forward({x.clone()});
    EXPECT_EQ("", difference(expected, found)) << i;
    EXPECT_TRUE(found.toTensor().requires_grad()) << i;
  }
}

TEST(SharedMemory, ListAndDictAttributesThatAreReturnedStayTheSameObjects) {
  torch::jit::Module module("Model");
  c10::List<at::Tensor> items;
  items.push_back(at::randn({4}));
  c10::Dict<std::string, at::Tensor> cache;
  cache.insert("a", at::randn({4}));
  module.register_attribute("items", c10::ListType::ofTensors(), items);
  module.register_attribute(
      "cache",
      c10::DictType::create(c10::StringType::get(), c10::TensorType::get()),
      cache);
  module.register_attribute("flag", c10::BoolType::get(), false);
  module.define(R"(
def forward(self, x):
    if self.flag:
        return [x * 2.0], {"a": x}, self.cache, torch.exp(x)
    return self.items, self.cache, self.cache, torch.exp(x)
)");
  torch::jit::Module partitioned = partition(module, smallSegments()).module;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) {
    const IValue result = partitioned.forward({at::randn({4})});
    const auto& elements = result.toTupleRef().elements();
    EXPECT_TRUE(elements[0].is(module.attr("items"))) << i;
    EXPECT_TRUE(elements[1].is(module.attr("cache"))) << i;
    EXPECT_TRUE(elements[2].is(module.attr("cache"))) << i;
  }
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

// ---- where a tensor lies ----------------------------------------------------

TEST(Placement, AsStridedReachesMemoryOutsideTheInput) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.tanh(x.as_strided([4], [1], 0) * 2.0)
)");
  for (int i = 0; i < 9; ++i) {
    const at::Tensor base = at::randn({8 + i / 6});
    pair.call({base.slice(0, i % 3, i % 3 + 4)});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(Placement, AsStridedWritesMemoryOutsideTheInput) {
  ModulePair pair(R"(
def forward(self, x):
    x.as_strided([2], [1], 0).add_(1.0)
    return torch.tanh(x)
)");
  for (int i = 0; i < 9; ++i) {
    const at::Tensor base = at::randn({8});
    const at::Tensor mine = base.clone();
    pair.original.forward({base.slice(0, i % 3, i % 3 + 4)});
    pair.partitioned.forward({mine.slice(0, i % 3, i % 3 + 4)});
    EXPECT_TRUE(at::equal(base, mine)) << i;
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(Placement, StorageOffsetIsTheCallers) {
  ModulePair pair(R"(
def forward(self, x):
    return torch.tanh(x) + float(x.storage_offset())
)");
  for (int i = 0; i < 9; ++i) {
    const at::Tensor base = at::randn({8});
    pair.call({base.slice(0, i % 3, i % 3 + 4)});
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(Placement, WhetherTensorsAreSetToTheSameMemoryIsSeen) {
  ModulePair pair(R"(
def forward(self, x, y):
    z = torch.tanh(x) * 2.0
    if x.is_set_to(y):
        z = z + 1.0
    return z + y
)");
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = at::randn({4});
    pair.call({x, i % 2 == 0 ? x : at::randn({4})});
  }
}

// ---- gradients without a tape -----------------------------------------------

TEST(RequiresGrad, IsReadAsTheCallersWhereGradientsAreOff) {
  ModulePair pair(R"(
def forward(self, x):
    if x.requires_grad:
        return torch.tanh(x) + 1.0
    return torch.tanh(x)
)");
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 8; ++i)
    pair.call({at::randn({4}).requires_grad_(i % 2 == 0)});
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

}  // namespace
}  // namespace pcg::test
