// What of the hand-written capture API only a GPU shows: streams, modes,
// synchronization.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pcg/sequence.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

std::atomic<int> device_synchronizations{0};

}  // namespace

// Stands before the one of the CUDA Runtime, to count its calls.
extern "C" cudaError_t cudaDeviceSynchronize() {
  ++device_synchronizations;
  static const auto real = reinterpret_cast<cudaError_t (*)()>(
      dlsym(RTLD_NEXT, "cudaDeviceSynchronize"));
  return real();
}

namespace pcg::test {
namespace {

using c10::cuda::CUDAStream;

at::TensorOptions onGpu() {
  return at::device(at::kCUDA).dtype(at::kFloat);
}

// What follows on `to` comes after what `from` has now.
void order(CUDAStream from, CUDAStream to) {
  at::cuda::CUDAEvent event;
  event.record(from);
  event.block(to);
}

class CaptureApiOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0)
      GTEST_SKIP() << "there is no GPU";
    x_ = at::ones({64}, onGpu());
  }

  float value() const { return x_[0].item<float>(); }

  CUDAGraphSequence sequence_;
  at::Tensor x_;
};

TEST_F(CaptureApiOnGpu, AJoinedSideStreamIsPartOfTheGraph) {
  PiecewiseGraph capture(sequence_);
  const CUDAStream origin = c10::cuda::getCurrentCUDAStream();
  const CUDAStream first = c10::cuda::getStreamFromPool();
  const CUDAStream second = c10::cuda::getStreamFromPool();
  x_.add_(1);
  order(origin, first);  // a chain: origin, first, second, origin
  {
    const c10::cuda::CUDAStreamGuard guard(first);
    x_.mul_(2);
  }
  order(first, second);
  {
    const c10::cuda::CUDAStreamGuard guard(second);
    x_.add_(3);
  }
  order(second, origin);
  no_graph([](at::Tensor& y) { y.add_(1); }, x_);
  order(c10::cuda::getCurrentCUDAStream(), first);  // forked again
  {
    const c10::cuda::CUDAStreamGuard guard(first);
    x_.mul_(2);
  }
  order(first, c10::cuda::getCurrentCUDAStream());
  capture.finish();
  EXPECT_EQ(value(), 16);
  sequence_.replay();
  EXPECT_EQ(value(), 76);
}

TEST_F(CaptureApiOnGpu, AnUnjoinedSideStreamIsNamedWithAdvice) {
  const CUDAStream side = c10::cuda::getStreamFromPool();
  try {
    PiecewiseGraph capture(sequence_);
    order(c10::cuda::getCurrentCUDAStream(), side);
    {
      const c10::cuda::CUDAStreamGuard guard(side);
      x_.mul_(2);
    }
    no_graph([] {});
    FAIL() << "expected a CaptureError";
  } catch (const CaptureError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("stream " + std::to_string(side.id())),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("record an event"), std::string::npos) << text;
  }
  EXPECT_EQ(value(), 1);
  PiecewiseGraph capture(sequence_);
  x_.add_(1);
  capture.finish();
  EXPECT_EQ(value(), 2);
}

TEST_F(CaptureApiOnGpu, ACaptureSynchronizesTheDeviceOnceNotBySegment) {
  const int before = device_synchronizations;
  PiecewiseGraph capture(sequence_);
  for (int i = 0; i < 5; ++i) {
    x_.add_(1);
    no_graph([] {});
  }
  capture.finish();
  EXPECT_EQ(device_synchronizations - before, 1);
  sequence_.replay();
  EXPECT_EQ(device_synchronizations - before, 1);
}

TEST_F(CaptureApiOnGpu, AUserStreamCanBeCapturedOn) {
  const CUDAStream mine = c10::cuda::getStreamFromPool();
  for (const auto mode :
       {CaptureErrorMode::kThreadLocal, CaptureErrorMode::kGlobal,
        CaptureErrorMode::kRelaxed}) {
    CUDAGraphSequence sequence;
    x_.fill_(1);
    PiecewiseGraph capture(sequence, {mine.unwrap(), mode, nullptr, true});
    EXPECT_EQ(c10::cuda::getCurrentCUDAStream(), mine);
    x_.add_(1);
    no_graph(
        [&](at::Tensor& y) {
          EXPECT_NE(c10::cuda::getCurrentCUDAStream(), mine);
          y.mul_(2);
        },
        x_);
    x_.add_(1);
    capture.finish();
    EXPECT_EQ(value(), 5);
    sequence.replay();
    EXPECT_EQ(value(), 13);
  }
}

TEST_F(CaptureApiOnGpu, InputsAndReplaysMayUseAnyStream) {
  PiecewiseGraph capture(sequence_);
  x_.add_(1);
  no_graph([](at::Tensor& y) { y.mul_(2); }, x_);
  capture.finish();
  for (int i = 0; i < 20; ++i) {
    const CUDAStream stream = c10::cuda::getStreamFromPool();
    const c10::cuda::CUDAStreamGuard guard(stream);
    sequence_.replay();
  }
  sequence_.replay();
  double expected = 4;
  for (int i = 0; i < 21; ++i)
    expected = (expected + 1) * 2;
  c10::cuda::device_synchronize();
  EXPECT_EQ(value(), static_cast<float>(expected));
}

TEST_F(CaptureApiOnGpu, OtherThreadsWorkWhileACaptureLasts) {
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread other([&] {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    while (!stop) {
      const at::Tensor y = at::ones({1 << 20}, onGpu()) + 1;
      ASSERT_EQ(y[0].item<float>(), 2);
      ++rounds;
    }
  });
  for (int i = 0; i < 20; ++i) {
    CUDAGraphSequence sequence;
    PiecewiseGraphOptions options;
    options.draws_random = false;
    PiecewiseGraph capture(sequence, options);
    for (int step = 0; step < 20; ++step) {
      x_.copy_(x_ + 1);
      no_graph([] {});
    }
    capture.finish();
  }
  stop = true;
  other.join();
  EXPECT_EQ(value(), 401);
  EXPECT_GT(rounds, 0);
}

TEST_F(CaptureApiOnGpu, PinnedHostMemoryMayBeCopiedTo) {
  const at::Tensor pinned = at::zeros({64}, at::kFloat).pin_memory();
  PiecewiseGraph capture(sequence_);
  x_.add_(1);
  pinned.copy_(x_, /*non_blocking=*/true);
  capture.finish();
  sequence_.replay();
  c10::cuda::device_synchronize();
  EXPECT_EQ(pinned[0].item<float>(), 3);
}

TEST_F(CaptureApiOnGpu, SequencesSharingAPoolReplayInAnyOrder) {
  CUDAGraphSequence other(sequence_.pool());
  at::Tensor kept;
  at::Tensor more;
  {
    PiecewiseGraph capture(sequence_);
    kept = (x_ * 2).relu() + 1;
    capture.finish();
  }
  {
    PiecewiseGraph capture(other);
    more = (x_ * 3).relu() + 1;
    capture.finish();
  }
  x_.fill_(5);
  other.replay();
  sequence_.replay();
  other.replay();
  EXPECT_EQ(kept[0].item<float>(), 11);
  EXPECT_EQ(more[0].item<float>(), 16);
}

}  // namespace
}  // namespace pcg::test
