#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "test/nvtx_recorder/recorder.h"
#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

// Counts the bytes of tensors that live, wherever they were allocated while it
// was installed. It may be freed through after that, so it never goes.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static auto* allocator = new CountingAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto* block = new Block{inner_->allocate(bytes), bytes};
    live_ += static_cast<std::int64_t>(bytes);
    void* data = block->memory.get();
    return {data, block, &release, c10::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  std::int64_t live() const { return live_; }

  class Installed {
   public:
    Installed() { c10::SetCPUAllocator(&instance(), 100); }
    ~Installed() { c10::SetCPUAllocator(instance().inner_, 100); }
  };

 private:
  struct Block {
    c10::DataPtr memory;
    std::size_t bytes;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    instance().live_ -= static_cast<std::int64_t>(block->bytes);
    delete block;
  }

  c10::Allocator* inner_ = c10::GetCPUAllocator();
  std::atomic<std::int64_t> live_{0};
};

std::int64_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The heap's own fragments; a leak of 1 KiB a call is ten times as much.
constexpr std::int64_t kTolerance = std::int64_t{1} << 20;

const char* const kNetwork = R"(
def forward(self, x):
    h = torch.relu(x @ self.w) * 2.0
    s = float(h.max().item())
    return torch.tanh(h @ self.w) + s
)";

void callManyShapes(std::int64_t most_keys) {
  PartitionOptions options = smallSegments();
  options.max_keys_per_segment = most_keys;
  const torch::jit::Module original =
      makeModule(kNetwork, {{"w", at::randn({16, 16})}});
  torch::jit::Module module = partition(original, options).module;
  const CountingAllocator::Installed counting;
  const at::NoGradGuard no_grad;
  const auto round = [&] {
    for (std::int64_t shape = 1; shape <= 50; ++shape)
      module.forward({at::ones({shape, 16})});
    takeNvtxRanges();  // This program's own tool keeps them until then.
  };
  for (int i = 0; i < 20; ++i)
    round();
  const std::int64_t live = CountingAllocator::instance().live();
  const std::int64_t resident = residentBytes();
  for (int i = 0; i < 180; ++i)
    round();
  EXPECT_EQ(CountingAllocator::instance().live(), live);
  EXPECT_LE(residentBytes(), resident + kTolerance);
}

TEST(MemoryGrowth, NoneOver10000CallsOf50Shapes) {
  callManyShapes(PartitionOptions().max_keys_per_segment);
}

TEST(MemoryGrowth, NoneWhereKeysAreEvictedAllTheTime) {
  callManyShapes(3);
}

TEST(MemoryGrowth, NoneOver100RoundsOfLoadRunDestroy) {
  std::stringstream file;
  partition(makeModule(kNetwork, {{"w", at::randn({16, 16})}}), smallSegments())
      .module.save(file);
  const std::string bytes = file.str();
  const CountingAllocator::Installed counting;
  const at::NoGradGuard no_grad;
  const auto round = [&] {
    std::istringstream stream(bytes);
    torch::jit::Module module = torch::jit::load(stream);
    for (int i = 0; i < 4; ++i)
      module.forward({at::ones({8, 16})});
    EXPECT_GT(totalsOf(module).replays, 0);
    takeNvtxRanges();
  };
  for (int i = 0; i < 20; ++i)
    round();
  const std::int64_t live = CountingAllocator::instance().live();
  const std::int64_t resident = residentBytes();
  for (int i = 0; i < 100; ++i)
    round();
  EXPECT_EQ(CountingAllocator::instance().live(), live);
  EXPECT_LE(residentBytes(), resident + 4 * kTolerance);
}

}  // namespace
}  // namespace pcg::test
