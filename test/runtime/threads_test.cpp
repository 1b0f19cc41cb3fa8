#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/library.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/module_pair.h"

namespace pcg::test {
namespace {

// What the operator `pcg_threads_test::meanwhile`, a break, does while the call
// that contains it holds what its first segment has yielded.
thread_local const std::function<void()>* meanwhile = nullptr;

TORCH_LIBRARY(pcg_threads_test, library) {
  library.def("meanwhile(Tensor x) -> Tensor", [](const at::Tensor& x) {
    if (meanwhile != nullptr)
      (*meanwhile)();
    return x.clone();
  });
}

// A slot of the first segment is read behind the break.
const char* const kHeldAcrossABreak = R"(
def forward(self, x):
    h = torch.relu(x) * 2.0
    k = ops.pcg_threads_test.meanwhile(x)
    return torch.tanh(h) + k
)";

// A thread that runs one task after another.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    post({});
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  std::future<void> post(std::packaged_task<void()> task) {
    std::future<void> done;
    if (task.valid())
      done = task.get_future();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    posted_.notify_one();
    return done;
  }

 private:
  void work() {
    const at::NoGradGuard no_grad;
    while (true) {
      std::unique_lock<std::mutex> lock(mutex_);
      posted_.wait(lock, [&] { return !tasks_.empty(); });
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.erase(tasks_.begin());
      lock.unlock();
      if (!task.valid())
        return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::packaged_task<void()>> tasks_;
  std::thread thread_;  // starts last
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Threads : public ::testing::Test {
 protected:
  // Compares a call of the partitioned module with one of the original.
  void call(double value) {
    const at::NoGradGuard no_grad;
    const at::Tensor x = at::full({3, 4}, value);
    const std::function<void()>* action = std::exchange(meanwhile, nullptr);
    const c10::IValue expected = original_.forward({x});
    meanwhile = action;
    if (!difference(expected, partitioned_.forward({x})).empty())
      ++wrong_;
  }

  void callMeanwhile(double value, const std::function<void()>& action) {
    meanwhile = &action;
    call(value);
    meanwhile = nullptr;
  }

  torch::jit::Module original_ = makeModule(kHeldAcrossABreak);
  torch::jit::Module partitioned_ =
      partition(original_, smallSegments()).module;
  std::atomic<int> wrong_{0};
};

TEST_F(Threads, EachThreadGetsItsOwnResults) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        call(t + 0.01 * i);
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong_, 0);
}

TEST_F(Threads, CallsOneAfterAnotherShareOneContext) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int t = 0; t < 20; ++t)
    workers.push_back(std::make_unique<Worker>());
  for (int round = 0; round < 3; ++round) {
    for (const auto& worker : workers)
      worker->post(std::packaged_task<void()>([&] { call(round); })).get();
  }
  EXPECT_EQ(wrong_, 0);
  const std::string report = reportOf(partitioned_);
  EXPECT_TRUE(contains(report, R"("contexts": 1,)")) << report;
  EXPECT_TRUE(contains(report, R"("calls_without_context": 0,)")) << report;
  const Totals totals = totalsOf(partitioned_);
  EXPECT_EQ(totals.captures, totals.segments);
  // All but each thread's first call, which makes what libraries keep by
  // thread, and the rest of the first round.
  EXPECT_GE(totals.replays, 38 * totals.segments);
}

TEST_F(Threads, AContextWhoseSlotIsInUseIsNotTakenByAnotherThread) {
  for (int i = 0; i < 3; ++i)
    call(1.0);
  Worker other;
  for (int i = 0; i < 4; ++i) {
    callMeanwhile(2.0 + i, [&] {
      other.post(std::packaged_task<void()>([&] { call(-5.0); })).get();
    });
  }
  EXPECT_EQ(wrong_, 0);
  const std::string report = reportOf(partitioned_);
  EXPECT_TRUE(contains(report, R"("contexts": 2,)")) << report;
}

// A capture at one weight's address outlives the warm-up on a thread that needs
// a capture at another's; both read the same key constant.
TEST(ThreadsOfOneContext, AWarmUpOnAnotherThreadLeavesEarlierCapturesIntact) {
  ModulePair pair(R"(
def forward(self, x):
    rows = torch.exp(torch.arange(x.shape[0], dtype=6)).unsqueeze(1)
    return torch.tanh(x * rows) @ self.w + rows
)",
                  {{"w", at::randn({4, 4})}});
  const at::Tensor first = at::randn({4, 4});
  const at::Tensor second = at::randn({4, 4});
  const auto assign = [&](const at::Tensor& weight) {
    pair.original.setattr("w", weight);
    pair.partitioned.setattr("w", weight);
  };
  const auto call = [&] { pair.call({at::randn({3, 4})}); };
  assign(first);
  for (int i = 0; i < 3; ++i)
    call();
  Worker other;
  assign(second);
  other
      .post(std::packaged_task<void()>([&] {
        for (int i = 0; i < 3; ++i)
          call();
      }))
      .get();
  const std::int64_t captures = totalsOf(pair.partitioned).captures;
  EXPECT_EQ(captures, 2);
  assign(first);
  for (int i = 0; i < 3; ++i)
    call();
  EXPECT_EQ(totalsOf(pair.partitioned).captures, captures);
}

TEST_F(Threads, ASegmentWithoutAContextWaitsForOneThenRunsEagerly) {
  for (int i = 0; i < 3; ++i)
    call(1.0);
  // Each call is in its break while it starts the next, ten deep. The depth
  // costs no more than the wait of those beyond the cap.
  std::vector<std::unique_ptr<Worker>> workers;
  for (int t = 0; t < 10; ++t)
    workers.push_back(std::make_unique<Worker>());
  const std::function<void(std::size_t)> descend = [&](std::size_t depth) {
    if (depth == workers.size())
      return;
    workers[depth]
        ->post(std::packaged_task<void()>([&, depth] {
          callMeanwhile(3.0 + depth, [&] { descend(depth + 1); });
        }))
        .get();
  };
  // Each new context is warmed up before it is captured.
  for (int i = 0; i < 12; ++i)
    descend(0);
  EXPECT_EQ(wrong_, 0);
  const std::string report = reportOf(partitioned_);
  EXPECT_TRUE(contains(report, R"("contexts": 8,)")) << report;
  EXPECT_FALSE(contains(report, R"("calls_without_context": 0,)")) << report;
  // Contexts are free again.
  const std::int64_t replays = totalsOf(partitioned_).replays;
  for (int i = 0; i < 3; ++i)
    call(7.0);
  EXPECT_GT(totalsOf(partitioned_).replays, replays);
  EXPECT_EQ(wrong_, 0);
}

}  // namespace
}  // namespace pcg::test
