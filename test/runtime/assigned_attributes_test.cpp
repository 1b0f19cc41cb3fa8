#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <pcg/partition.h>
#include <torch/csrc/jit/api/module.h>

#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

void expectEqualAttribute(const ModulePair& pair, const char* name) {
  EXPECT_EQ("",
            difference(pair.original.attr(name), pair.partitioned.attr(name)));
}

TEST(AssignedAttributes, CutNoSegment) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.tanh(x + self.state)
    self.state = h * 0.5
    return torch.relu(h) - self.state.sum()
)",
                  {{"state", at::zeros({3, 4})}});
  EXPECT_EQ(1u, pair.report.segments.size());
  EXPECT_TRUE(pair.report.breaks.empty()) << pair.report.text();
  for (int i = 0; i < 6; ++i) {
    pair.call({at::randn({3, 4})});
    expectEqualAttribute(pair, "state");
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(AssignedAttributes, KeepTheirValueAcrossLaterCalls) {
  ModulePair pair(R"(
def forward(self, x):
    h = torch.tanh(x + 1.0)
    self.state = h * 0.5
    return torch.relu(h)
)",
                  {{"state", at::zeros({3, 4})}});
  std::vector<at::Tensor> states;
  std::vector<at::Tensor> copies;
  for (int i = 0; i < 6; ++i) {
    pair.call({at::randn({3, 4})});
    states.push_back(pair.partitioned.attr("state").toTensor());
    copies.push_back(states.back().clone());
  }
  for (std::size_t i = 0; i < states.size(); ++i)
    EXPECT_TRUE(at::equal(copies[i], states[i])) << i;
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(AssignedAttributes, TakeNoRandomNumberAwayWhereTheyDecideABranch) {
  torch::jit::Module original("Model");
  original.register_attribute("scale", c10::FloatType::get(), 2.0);
  original.define(R"(
def forward(self, x):
    v = torch.rand([2, 4]) * 2.0
    self.scale = 1.0
    if 1.0 < self.scale:
        return v
    return x + 1.0
)");
  PartitionOptions options;
  options.backend = Backend::kHost;
  options.min_segment_size = 1;
  torch::jit::Module partitioned = partition(original, options).module;
  for (int i = 0; i < 4; ++i) {
    at::manual_seed(i);
    original.forward({at::ones({2, 4})});
    const at::Tensor expected = at::rand({4});
    at::manual_seed(i);
    partitioned.forward({at::ones({2, 4})});
    EXPECT_TRUE(at::equal(expected, at::rand({4}))) << i;
  }
  EXPECT_GT(totalsOf(partitioned).replays, 0);
}

// The view is made again behind the segment, since its base is returned too.
TEST(AssignedAttributes, StandWhenAViewBehindThemRaises) {
  ModulePair pair(R"(
def forward(self, x):
    self.state = torch.ones([4])
    positive = (x.t() > 0.0).long()
    return positive.view([x.size(0), 4])[0], torch.ones([2]).size()
)",
                  {{"state", at::zeros({4})}});
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({1, 4})});
    pair.call({at::randn({3, 4})});  // raises
    expectEqualAttribute(pair, "state");
    for (auto* module : {&pair.original, &pair.partitioned})
      module->setattr("state", at::zeros({4}));
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(AssignedAttributes, DoNotHappenWhenAViewBeforeThemRaises) {
  ModulePair pair(R"(
def forward(self, x):
    y = x.t() * 2.0
    z = y.view([x.size(0), 4])
    self.buffer.add_(1.0)
    self.state = torch.ones([4])
    return z[0], y
)",
                  {{"state", at::zeros({4})}, {"buffer", at::zeros({4})}});
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({1, 4})});
    pair.call({at::randn({3, 4})});  // raises
    expectEqualAttribute(pair, "state");
    expectEqualAttribute(pair, "buffer");
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(AssignedAttributes, ReadAfterTheAssignmentSeesIt) {
  ModulePair pair(R"(
def forward(self, x, flag: bool):
    self.state = torch.tanh(x)
    y = x * 2.0
    if flag:
        self.state = torch.relu(y)
    z = self.state + y
    self.state = z
    return self.state * 3.0
)",
                  {{"state", at::zeros({3, 4})}});
  for (int i = 0; i < 8; ++i) {
    pair.call({at::randn({3, 4}), i % 2 == 0});
    expectEqualAttribute(pair, "state");
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

// The original has assigned what stands before the node that throws, and not
// what stands behind it.
TEST(AssignedAttributes, AreAssignedUpToAnException) {
  ModulePair pair(R"(
def forward(self, x, w):
    h = torch.tanh(x)
    self.first = h * 2.0
    self.second = h + 1.0
    y = torch.matmul(h, w)
    self.first = y
    return torch.relu(y)
)",
                  {{"first", at::zeros({1})}, {"second", at::zeros({1})}});
  ASSERT_EQ(1u, pair.report.segments.size());
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({3, 4}), at::randn({4, 2})});
    pair.call({at::randn({3, 4}), at::randn({5, 2})});
    expectEqualAttribute(pair, "first");
    expectEqualAttribute(pair, "second");
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(AssignedAttributes, AreAssignedUpToAnExceptionInASplitSegment) {
  ModulePair pair(R"(
def forward(self, x, w, flag: bool):
    h = torch.tanh(x)
    self.first = h * 2.0
    y = torch.matmul(h, h.t())
    if flag:
        y = y * float(y.sum().item())
    self.first = torch.exp(y)
    z = torch.matmul(torch.relu(y), w)
    self.first = z
    return torch.relu(z)
)",
                  {{"first", at::zeros({1})}});
  for (int i = 0; i < 4; ++i) {
    pair.call({at::randn({3, 4}), at::randn({3, 2}), true});
    expectEqualAttribute(pair, "first");
    pair.call({at::randn({3, 4}), at::randn({5, 2}), true});
    expectEqualAttribute(pair, "first");
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(AssignedAttributes, OfOneObjectAtTwoPathsAreOne) {
  torch::jit::Module child("Child");
  child.register_buffer("state", at::zeros({3, 4}));
  torch::jit::Module parent("Parent");
  parent.register_module("a", child);
  parent.register_module("b", child);
  parent.define(R"(
def forward(self, x):
    self.a.state = torch.tanh(x)
    self.b.state = torch.relu(x)
    y = torch.exp(x)
    return y + self.a.state
)");
  ModulePair pair(parent, smallSegments());
  for (int i = 0; i < 5; ++i)
    pair.call({at::randn({3, 4})});
}

}  // namespace
}  // namespace pcg::test
