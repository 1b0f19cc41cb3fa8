#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/backend.h"

namespace pcg {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

at::TensorOptions onGpu() {
  return at::device(kGpu).dtype(at::kFloat);
}

void synchronize() {
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Seeds the default generator of the GPU.
void seed(std::uint64_t value) {
  auto generator = at::cuda::detail::getDefaultCUDAGenerator(0);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(value);
}

// Longer than the host takes to enqueue what follows.
void keepStreamBusy() {
  at::cuda::sleep(20'000'000);
}

// The message of the CaptureError that `work` throws; "" if it does not.
template <typename Work>
std::string refusalOf(const Work& work) {
  try {
    work();
  } catch (const CaptureError& error) {
    return error.what();
  }
  return "";
}

#define EXPECT_CONTAINS(text, part)                          \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "the text is: " << (text)

TEST(CudaBackendWithoutGpu, MakingOneNamesTheCause) {
  if (c10::cuda::device_count() > 0) {
    GTEST_SKIP() << "there is a GPU";
  }
  try {
    makeCudaBackend(kGpu);
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_CONTAINS(error.what(), "cuda:0");
    EXPECT_GT(std::string(error.what()).size(), 30u);
  }
}

TEST(CudaBackendWithoutGpu, OtherDevicesAreNotCaptured) {
  EXPECT_FALSE(isCapturing(c10::Device(c10::kCPU)));
  EXPECT_THROW(makeCudaBackend(c10::Device(c10::kCPU)), std::runtime_error);
}

class CudaBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) {
      std::string cause;
      try {
        makeCudaBackend(kGpu);
      } catch (const std::runtime_error& error) {
        cause = error.what();
      }
      GTEST_SKIP() << cause;
    }
    backend_ = makeCudaBackend(kGpu);
    // The thread's cuBLAS handle cannot be made inside a capture.
    backend_->warmUp([] {
      const at::Tensor x = at::ones({2, 2}, onGpu());
      at::linear(x, x);
    });
  }

  void TearDown() override {
    if (backend_) {
      synchronize();
    }
  }

  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& body) {
    return backend_->capture(body, {});
  }

  // What every failed capture has to leave behind.
  void expectUsable() {
    EXPECT_FALSE(isCapturing(kGpu));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(c10::cuda::getCurrentCUDAStream(),
              c10::cuda::getDefaultCUDAStream());
    synchronize();

    seed(11);
    const at::Tensor eager = at::rand({64}, onGpu());
    const at::Tensor x = at::randn({8, 16}, onGpu());
    const at::Tensor w = at::randn({4, 16}, onGpu());
    const at::Tensor b = at::randn({4}, onGpu());
    at::Tensor drawn;
    at::Tensor product;
    const auto graph = capture([&] {
      drawn = at::rand({64}, onGpu());
      product = at::linear(x, w, b);
    });
    seed(11);
    backend_->enterStream();
    graph->replay();
    EXPECT_TRUE(at::equal(drawn, eager));
    EXPECT_TRUE(at::equal(product, at::linear(x, w, b)));
  }

  std::unique_ptr<CaptureBackend> backend_;
};

TEST_F(CudaBackend, CaptureRunsNothingAndReplayReadsInputsAgain) {
  const at::Tensor x = at::ones({1000}, onGpu());
  at::Tensor y;
  const auto graph = capture([&] {
    y = x * 2 + 1;
    x.add_(1);
  });
  EXPECT_TRUE(at::equal(x, at::ones_like(x)));

  backend_->enterStream();
  graph->replay();
  EXPECT_TRUE(at::equal(y, at::full_like(y, 3)));
  EXPECT_TRUE(at::equal(x, at::full_like(x, 2)));
  x.fill_(5);
  graph->replay();
  EXPECT_TRUE(at::equal(y, at::full_like(y, 11)));
}

TEST_F(CudaBackend, WarmUpRunsOnTheCallersStreamAndPassesExceptions) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const auto expected = c10::cuda::getCurrentCUDAStream();
  bool same = false;
  backend_->warmUp(
      [&] { same = c10::cuda::getCurrentCUDAStream() == expected; });
  EXPECT_TRUE(same);
  EXPECT_THROW(backend_->warmUp([] { throw std::domain_error("no"); }),
               std::domain_error);
}

TEST_F(CudaBackend, SizeCountsKernelsCopiesAndFills) {
  const at::Tensor x = at::ones({100}, onGpu());
  const at::Tensor y = at::ones({100}, onGpu());
  const auto graph = capture([&] {
    x.add_(1);
    y.copy_(x);
    (void)cudaMemsetAsync(x.data_ptr(), 0, 400,
                          c10::cuda::getCurrentCUDAStream().stream());
  });
  EXPECT_EQ(graph->size(), 3);
}

TEST_F(CudaBackend, EmptyCaptureReplaysNothing) {
  const auto graph = capture([] {});
  EXPECT_EQ(graph->size(), 0);
  backend_->enterStream();
  graph->replay();
  expectUsable();
}

TEST_F(CudaBackend, CopiesMoveExactlyTheirBytes) {
  const std::vector<std::int64_t> sizes = {
      0,  1,  2,   3,   4,   7,    15,    16,    17,    31,    32,
      63, 64, 100, 255, 256, 4095, 16383, 16384, 16385, 65536, 3'145'733};
  const std::vector<std::int64_t> offsets = {0, 1, 4, 8, 12, 15};
  struct Placed {
    std::int64_t from;
    std::int64_t to;
    std::int64_t bytes;
  };
  std::vector<Placed> all;
  std::int64_t end = 0;
  for (const std::int64_t bytes : sizes) {
    for (const std::int64_t from : offsets) {
      for (const std::int64_t to : offsets) {
        if (bytes > 1'000'000 && from + to > 1) {
          continue;
        }
        all.push_back({end + from, end + to, bytes});
        end += (bytes + 48) / 16 * 16;
      }
    }
  }
  const at::Tensor source =
      at::randint(256, {end}, at::device(kGpu).dtype(at::kByte));
  const at::Tensor host_source = source.cpu();
  for (const std::size_t in_one_call : {std::size_t{1}, all.size()}) {
    const at::Tensor target =
        at::full({end}, 0xEE, at::device(kGpu).dtype(at::kByte));
    const at::Tensor expected = target.cpu();
    std::vector<CopyOperation> operations;
    backend_->enterStream();
    for (const Placed& placed : all) {
      operations.push_back({target.mutable_data_ptr<std::uint8_t>() + placed.to,
                            source.const_data_ptr<std::uint8_t>() + placed.from,
                            static_cast<std::size_t>(placed.bytes)});
      if (operations.size() == in_one_call) {
        backend_->copy(operations);
        operations.clear();
      }
      expected.narrow(0, placed.to, placed.bytes)
          .copy_(host_source.narrow(0, placed.from, placed.bytes));
    }
    EXPECT_TRUE(operations.empty());
    EXPECT_TRUE(at::equal(target.cpu(), expected));
  }
  backend_->copy({});
}

TEST_F(CudaBackend, AllocatedMemoryLiesOutsideThePool) {
  const std::size_t before = backend_->poolBytes();
  const at::DataPtr memory = backend_->allocate(100 << 20);
  EXPECT_EQ(memory.device(), kGpu);
  EXPECT_EQ(backend_->poolBytes(), before);
  EXPECT_EQ(cudaMemset(memory.get(), 0, 100 << 20), cudaSuccess);
}

TEST_F(CudaBackend, PoolBytesAreThoseOfTheCaptures) {
  EXPECT_EQ(backend_->poolBytes(), 0u);
  at::Tensor kept;
  auto graph = capture([&] { kept = at::ones({64 << 20}, onGpu()); });
  const std::size_t one = std::size_t{256} << 20;
  EXPECT_GE(backend_->poolBytes(), one);
  EXPECT_LT(backend_->poolBytes(), one + one / 4);
}

// ---- failures ---------------------------------------------------------------

TEST_F(CudaBackend, ExceptionOfTheBodyPassesThroughUnchanged) {
  const at::Tensor x = at::randn({8, 16}, onGpu());
  const at::Tensor w = at::randn({4, 16}, onGpu());
  for (int round = 0; round < 3; ++round) {
    try {
      capture([&] {
        const at::Tensor y = at::linear(x, w) + at::rand({8, 4}, onGpu());
        throw std::domain_error("the model says no");
      });
      FAIL() << "expected an exception";
    } catch (const std::domain_error& error) {
      EXPECT_STREQ(error.what(), "the model says no");
    }
    expectUsable();
  }
}

TEST_F(CudaBackend, OrdinaryTorchErrorPassesThroughUnchanged) {
  const at::Tensor x = at::ones({2, 3}, onGpu());
  EXPECT_THROW(capture([&] { at::mm(x, x); }), c10::Error);
  EXPECT_EQ("", refusalOf([&] {
              try {
                capture([&] { at::mm(x, x); });
              } catch (const c10::Error&) {
              }
            }));
  expectUsable();
}

TEST_F(CudaBackend, HostReadIsRefusedWithTheCudaError) {
  const at::Tensor x = at::ones({10}, onGpu());
  const std::string text = refusalOf([&] { capture([&] { x.sum().item(); }); });
  EXPECT_CONTAINS(text, "captur");
  RecordProperty("text", text);
  expectUsable();
}

TEST_F(CudaBackend, SwallowedHostReadIsRefusedAllTheSame) {
  const at::Tensor x = at::ones({10}, onGpu());
  const std::string text = refusalOf([&] {
    capture([&] {
      try {
        x.sum().item();
      } catch (const std::exception&) {
      }
    });
  });
  EXPECT_CONTAINS(text, "captur");
  RecordProperty("text", text);
  expectUsable();
}

TEST_F(CudaBackend, ErrorAfterASwallowedHostReadIsARefusal) {
  const at::Tensor x = at::ones({10}, onGpu());
  EXPECT_NE("", refusalOf([&] {
              capture([&] {
                try {
                  x.sum().item();
                } catch (const std::exception&) {
                }
                throw std::domain_error("a consequence");
              });
            }));
  expectUsable();
}

TEST_F(CudaBackend, CopyBetweenHostAndDeviceIsRefused) {
  const at::Tensor x = at::ones({10}, onGpu());
  EXPECT_NE("", refusalOf([&] { capture([&] { x.cpu(); }); }));
  expectUsable();
  EXPECT_NE("", refusalOf([&] { capture([&] { x.copy_(at::ones({10})); }); }));
  expectUsable();
}

TEST_F(CudaBackend, CopyNodeWithHostMemoryIsRefused) {
  const at::Tensor x = at::ones({10}, onGpu());
  const at::Tensor pinned = at::ones({10}).pin_memory();
  EXPECT_CONTAINS(refusalOf([&] {
                    capture([&] { x.copy_(pinned, /*non_blocking=*/true); });
                  }),
                  "copy from pinned host memory");
  expectUsable();
  EXPECT_CONTAINS(refusalOf([&] {
                    capture([&] { pinned.copy_(x, /*non_blocking=*/true); });
                  }),
                  "copy to pinned host memory");
  expectUsable();
  const std::vector<float> pageable(10, 1);
  EXPECT_CONTAINS(refusalOf([&] {
                    capture([&] {
                      (void)cudaMemcpyAsync(
                          x.mutable_data_ptr(), pageable.data(), 40,
                          cudaMemcpyHostToDevice,
                          c10::cuda::getCurrentCUDAStream().stream());
                    });
                  }),
                  "copy from pageable host memory");
  expectUsable();
}

TEST_F(CudaBackend, HostFunctionIsRefused) {
  EXPECT_CONTAINS(refusalOf([&] {
                    capture([&] {
                      (void)cudaLaunchHostFunc(
                          c10::cuda::getCurrentCUDAStream().stream(),
                          [](void*) {}, nullptr);
                    });
                  }),
                  "host function");
  expectUsable();
}

TEST_F(CudaBackend, CaptureInsideACaptureIsRefused) {
  const at::Tensor x = at::ones({10}, onGpu());
  const auto inner = makeCudaBackend(kGpu);
  std::string text;
  bool seen = false;
  const auto graph = capture([&] {
    x.add_(1);
    seen = isCapturing(kGpu);
    text = refusalOf([&] { inner->capture([&] { x.add_(1); }, {}); });
  });
  EXPECT_TRUE(seen);
  EXPECT_CONTAINS(text, "captured already");
  EXPECT_EQ(graph->size(), 1);
  expectUsable();
}

TEST_F(CudaBackend, FailureLeavesEarlierGraphsAndTheirMemoryAlone) {
  const at::Tensor x = at::ones({1000}, onGpu());
  at::Tensor y;
  const auto graph = capture([&] { y = (x * 2).exp(); });
  const std::size_t bytes = backend_->poolBytes();
  EXPECT_THROW(capture([&] {
                 const at::Tensor z = at::zeros({1000}, onGpu());
                 throw std::domain_error("no");
               }),
               std::domain_error);
  EXPECT_GE(backend_->poolBytes(), bytes);
  at::Tensor other;
  const auto later = capture([&] { other = at::zeros({1000}, onGpu()); });
  backend_->enterStream();
  graph->replay();
  later->replay();
  EXPECT_TRUE(at::equal(y, (x * 2).exp()));
}

TEST_F(CudaBackend, FailureLeavesTheRandomSequenceWhereItWas) {
  seed(5);
  const at::Tensor expected = at::rand({100}, onGpu());
  seed(5);
  EXPECT_NE("", refusalOf([&] {
              capture([&] { at::rand({100}, onGpu()).sum().item(); });
            }));
  EXPECT_TRUE(at::equal(at::rand({100}, onGpu()), expected));
}

TEST_F(CudaBackend, FailureDoesNotLeaveTheAllocatorCapturing) {
  EXPECT_THROW(capture([] { throw std::domain_error("no"); }),
               std::domain_error);
  const auto activeBytes = [] {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0)
        .active_bytes[0]
        .current;
  };
  const auto before = activeBytes();
  {
    // While captures go on, memory that other streams use is not given back.
    const at::Tensor used_elsewhere = at::zeros({8 << 20}, onGpu());
    used_elsewhere.record_stream(c10::cuda::getStreamFromPool());
  }
  synchronize();
  at::empty({1}, onGpu());  // Allocating looks for memory that has come free.
  EXPECT_EQ(activeBytes(), before);
}

// ---- random numbers ---------------------------------------------------------

TEST_F(CudaBackend, RandomReplaysEqualEagerRuns) {
  const at::Tensor x = at::ones({1000}, onGpu());
  const auto body = [&] {
    const at::Tensor y = at::dropout(x, 0.5, /*train=*/true);
    return y + at::randn({1000}, onGpu());
  };
  std::vector<at::Tensor> expected;
  seed(3);
  for (int i = 0; i < 4; ++i) {
    expected.push_back(body());
    expected.push_back(at::rand({7}, onGpu()));
  }

  at::Tensor result;
  seed(3);
  const auto graph = capture([&] { result = body(); });
  const auto silent = capture([&] { x.mul(2); });
  backend_->enterStream();
  for (std::size_t i = 0; i < 8; i += 2) {
    graph->replay();
    EXPECT_TRUE(at::equal(result, expected[i])) << i;
    silent->replay();
    EXPECT_TRUE(at::equal(at::rand({7}, onGpu()), expected[i + 1])) << i;
  }
}

TEST_F(CudaBackend, RandomReplaysOfTwoBackendsDoNotDisturbEachOther) {
  const auto second = makeCudaBackend(kGpu);
  const auto stream = c10::cuda::getStreamFromPool();
  constexpr int kRounds = 50;
  std::vector<at::Tensor> expected;
  seed(9);
  for (int i = 0; i < 2 * kRounds; ++i) {
    expected.push_back(at::rand({500}, onGpu()));
  }
  at::Tensor first_result;
  at::Tensor second_result;
  const auto first_graph = capture([&] {
    keepStreamBusy();  // Read the offset late.
    first_result = at::rand({500}, onGpu());
  });
  std::unique_ptr<CapturedGraph> second_graph;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    second_graph =
        second->capture([&] { second_result = at::rand({500}, onGpu()); }, {});
  }
  seed(9);
  std::vector<at::Tensor> results;
  for (int i = 0; i < kRounds; ++i) {
    backend_->enterStream();
    first_graph->replay();
    const c10::cuda::CUDAStreamGuard guard(stream);
    second->enterStream();
    second_graph->replay();
    results.push_back(second_result.clone());
    c10::cuda::CUDAStreamGuard back(c10::cuda::getDefaultCUDAStream());
    results.insert(results.end() - 1, first_result.clone());
  }
  synchronize();
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(at::equal(results[i], expected[i])) << i;
  }
}

TEST_F(CudaBackend, OthersMayDrawWhileASilentCaptureLasts) {
  const at::Tensor x = at::ones({10}, onGpu());
  std::string failure;
  const auto body = [&] {
    x.add_(1);
    std::thread([&] {
      try {
        at::rand({10}, onGpu());
      } catch (const std::exception& error) {
        failure = error.what();
      }
    }).join();
  };
  CaptureHints hints;
  hints.draws_random = false;
  backend_->capture(body, hints);
  EXPECT_EQ(failure, "");
}

TEST_F(CudaBackend, UnannouncedDrawIsRefused) {
  CaptureHints hints;
  hints.draws_random = false;
  EXPECT_NE("", refusalOf([&] {
              backend_->capture([] { at::rand({10}, onGpu()); }, hints);
            }));
  expectUsable();
}

// ---- streams and threads ----------------------------------------------------

TEST_F(CudaBackend, ReplaysStayInOrderWhenTheStreamChanges) {
  const at::Tensor x = at::zeros({1000}, onGpu());
  const auto add = capture([&] {
    keepStreamBusy();
    x.add_(1);
  });
  const auto twice = capture([&] { x.mul_(2); });
  synchronize();
  backend_->enterStream();
  add->replay();  // 1
  const auto stream = c10::cuda::getStreamFromPool();
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    backend_->enterStream();
    twice->replay();  // 2
    add->replay();    // 3
  }
  backend_->enterStream();
  twice->replay();  // 6
  EXPECT_TRUE(at::equal(x, at::full_like(x, 6)));
}

TEST_F(CudaBackend, ReplaysOnADestroyedStreamAreStillWaitedFor) {
  const at::Tensor x = at::zeros({1000}, onGpu());
  const auto add = capture([&] {
    keepStreamBusy();
    x.add_(1);
  });
  const auto twice = capture([&] { x.mul_(2); });
  synchronize();
  float expected = 0;
  for (int round = 0; round < 5; ++round) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              cudaSuccess);
    {
      const c10::cuda::CUDAStreamGuard guard(
          c10::cuda::getStreamFromExternal(stream, 0));
      backend_->enterStream();
      add->replay();
    }
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    backend_->enterStream();
    twice->replay();
    expected = (expected + 1) * 2;
  }
  synchronize();
  EXPECT_TRUE(at::equal(x, at::full_like(x, expected)));
}

TEST_F(CudaBackend, CaptureIsOrderedWithTheCallersStream) {
  // The pool's memory is reused by the capture's own replays only, so what can
  // go wrong is a replay that starts before the upload or the caller's work.
  const at::Tensor x = at::zeros({1000}, onGpu());
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  keepStreamBusy();
  x.fill_(1);
  const auto graph = capture([&] { x.add_(1); });
  graph->replay();
  EXPECT_TRUE(at::equal(x, at::full_like(x, 2)));
}

TEST_F(CudaBackend, OtherThreadsMayAllocateAndSynchronizeDuringACapture) {
  const at::Tensor x = at::ones({1000}, onGpu());
  at::Tensor y;
  cudaError_t allocation = cudaErrorUnknown;
  cudaError_t release = cudaErrorUnknown;
  float value = 0;
  const auto graph = capture([&] {
    y = x + 1;
    std::thread([&] {
      void* memory = nullptr;
      allocation = cudaMalloc(&memory, 1 << 20);
      release = cudaFree(memory);
      value = at::ones({64}, onGpu()).sum().item<float>();
    }).join();
    y = y * 3;
  });
  EXPECT_EQ(allocation, cudaSuccess);
  EXPECT_EQ(release, cudaSuccess);
  EXPECT_EQ(value, 64);
  graph->replay();
  EXPECT_TRUE(at::equal(y, at::full_like(y, 6)));
}

TEST_F(CudaBackend, ThreadsCaptureAndReplaySideBySide) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      try {
        const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
        const auto backend = makeCudaBackend(kGpu);
        const at::Tensor w = at::randn({32, 32}, onGpu());
        const at::Tensor x = at::zeros({16, 32}, onGpu());
        for (int i = 0; i < 40; ++i) {
          at::Tensor y;
          backend->warmUp([&] { y = at::linear(x, w).relu(); });
          CaptureHints hints;
          hints.draws_random = false;
          const auto graph =
              backend->capture([&] { y = at::linear(x, w).relu(); }, hints);
          x.normal_();
          backend->enterStream();
          graph->replay();
          if (!at::equal(y, at::linear(x, w).relu())) {
            ++wrong;
          }
        }
      } catch (const std::exception& error) {
        ++wrong;
        ADD_FAILURE() << "thread " << t << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaBackend, BackwardPassInsideACapture) {
  const at::Tensor x = at::randn({8, 16}, onGpu());
  const at::Tensor w = at::randn({16, 16}, onGpu());
  const auto body = [&] {
    const at::Tensor leaf = x.detach().requires_grad_();
    const at::Tensor energy = at::linear(leaf, w).tanh().sum();
    energy.backward();
    return leaf.grad();
  };
  at::Tensor gradient;
  backend_->warmUp([&] { gradient = body(); });
  const auto graph = capture([&] { gradient = body(); });
  x.normal_();
  backend_->enterStream();
  graph->replay();
  EXPECT_TRUE(at::equal(gradient, body()));
}

// ---- memory -----------------------------------------------------------------

TEST_F(CudaBackend, KeptOutputsAreNotReusedByLaterCaptures) {
  const at::Tensor x = at::ones({5000}, onGpu());
  std::vector<at::Tensor> kept(20);
  std::vector<std::unique_ptr<CapturedGraph>> graphs;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    graphs.push_back(capture([&] {
      const at::Tensor temporary = x * static_cast<double>(i);
      kept[i] = temporary + 1;
    }));
  }
  backend_->enterStream();
  for (const auto& graph : graphs) {
    graph->replay();
  }
  for (std::size_t i = kept.size(); i-- > 0;) {
    EXPECT_TRUE(
        at::equal(kept[i], at::full_like(x, static_cast<double>(i) + 1)));
  }
  graphs.clear();
  const auto later = capture([&] { x.mul(7); });
  later->replay();
  EXPECT_TRUE(at::equal(kept[3], at::full_like(x, 4)));
}

TEST_F(CudaBackend, GraphsOutliveTheirBackend) {
  const at::Tensor x = at::randn({8, 64}, onGpu());
  const at::Tensor w = at::randn({64, 64}, onGpu());
  at::Tensor y;
  const auto graph = capture([&] { y = at::linear(x, w); });
  backend_.reset();
  c10::cuda::CUDACachingAllocator::emptyCache();
  graph->replay();
  EXPECT_TRUE(at::equal(y, at::linear(x, w)));
}

TEST_F(CudaBackend, DestroyingABackendLeavesOthersWorking) {
  const at::Tensor x = at::randn({64, 512}, onGpu());
  const at::Tensor w = at::randn({512, 512}, onGpu());
  auto other = makeCudaBackend(kGpu);
  at::Tensor y;
  at::Tensor z;
  auto other_graph = other->capture([&] { z = at::linear(x, w); }, {});
  const auto graph = capture([&] { y = at::linear(x, w); });
  z.reset();
  other_graph.reset();
  other.reset();
  at::cuda::clearCublasWorkspaces();
  c10::cuda::CUDACachingAllocator::emptyCache();
  std::vector<at::Tensor> churn;
  for (int i = 0; i < 16; ++i) {
    churn.push_back(at::full({16 << 20}, NAN, onGpu()));
  }
  const at::Tensor expected = at::linear(x, w);
  backend_->enterStream();
  graph->replay();
  EXPECT_TRUE(at::equal(y, expected));
  for (const at::Tensor& tensor : churn) {
    EXPECT_TRUE(tensor.isnan().all().item<bool>());
  }
}

TEST_F(CudaBackend, WorkspacesOfGraphsSurviveClearing) {
  // Split along the long inner dimension, so that the workspace is written.
  const at::Tensor x = at::randn({16, 1 << 16}, onGpu());
  const at::Tensor w = at::randn({16, 1 << 16}, onGpu());
  at::Tensor y;
  const auto graph = capture([&] { y = at::linear(x, w); });
  at::cuda::clearCublasWorkspaces();
  std::vector<at::Tensor> kept(40);
  const auto later = capture([&] {
    for (at::Tensor& tensor : kept) {
      tensor = at::full({1 << 20}, 2, onGpu());
    }
  });
  backend_->enterStream();
  later->replay();
  graph->replay();
  EXPECT_TRUE(at::equal(y, at::linear(x, w)));
  for (const at::Tensor& tensor : kept) {
    EXPECT_TRUE(at::equal(tensor, at::full_like(tensor, 2)));
  }
}

TEST_F(CudaBackend, ManyCapturesDoNotGrowMemory) {
  const at::Tensor x = at::randn({64, 512}, onGpu());
  const at::Tensor w = at::randn({512, 512}, onGpu());
  const auto round = [&] {
    at::Tensor y;
    const auto graph = capture([&] { y = at::linear(x, w).relu() + 1; });
    backend_->enterStream();
    graph->replay();
    EXPECT_TRUE(at::equal(y, at::linear(x, w).relu() + 1));
  };
  for (int i = 0; i < 5; ++i) {
    round();
  }
  const auto freeBytes = [] {
    std::size_t available = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
    return static_cast<std::int64_t>(available);
  };
  const std::size_t pool = backend_->poolBytes();
  const std::int64_t before = freeBytes();
  for (int i = 0; i < 200; ++i) {
    round();
  }
  EXPECT_EQ(backend_->poolBytes(), pool);
  EXPECT_LT(before - freeBytes(), 16 << 20);
}

TEST_F(CudaBackend, ManyBackendsDoNotGrowMemory) {
  const at::Tensor x = at::randn({64, 512}, onGpu());
  const at::Tensor w = at::randn({512, 512}, onGpu());
  const auto round = [&] {
    const auto backend = makeCudaBackend(kGpu);
    at::Tensor y;
    const auto graph = backend->capture([&] { y = at::linear(x, w) + 1; }, {});
    backend->enterStream();
    graph->replay();
    EXPECT_TRUE(at::equal(y, at::linear(x, w) + 1));
  };
  const auto reserved = [] {
    c10::cuda::CUDACachingAllocator::emptyCache();
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0)
        .reserved_bytes[0]
        .current;
  };
  round();
  const auto before = reserved();
  const std::size_t workspaces =
      at::cuda::cublas_handle_stream_to_workspace().map.size();
  for (int i = 0; i < 50; ++i) {
    round();
  }
  EXPECT_LE(reserved(), before);
  EXPECT_EQ(at::cuda::cublas_handle_stream_to_workspace().map.size(),
            workspaces);
}

}  // namespace
}  // namespace pcg
