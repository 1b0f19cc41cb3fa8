// The hand-written capture API, on the host back end or, in the program of the
// GPU tests, with CUDA graphs.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <pcg/partition.h>
#include <pcg/sequence.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#ifdef PCG_TEST_ON_GPU
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace pcg::test {
namespace {

#ifdef PCG_TEST_ON_GPU
const c10::Device kDevice(c10::kCUDA, 0);
constexpr Backend kBackend = Backend::kCuda;
#else
const c10::Device kDevice(c10::kCPU);
constexpr Backend kBackend = Backend::kHost;
#endif

at::TensorOptions onDevice() {
  return at::device(kDevice).dtype(at::kFloat);
}

float valueOf(const at::Tensor& tensor) {
  return tensor.flatten()[0].item<float>();
}

std::vector<StepReport::Kind> kindsOf(const CUDAGraphSequence& sequence) {
  std::vector<StepReport::Kind> kinds;
  for (const StepReport& step : sequence.report().steps)
    kinds.push_back(step.kind);
  return kinds;
}

constexpr auto kGraph = StepReport::Kind::kGraph;
constexpr auto kEager = StepReport::Kind::kEager;
using Kinds = std::vector<StepReport::Kind>;

template <typename Error, typename Work>
std::string messageOf(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing of the expected type was thrown";
}

#define EXPECT_CONTAINS(text, part)                          \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "the text is: " << (text)

class CaptureApi : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef PCG_TEST_ON_GPU
    if (c10::cuda::device_count() == 0)
      GTEST_SKIP() << "there is no GPU";
    // Handles that libraries make at first use cannot be made in a capture.
    const at::Tensor x = at::ones({2, 2}, onDevice()).requires_grad_();
    at::linear(x, x).sum().backward();
#endif
  }

  // Captures `work` into a sequence of its own.
  template <typename Work>
  void capture(const Work& work) {
    PiecewiseGraph capture(sequence_);
    work();
    capture.finish();
  }

  CUDAGraphSequence sequence_{std::nullopt, kBackend};
};

// ---- placement --------------------------------------------------------------

void clampIfPositive(at::Tensor& x) {
  if (x.sum().item<float>() > 0)
    x.clamp_(-10, 10);
}

TEST_F(CaptureApi, QuickStartReplaysThreeStepsOnNewInput) {
  at::Tensor in = at::ones({4}, onDevice());
  at::Tensor out = at::zeros({4}, onDevice());
  capture([&] {
    out.copy_(in * 2);
    no_graph(clampIfPositive, out);
    out.add_(1);
  });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kGraph, kEager, kGraph}));
  in.fill_(5);
  sequence_.replay();
  EXPECT_EQ(valueOf(out), 11);
  in.fill_(50);
  sequence_.replay();
  EXPECT_EQ(valueOf(out), 11);
  in.fill_(-50);
  sequence_.replay();
  EXPECT_EQ(valueOf(out), -99);
}

TEST_F(CaptureApi, WithoutABreakThereIsOneGraph) {
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] { x.mul_(2).add_(1); });
  EXPECT_EQ(kindsOf(sequence_), Kinds{kGraph});
  EXPECT_EQ(sequence_.report().steps[0].kernels, 2);
}

TEST_F(CaptureApi, GraphsWithoutWorkAreDropped) {
  at::Tensor x = at::ones({4}, onDevice());
  const auto work = [](at::Tensor& y) { y.add_(1); };
  capture([&] {
    no_graph(work, x);
    no_graph(work, x);
    x.mul_(2);
    no_graph(work, x);
  });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kEager, kEager, kGraph, kEager}));
  EXPECT_EQ(valueOf(x), 7);
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 19);
}

TEST_F(CaptureApi, ForceNoGraphSplitsWithoutAnEagerStep) {
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] {
    x.add_(1);
    force_no_graph();
    x.mul_(3);
  });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kGraph, kGraph}));
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 21);
}

TEST_F(CaptureApi, ACaptureIsARealRun) {
  at::Tensor x = at::ones({4}, onDevice());
  float seen = 0;
  at::Tensor y;
  capture([&] {
    y = x + 1;
    no_graph([&seen](const at::Tensor& now) { seen = valueOf(now); }, y);
    x.copy_(y);
  });
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(valueOf(x), 2);
}

TEST_F(CaptureApi, ASecondCaptureAppends) {
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] { x.add_(1); });
  capture([&] { x.mul_(2); });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kGraph, kGraph}));
  EXPECT_EQ(valueOf(x), 4);
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 10);
}

TEST_F(CaptureApi, ReplayingAnEmptySequenceThrows) {
  EXPECT_CONTAINS(messageOf<std::logic_error>([&] { sequence_.replay(); }),
                  "PiecewiseGraph");
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] { x.add_(1); });
  sequence_.reset();
  EXPECT_THROW(sequence_.replay(), std::logic_error);
}

TEST_F(CaptureApi, ThePoolKeepsItsNameOverAReset) {
  const auto name = sequence_.pool();
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] { x.add_(1); });
  sequence_.reset();
  EXPECT_EQ(sequence_.pool(), name);
  capture([&] { x.add_(1); });
  EXPECT_EQ(sequence_.pool(), name);
  CUDAGraphSequence sharing(name, kBackend);
  EXPECT_EQ(sharing.pool(), name);
}

TEST_F(CaptureApi, OutsideACaptureABreakIsACall) {
  at::Tensor x = at::ones({4}, onDevice());
  EXPECT_FALSE(is_in_piecewise_graph());
  const at::Tensor same = no_graph([](const at::Tensor& y) { return y; }, x);
  EXPECT_TRUE(same.is_same(x));
  const HostValue<int> three = no_graph([] { return 3; });
  EXPECT_EQ(three.value(), 3);
  force_no_graph();
  EXPECT_THROW(no_graph([] { throw std::range_error("as is"); }),
               std::range_error);
}

TEST_F(CaptureApi, ANestedBreakIsACall) {
  at::Tensor x = at::ones({4}, onDevice());
  std::vector<bool> inside;
  capture([&] {
    no_graph([x, &inside]() mutable {
      inside.push_back(is_in_piecewise_graph());
      no_graph([](at::Tensor& y) { y.add_(1); }, x);
      force_no_graph();
    });
    x.mul_(2);
  });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kEager, kGraph}));
  EXPECT_FALSE(is_in_piecewise_graph());
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 10);
  EXPECT_EQ(inside, (std::vector<bool>{true, false}));
}

struct Scale {
  float factor = 2;
  void apply(at::Tensor& x) const { x.mul_(factor); }
};

TEST_F(CaptureApi, AnyCallableCanBeABreak) {
  at::Tensor x = at::ones({4}, onDevice());
  const Scale scale;
  const std::function<void(at::Tensor&)> function = [](at::Tensor& y) {
    y.add_(1);
  };
  capture([&] {
    no_graph(&Scale::apply, &scale, x);
    no_graph(function, x);
    NoGraph([](at::Tensor& y, double by) { y.mul_(by); })(x, 10.);
  });
  EXPECT_EQ(valueOf(x), 30);
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 610);
}

TEST_F(CaptureApi, ADisabledBreakIsCaptured) {
  at::Tensor x = at::ones({4}, onDevice());
  const NoGraph add([](at::Tensor& y) { y.add_(1); }, {false, nullptr, "add"});
  capture([&] {
    x.mul_(2);
    add(x);
  });
  EXPECT_EQ(kindsOf(sequence_), Kinds{kGraph});
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 7);
}

TEST_F(CaptureApi, AStubTakesTheFunctionsPlaceOnlyInTheCapture) {
  at::Tensor x = at::ones({4}, onDevice());
  int calls = 0;
  int stubs = 0;
  const auto function = [&calls](const at::Tensor& y) {
    ++calls;
    return y + 1;
  };
  const auto stub = [&stubs](const at::Tensor& y) {
    ++stubs;
    return at::zeros_like(y);
  };
  const NoGraph plus(function, {true, stub, "plus"});
  at::Tensor out;
  capture([&] { out = plus(x) * 2; });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(valueOf(out), 0);
  sequence_.replay();
  EXPECT_EQ(valueOf(out), 4);
  EXPECT_EQ(std::pair(calls, stubs), std::pair(1, 1));
  EXPECT_EQ(sequence_.report().steps[0].name, "plus");
}

TEST_F(CaptureApi, TheBarrierRunsBeforeEachBreakOfTheCaptureOnly) {
  at::Tensor x = at::ones({4}, onDevice());
  std::string order;
  PiecewiseGraphOptions options;
  options.barrier = [&] { order += 'b'; };
  PiecewiseGraph capture(sequence_, options);
  x.add_(1);
  no_graph([&order] { order += 'f'; });
  force_no_graph();
  no_graph([&order] { order += 'f'; });
  capture.finish();
  EXPECT_EQ(order, "bfbf");
  sequence_.replay();
  EXPECT_EQ(order, "bfbfff");
}

// ---- results ----------------------------------------------------------------

TEST_F(CaptureApi, AReturnedTensorIsFilledByEachReplay) {
  at::Tensor x = at::ones({4}, onDevice());
  at::Tensor out;
  capture([&] {
    at::Tensor y =
        no_graph([](const at::Tensor& in) { return in.cumsum(0); }, x);
    out = y + 1;
  });
  x.fill_(10);
  sequence_.replay();
  EXPECT_TRUE(at::equal(out.cpu(), at::tensor({11.f, 21.f, 31.f, 41.f})));
}

TEST_F(CaptureApi, NestedResultsKeepTheirStructure) {
  at::Tensor x = at::ones({4}, onDevice());
  using Nested =
      std::tuple<std::vector<at::Tensor>, std::optional<at::Tensor>,
                 std::map<std::string, at::Tensor>, std::array<at::Tensor, 2>,
                 std::pair<at::Tensor, int>>;
  const auto make = [](const at::Tensor& in) {
    const int half = static_cast<int>(valueOf(in)) / 2;
    return Nested{{in + 1, in + 2},
                  in + 3,
                  {{"four", in + 4}, {"five", in + 5}},
                  {in + 6, at::Tensor()},
                  {in.to(at::kCPU) + 7, half}};
  };
  at::Tensor sum;
  at::Tensor on_cpu;
  std::optional<HostValue<int>> half;
  capture([&] {
    auto [list, maybe, map, array, pair] = no_graph(make, x);
    EXPECT_FALSE(array[1].defined());
    sum =
        list[0] + list[1] + *maybe + map.at("four") + map.at("five") + array[0];
    on_cpu = pair.first;
    half = pair.second;
  });
  EXPECT_EQ(valueOf(sum), 27);
  x.fill_(10);
  sequence_.replay();
  EXPECT_EQ(valueOf(sum), 81);
  EXPECT_TRUE(on_cpu.is_cpu());
  EXPECT_EQ(valueOf(on_cpu), 17);
  EXPECT_EQ(half->value(), 5);
}

TEST_F(CaptureApi, ResultsInAHashMapKeepTheirKeys) {
  at::Tensor x = at::ones({4}, onDevice());
  using Map = std::unordered_map<int, at::Tensor>;
  bool reversed = false;
  const auto make = [&reversed](const at::Tensor& in) {
    Map map;
    for (int i = 0; i < 40; ++i) {
      const int key = reversed ? 39 - i : i;
      map[key] = in * key;
    }
    return map;
  };
  Map out;
  capture([&] {
    for (const auto& [key, value] : no_graph(make, x))
      out[key] = value + 1;
  });
  reversed = true;
  x.fill_(2);
  sequence_.replay();
  for (const auto& [key, value] : out)
    EXPECT_EQ(valueOf(value), static_cast<float>(2 * key + 1));
}

TEST_F(CaptureApi, AResultInAnArgumentsMemoryStaysThere) {
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] {
    at::Tensor head =
        no_graph([](at::Tensor& y) { return y.add_(1).narrow(0, 0, 2); }, x);
    head.mul_(10);
  });
  EXPECT_TRUE(at::equal(x.cpu(), at::tensor({20.f, 20.f, 2.f, 2.f})));
  sequence_.replay();
  EXPECT_TRUE(at::equal(x.cpu(), at::tensor({210.f, 210.f, 3.f, 3.f})));
}

TEST_F(CaptureApi, AResultOfAnotherShapeNamesFunctionAndBothShapes) {
  at::Tensor x = at::ones({4}, onDevice());
  const NoGraph nonzero([](const at::Tensor& y) { return y.nonzero(); },
                        {true, nullptr, "nonzero"});
  at::Tensor out;
  capture([&] { out = nonzero(x) + 1; });
  x[2] = 0;
  const std::string text =
      messageOf<std::runtime_error>([&] { sequence_.replay(); });
  EXPECT_CONTAINS(text, "nonzero");
  EXPECT_CONTAINS(text, "[3, 1]");
  EXPECT_CONTAINS(text, "[4, 1]");
  EXPECT_CONTAINS(sequence_.report().last_error, "step 0");
  x[2] = 1;
  sequence_.replay();
  EXPECT_EQ(out.size(0), 4);
}

TEST_F(CaptureApi, AResultWithAGradientTapeIsRefusedWithAdvice) {
  at::Tensor x = at::ones({4}, onDevice()).requires_grad_();
  EXPECT_CONTAINS(messageOf<CaptureError>([&] {
                    capture([&] {
                      no_graph([](const at::Tensor& y) { return y * 2; }, x);
                    });
                  }),
                  "autograd::Function");
}

TEST_F(CaptureApi, ABreakMustNotExtendATapeInPlace) {
  at::Tensor x = at::ones({4}, onDevice()).requires_grad_();
  EXPECT_CONTAINS(messageOf<CaptureError>([&] {
                    capture([&] {
                      at::Tensor y = x * 2;
                      no_graph([](at::Tensor z) { z.mul_(3); }, y);
                    });
                  }),
                  "autograd::Function");
  EXPECT_TRUE(sequence_.report().steps.empty());
}

TEST_F(CaptureApi, WhatACallerDoesToAResultsShapeIsNoneOfTheBreaks) {
  at::Tensor x = at::ones({4}, onDevice());
  at::Tensor result;
  capture([&] {
    result = no_graph([](const at::Tensor& in) { return in * 2; }, x);
  });
  result.unsqueeze_(0);
  x.fill_(5);
  sequence_.replay();
  EXPECT_EQ(result.sizes(), (at::IntArrayRef{1, 4}));
  EXPECT_EQ(valueOf(result), 10);
}

// ---- host values ------------------------------------------------------------

TEST_F(CaptureApi, AHostValueIsLiveAtEachReplay) {
  at::Tensor x = at::ones({4}, onDevice());
  at::Tensor out = at::zeros({4}, onDevice());
  std::optional<HostValue<double>> total;
  capture([&] {
    total =
        no_graph([](const at::Tensor& y) { return y.sum().item<double>(); }, x);
    no_graph([](at::Tensor& y, double value) { y.fill_(value); }, out, *total);
    out.add_(1);
  });
  EXPECT_EQ(valueOf(out), 5);
  x.fill_(10);
  sequence_.replay();
  EXPECT_EQ(valueOf(out), 41);
  EXPECT_EQ(total->value(), 40);
}

TEST_F(CaptureApi, CapturedCodeCannotFreezeAHostValue) {
  at::Tensor x = at::ones({4}, onDevice());
  EXPECT_CONTAINS(messageOf<CaptureError>([&] {
                    capture([&] {
                      const HostValue<int> two = no_graph([] { return 2; });
                      x.add_(two.value());
                    });
                  }),
                  "frozen()");
  EXPECT_TRUE(sequence_.report().steps.empty());
  EXPECT_EQ(valueOf(x), 1);
  capture([&] {
    const HostValue<int> two = no_graph([] { return 2; });
    x.add_(two.frozen());
  });
  EXPECT_EQ(valueOf(x), 3);
}

// ---- ownership --------------------------------------------------------------

TEST_F(CaptureApi, WhatStepsUseLivesUntilReset) {
  at::Tensor out = at::zeros({4}, onDevice());
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> watched;
  {
    const at::Tensor captured = at::ones({4}, onDevice());
    const at::Tensor passed = at::ones({4}, onDevice());
    watched = {captured.storage().getWeakStorageImpl(),
               passed.storage().getWeakStorageImpl()};
    capture([&] {
      out.add_(captured);
      no_graph([](at::Tensor& y, const at::Tensor& z) { y.add_(z); }, out,
               passed);
    });
  }
  // Memory that the sequence let go would be handed out here.
  std::vector<at::Tensor> others;
  for (int i = 0; i < 64; ++i)
    others.push_back(at::full({4}, 1000, onDevice()));
  sequence_.replay();
  EXPECT_EQ(valueOf(out), 4);
  for (const auto& storage : watched)
    EXPECT_FALSE(storage.expired());
  sequence_.reset();
  for (const auto& storage : watched)
    EXPECT_TRUE(storage.expired());
}

// ---- all or nothing ---------------------------------------------------------

struct Failing {
  const char* where;
  std::function<void(at::Tensor&)> work;
};

TEST_F(CaptureApi, AnExceptionAnywhereLeavesTheSequenceAsItWas) {
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] { x.add_(1); });
  const NoGraph stubbed(
      [](at::Tensor& y) { y.add_(1); },
      {true, [](at::Tensor&) { throw std::range_error("stub"); }, ""});
  const std::vector<Failing> cases{
      {"captured code",
       [](at::Tensor& y) {
         y.add_(1);
         throw std::range_error("captured code");
       }},
      {"a break",
       [](at::Tensor& y) {
         y.add_(1);
         no_graph([] { throw std::range_error("a break"); });
       }},
      {"a stub", [&](at::Tensor& y) { stubbed(y); }},
      {"code behind a break",
       [](at::Tensor& y) {
         no_graph([](at::Tensor& z) { z.add_(1); }, y);
         y.mul_(2);
         throw std::range_error("behind a break");
       }},
  };
  for (const Failing& failing : cases) {
    at::Tensor scratch = at::ones({4}, onDevice());
    EXPECT_THROW(capture([&] { failing.work(scratch); }), std::range_error)
        << failing.where;
    EXPECT_FALSE(is_in_piecewise_graph()) << failing.where;
    EXPECT_EQ(kindsOf(sequence_), Kinds{kGraph}) << failing.where;
    x.fill_(1);
    sequence_.replay();
    EXPECT_EQ(valueOf(x), 2) << failing.where;
    at::Tensor random = at::rand({4}, onDevice());  // draws still work
    CUDAGraphSequence next(sequence_.pool(), kBackend);
    PiecewiseGraph again(next);
    random.mul_(0).add_(1);
    again.finish();
    next.replay();
    EXPECT_EQ(valueOf(random), 1) << failing.where;
  }
}

TEST_F(CaptureApi, ACaptureThatFailedCannotBeFinished) {
  at::Tensor x = at::ones({4}, onDevice());
  PiecewiseGraph capture(sequence_);
  EXPECT_THROW(no_graph([] { throw std::range_error("the cause"); }),
               std::range_error);
  EXPECT_CONTAINS(messageOf<std::logic_error>([&] { capture.finish(); }),
                  "the cause");
  EXPECT_EQ(sequence_.report().last_error, "the cause");
}

TEST_F(CaptureApi, ACaptureThatWasNotFinishedLeavesNothing) {
  at::Tensor x = at::ones({4}, onDevice());
  {
    PiecewiseGraph capture(sequence_);
    x.add_(1);
  }
  EXPECT_TRUE(sequence_.report().steps.empty());
  EXPECT_EQ(valueOf(x), 1);
}

TEST_F(CaptureApi, AnExceptionOfABreakPassesThroughAReplay) {
  at::Tensor x = at::ones({4}, onDevice());
  bool fails = false;
  capture([&] {
    x.add_(1);
    no_graph([&fails] {
      if (fails)
        throw std::range_error("in a replay");
    });
    x.add_(1);
  });
  fails = true;
  EXPECT_THROW(sequence_.replay(), std::range_error);
  EXPECT_EQ(valueOf(x), 4);
  fails = false;
  sequence_.replay();
  EXPECT_EQ(valueOf(x), 6);
}

TEST_F(CaptureApi, HostReadsInCapturedCodeAreRefused) {
  at::Tensor x = at::ones({4}, onDevice());
  EXPECT_THROW(capture([&] { x.add_(x.sum().item<float>()); }), CaptureError);
  EXPECT_EQ(valueOf(x), 1);
  capture([&] { x.add_(1); });
  EXPECT_EQ(valueOf(x), 2);
}

// ---- one user at a time -----------------------------------------------------

TEST_F(CaptureApi, ASequenceHasOneUserAtATime) {
  at::Tensor x = at::ones({4}, onDevice());
  PiecewiseGraph capture(sequence_);
  EXPECT_THROW(PiecewiseGraph again(sequence_), std::logic_error);
  CUDAGraphSequence other(std::nullopt, kBackend);
  EXPECT_THROW(PiecewiseGraph nested(other), std::logic_error);
  EXPECT_THROW(sequence_.replay(), std::logic_error);
  EXPECT_THROW(sequence_.reset(), std::logic_error);
  x.add_(1);
  capture.finish();
  EXPECT_CONTAINS(messageOf<std::logic_error>([&] { capture.finish(); }),
                  "already");
  EXPECT_EQ(valueOf(x), 2);
}

TEST_F(CaptureApi, ThreadsCaptureSequencesOfTheirOwnAtOnce) {
  std::vector<std::thread> threads;
  std::vector<float> results(4);
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      at::Tensor x = at::full({4}, static_cast<double>(i), onDevice());
      CUDAGraphSequence sequence(std::nullopt, kBackend);
      PiecewiseGraph capture(sequence);
      for (int step = 0; step < 10; ++step) {
        x.add_(1);
        no_graph([](at::Tensor& y) { y.add_(valueOf(y) > 0 ? 1 : 0); }, x);
      }
      capture.finish();
      sequence.replay();
      results[i] = valueOf(x);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(results, (std::vector<float>{40, 41, 42, 43}));
}

// ---- modes, gradients, random numbers ---------------------------------------

TEST_F(CaptureApi, ABreakRunsInTheModesOfItsCapture) {
  at::Tensor x = at::ones({4}, onDevice());
  std::vector<bool> seen;
  const auto note = [&seen] { seen.push_back(at::GradMode::is_enabled()); };
  {
    PiecewiseGraph capture(sequence_);
    {
      const at::NoGradGuard no_grad;
      no_graph(note);
    }
    no_graph(note);
    x.detach().add_(1);
    capture.finish();
  }
  {
    const at::NoGradGuard no_grad;
    sequence_.replay();
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  EXPECT_EQ(seen, (std::vector<bool>{false, true, false, true}));
}

struct BrokenBackward : torch::autograd::Function<BrokenBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*,
                            const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::variable_list gradients) {
    at::Tensor halved = no_graph(
        [](const at::Tensor& gradient) {
          return gradient * (gradient.sum().item<float>() > 100 ? 0.5 : 2.);
        },
        gradients[0]);
    return {halved};
  }
};

TEST_F(CaptureApi, BreaksMayStandInABackwardPass) {
  at::Tensor x = at::ones({4}, onDevice()).requires_grad_();
  at::Tensor gradient = at::zeros({4}, onDevice());
  const auto work = [&] {
    const at::Tensor loss = (BrokenBackward::apply(x) * x.detach()).sum();
    gradient.copy_(torch::autograd::grad({loss}, {x})[0]);
  };
  capture(work);
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kGraph, kEager, kGraph}));
  for (const double value : {1., 50.}) {
    {
      const at::NoGradGuard no_grad;
      x.fill_(value);
    }
    sequence_.replay();
    const at::Tensor replayed = gradient.clone();
    work();
    EXPECT_TRUE(at::equal(replayed, gradient)) << value;
  }
}

TEST_F(CaptureApi, AnExceptionInABackwardPassLeavesTheThreadAsItWas) {
  const auto threadsOf = [] {
    return c10::AutogradState::get_tls_state().get_multithreading_enabled();
  };
  struct Throwing : torch::autograd::Function<Throwing> {
    static at::Tensor forward(torch::autograd::AutogradContext*,
                              const at::Tensor& x) {
      return x * 2;
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext*, torch::autograd::variable_list) {
      no_graph([] { throw std::range_error("in a backward pass"); });
      return {};
    }
  };
  at::Tensor x = at::ones({4}, onDevice()).requires_grad_();
  const bool before = threadsOf();
  EXPECT_THROW(capture([&] {
                 const at::Tensor loss = Throwing::apply(x).sum();
                 torch::autograd::grad({loss}, {x});
               }),
               std::exception);
  EXPECT_FALSE(is_in_piecewise_graph());
  EXPECT_EQ(threadsOf(), before);
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  at::Tensor y = at::ones({4}, onDevice());
  capture([&] { y.add_(1); });
  EXPECT_EQ(threadsOf(), before);
  EXPECT_EQ(valueOf(y), 2);
}

TEST_F(CaptureApi, RandomNumbersAreThoseOfEagerCalls) {
  at::Tensor x = at::zeros({64}, onDevice());
  const auto work = [&] {
    x.add_(at::rand({64}, onDevice()));
    no_graph([](at::Tensor& y) { y.add_(at::rand({64}, onDevice())); }, x);
    x.add_(at::rand({64}, onDevice()));
  };
  at::manual_seed(3);
  capture(work);
  sequence_.replay();
  sequence_.replay();
  const at::Tensor replayed = x.clone();
  x.zero_();
  at::manual_seed(3);
  for (int call = 0; call < 3; ++call)
    work();
  EXPECT_TRUE(at::equal(replayed, x));
}

// Forward, a break, backward, a step: with momentum and dropout.
class Training {
 public:
  Training() {
    first_->to(kDevice);
    second_->to(kDevice);
  }

  void step() {
    namespace functional = torch::nn::functional;
    const at::Tensor hidden = functional::dropout(
        at::relu(first_(input)),
        functional::DropoutFuncOptions().p(0.25).training(true));
    const at::Tensor loss = at::mse_loss(second_(hidden), target);
    no_graph(
        [this](const at::Tensor& now) { losses.push_back(now.item<float>()); },
        loss.detach());
    const auto gradients = torch::autograd::grad({loss}, parameters());
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      momentum_[i].mul_(0.9).add_(gradients[i]);
      parameters()[i].sub_(momentum_[i], 0.05);
    }
  }

  std::vector<at::Tensor> parameters() const {
    return {first_->weight, first_->bias, second_->weight, second_->bias};
  }

  at::Tensor input = at::linspace(-1, 1, 8 * 16, onDevice()).view({8, 16});
  at::Tensor target = at::linspace(0, 1, 8 * 4, onDevice()).view({8, 4});
  std::vector<float> losses;

 private:
  torch::nn::Linear first_ = [] {
    at::manual_seed(5);
    return torch::nn::Linear(16, 32);
  }();
  torch::nn::Linear second_{32, 4};
  std::vector<at::Tensor> momentum_ = [this] {
    std::vector<at::Tensor> zeros;
    for (const at::Tensor& parameter : parameters())
      zeros.push_back(at::zeros(parameter.sizes(), onDevice()));
    return zeros;
  }();
};

TEST_F(CaptureApi, FiftyTrainingStepsEqualEagerOnes) {
  Training eager;
  at::manual_seed(7);
  for (int i = 0; i < 50; ++i)
    eager.step();
  Training captured;
  at::manual_seed(7);
  capture([&] { captured.step(); });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kGraph, kEager, kGraph}));
  for (int i = 1; i < 50; ++i)
    sequence_.replay();
  EXPECT_EQ(captured.losses, eager.losses);
  EXPECT_LT(eager.losses.back(), eager.losses.front() * 0.9f);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(at::equal(captured.parameters()[i], eager.parameters()[i]));
}

class AutocastOn {
 public:
  AutocastOn()
      : before_(at::autocast::is_autocast_enabled(kDevice.type())),
        dtype_(at::autocast::get_autocast_dtype(kDevice.type())) {
    at::autocast::set_autocast_enabled(kDevice.type(), true);
    at::autocast::set_autocast_dtype(kDevice.type(), at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastOn() {
    if (at::autocast::decrement_nesting() == 0)
      at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(kDevice.type(), dtype_);
    at::autocast::set_autocast_enabled(kDevice.type(), before_);
  }
  AutocastOn(const AutocastOn&) = delete;
  AutocastOn& operator=(const AutocastOn&) = delete;

 private:
  bool before_;
  at::ScalarType dtype_;
};

TEST_F(CaptureApi, EachReplayCastsWeightsAnewUnderAutocast) {
  const at::Tensor x = at::ones({4, 4}, onDevice());
  at::Tensor weight = at::ones({4, 4}, onDevice()).requires_grad_();
  at::Tensor before;
  at::Tensor eager;
  at::Tensor behind;
  {
    const AutocastOn autocast;
    at::linear(x, weight);  // The cast is in the cache from here on.
    capture([&] {
      before = at::linear(x, weight);
      eager = no_graph(
          [](const at::Tensor& y, const at::Tensor& w) {
            return at::linear(y, w).detach();
          },
          x, weight);
      behind = at::linear(x, weight);
    });
  }
  EXPECT_EQ(before.scalar_type(), at::kBFloat16);
  for (const double value : {7., 3.}) {
    {
      const at::NoGradGuard no_grad;
      weight.fill_(value);
    }
    sequence_.replay();
  }
  for (const at::Tensor& result : {before, eager, behind}) {
    EXPECT_EQ(result.scalar_type(), at::kBFloat16);
    EXPECT_EQ(valueOf(result.detach()), 12);
  }
}

// ---- partitioned modules ----------------------------------------------------

torch::jit::Module partitionedModule(const char* source) {
  torch::jit::Module module("Tested");
  module.define(source);
  PartitionOptions options;
  options.min_segment_size = 1;
  options.backend = kBackend;
  return partition(module, options).module;
}

TEST_F(CaptureApi, APartitionedModuleWithoutBreaksJoinsTheGraph) {
  torch::jit::Module module = partitionedModule(R"(
    def forward(self, x):
        return torch.relu(x * 2.0) + 1.0
  )");
  at::Tensor x = at::ones({4}, onDevice());
  at::Tensor out;
  const at::NoGradGuard no_grad;
  capture([&] { out = module.forward({x}).toTensor() * 10; });
  EXPECT_EQ(kindsOf(sequence_), Kinds{kGraph});
  x.fill_(4);
  sequence_.replay();
  EXPECT_EQ(valueOf(out), 90);
}

TEST_F(CaptureApi, APartitionedModuleWithBreaksRunsInABreak) {
  torch::jit::Module module = partitionedModule(R"(
    def forward(self, x):
        y = torch.relu(x * 2.0) + 1.0
        if bool(y.sum() > 20.0):
            y = y - 1.0
        return y * 3.0
  )");
  at::Tensor x = at::ones({4}, onDevice());
  at::Tensor out;
  const at::NoGradGuard no_grad;
  auto forward = [module](const at::Tensor& y) mutable {
    return module.forward({y}).toTensor();
  };
  for (int i = 0; i < 3; ++i)
    forward(x);
  capture([&] { out = no_graph(forward, x) + 1; });
  EXPECT_EQ(kindsOf(sequence_), (Kinds{kEager, kGraph}));
  for (const float value : {4.f, 1.f, 4.f}) {
    x.fill_(value);
    sequence_.replay();
    EXPECT_EQ(valueOf(out), value == 4 ? 25 : 10);
  }
}

// ---- the report -------------------------------------------------------------

TEST_F(CaptureApi, TheReportNamesStepsAndCountsReplays) {
  at::Tensor x = at::ones({4}, onDevice());
  capture([&] {
    x.add_(1);
    NoGraph([](at::Tensor& y) { y.add_(1); },
            {true, nullptr, "log \"loss\""})(x);
  });
  sequence_.replay();
  const SequenceReport report = sequence_.report();
  EXPECT_EQ(report.replays, 1);
  EXPECT_CONTAINS(report.text(), "step 0: graph, 1 kernels");
  EXPECT_CONTAINS(report.text(), "step 1: eager, log \"loss\"");
  EXPECT_CONTAINS(report.json(), "\"name\": \"log \\\"loss\\\"\"");
  EXPECT_CONTAINS(report.json(), "\"kind\": \"graph\"");
}

TEST_F(CaptureApi, ASequenceWithoutCapturesIsRefused) {
  EXPECT_THROW(CUDAGraphSequence(std::nullopt, Backend::kOff),
               std::invalid_argument);
}

}  // namespace
}  // namespace pcg::test
