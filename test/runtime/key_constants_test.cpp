#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

using c10::IValue;

// What the graph of one replay holds, as the host back end counts it, is not
// reported; captures and replays are.
void callInTurns(ModulePair& pair, int rounds = 4) {
  for (int round = 0; round < rounds; ++round) {
    for (const std::int64_t rows : {3, 5})
      pair.call({at::randn({rows, 4})});
  }
}

TEST(KeyConstants, DependOnShapesOnly) {
  ModulePair pair(R"(
def forward(self, x):
    rows = torch.arange(x.shape[0], dtype=6)
    scale = torch.exp(rows / x.shape[1]).unsqueeze(1)
    return torch.tanh(x * scale) + scale
)");
  callInTurns(pair);
  const Totals totals = totalsOf(pair.partitioned);
  EXPECT_EQ(2, totals.captures);
  EXPECT_EQ(6, totals.replays);
}

// A list is no constant, but what it becomes is: `torch.tensor` copies it from
// host memory, which no graph can hold.
TEST(KeyConstants, MayComeFromHostMemory) {
  ModulePair pair(R"(
def forward(self, x):
    size = torch.tensor([x.shape[0], x.shape[1] + 1])
    return torch.relu(x) * size.sum() + size[0]
)");
  callInTurns(pair);
  EXPECT_EQ(1, totalsOf(pair.partitioned).segments);
  EXPECT_EQ(6, totalsOf(pair.partitioned).replays);
}

TEST(KeyConstants, AreMadeAnewWhereTheSegmentWritesThem) {
  ModulePair pair(R"(
def forward(self, x):
    rows = torch.arange(x.shape[0], dtype=6)
    view = rows[0:2]
    before = rows.sum()
    view.add_(x.sum())
    return rows * before
)");
  callInTurns(pair);
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(KeyConstants, AreMadeAnewWhereTheSegmentWritesThemInInferenceMode) {
  ModulePair pair(R"(
def forward(self, x):
    rows = torch.arange(x.shape[0], dtype=6)
    view = rows[0:2]
    before = rows.sum()
    view.add_(x.sum())
    return rows * before
)");
  const c10::InferenceMode guard;
  callInTurns(pair);
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(KeyConstants, ReachTheCallerAsTensorsOfItsOwn) {
  ModulePair pair(R"(
def forward(self, x):
    rows = torch.arange(x.shape[0], dtype=6) * 2.0
    y = torch.relu(x) + rows.unsqueeze(1)
    return y, rows, rows[1:]
)");
  for (int round = 0; round < 5; ++round) {
    const IValue result = pair.call({at::randn({3, 4})});
    const auto& elements = result.toTupleRef().elements();
    // A view of it stays one, and what the caller writes is not seen again.
    elements[1].toTensor().fill_(7.0);
    EXPECT_EQ(7.0, elements[2].toTensor()[0].item().toDouble());
  }
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(KeyConstants, MayBeLists) {
  ModulePair pair(R"(
def forward(self, x):
    rows, columns = torch.meshgrid([torch.arange(x.shape[0]),
                                    torch.arange(x.shape[1])])
    parts = torch.arange(8.0).split(4)
    return torch.relu(x) + rows * columns + parts[1]
)");
  callInTurns(pair);
  EXPECT_EQ(1, totalsOf(pair.partitioned).segments);
  EXPECT_EQ(6, totalsOf(pair.partitioned).replays);
}

TEST(KeyConstants, FollowTheTripsOfALoop) {
  ModulePair pair(R"(
def forward(self, x):
    y = x
    for i in range(x.shape[0]):
        if i % 2 == 0:
            y = y + torch.full([4], float(i))
        y = y * torch.arange(i, i + 4)
    return torch.relu(y)
)");
  callInTurns(pair);
  EXPECT_EQ(6, totalsOf(pair.partitioned).replays);
}

TEST(KeyConstants, KeepStridesAndAliasesOfViews) {
  ModulePair pair(R"(
def forward(self, x):
    grid = torch.arange(12.0).view(3, 4)
    turned = grid.t().expand(2, 4, 3)
    return torch.matmul(turned, x[0:3]) + turned.stride(1), turned * 1.0
)");
  callInTurns(pair);
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

TEST(KeyConstants, AreNoneWhereRandomNumbersAreDrawn) {
  ModulePair pair(R"(
def forward(self, x):
    noise = torch.rand([4]) + torch.ones([4])
    return torch.relu(x) + noise
)");
  callInTurns(pair);
  EXPECT_GT(totalsOf(pair.partitioned).replays, 0);
}

}  // namespace
}  // namespace pcg::test
