#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/backend.h"

namespace pcg::test {
namespace {

using Body = std::function<at::Tensor(const at::Tensor&)>;

TORCH_LIBRARY(pcg_host_test, library) {
  // Computes past the dispatcher, without a kernel for the CPU alone.
  library.def("add_one(Tensor x) -> Tensor", [](const at::Tensor& x) {
    at::Tensor y = at::empty(x.sizes());
    const auto* from = x.const_data_ptr<float>();
    auto* to = y.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
      to[i] = from[i] + 1;
    return y;
  });
}

// A captured body of one input and one result.
struct Captured {
  at::Tensor input;
  at::Tensor output;
  std::unique_ptr<CapturedGraph> graph;

  // The result for other values of the input.
  at::Tensor operator()(const at::Tensor& values) {
    {
      const at::NoGradGuard no_grad;
      input.copy_(values);
    }
    graph->replay();
    return output.detach().clone();
  }
};

Captured capture(CaptureBackend& backend, const at::Tensor& input,
                 const Body& body) {
  Captured captured;
  captured.input = input;
  CaptureHints hints;
  hints.inputs = {input};
  captured.graph =
      backend.capture([&] { captured.output = body(input); }, hints);
  return captured;
}

// Replays of the body agree with it bit by bit, for inputs of this shape.
void expectReplaysAsEager(const Body& body, at::IntArrayRef shape = {4, 6}) {
  const auto backend = makeHostBackend();
  at::manual_seed(7);
  Captured captured = capture(*backend, at::randn(shape), body);
  for (int round = 0; round < 3; ++round) {
    const at::Tensor values = at::randn(shape);
    at::manual_seed(round);
    const at::Tensor expected = body(values.clone());
    at::manual_seed(round);
    EXPECT_TRUE(at::equal(captured(values), expected));
  }
}

// The text of the refusal, empty where the body was captured.
std::string refusalOf(const Body& body, const at::Tensor& input) {
  try {
    capture(*makeHostBackend(), input, body);
    return "";
  } catch (const CaptureError& error) {
    return error.what();
  }
}

TEST(HostBackend, ReplayWritesIntoTheSameMemory) {
  const auto backend = makeHostBackend();
  Captured captured = capture(*backend, at::ones({3}), [](at::Tensor x) {
    return at::tanh(x * 2).add(1);
  });
  const void* memory = captured.output.const_data_ptr();
  const at::Tensor held = captured.output;
  EXPECT_TRUE(at::equal(captured(at::zeros({3})), at::full({3}, 1.0)));
  EXPECT_EQ(captured.output.const_data_ptr(), memory);
  EXPECT_TRUE(at::equal(held, at::full({3}, 1.0)));
}

TEST(HostBackend, HostScalarKeepsTheValueOfTheCapture) {
  const auto backend = makeHostBackend();
  double scale = 2;
  std::int64_t size = 3;
  Captured captured = capture(*backend, at::ones({3}), [&](at::Tensor x) {
    const at::Tensor wrapped = at::scalar_to_tensor(size);
    return x * scale + wrapped * 10;
  });
  scale = 5;
  size = 7;
  EXPECT_TRUE(at::equal(captured(at::ones({3})), at::full({3}, 32.0)));
}

TEST(HostBackend, ArithmeticOnHostScalarsIsNotRecorded) {
  const auto backend = makeHostBackend();
  const Captured captured = capture(*backend, at::ones({3}), [](at::Tensor x) {
    const at::Tensor n = at::scalar_to_tensor(std::int64_t{3});
    const std::int64_t k = (n + 1).item<std::int64_t>();
    return x.expand({k, 3}).select(0, 1);
  });
  EXPECT_EQ(captured.graph->size(), 0);
}

TEST(HostBackend, ViewsAreNoWork) {
  const auto backend = makeHostBackend();
  const Captured captured =
      capture(*backend, at::ones({2, 3}), [](at::Tensor x) {
        return x.t().reshape({3, 2}).unsqueeze(0).relu();
      });
  EXPECT_EQ(captured.graph->size(), 1);
}

TEST(HostBackend, WritesThroughViewsReachTheirBase) {
  expectReplaysAsEager([](at::Tensor x) {
    at::Tensor y = at::zeros({4, 6});
    y.select(0, 1).copy_(x.select(0, 2));
    y.narrow(1, 2, 2).mul_(3).add_(x.narrow(1, 0, 2));
    return y.t().contiguous() + y.sum();
  });
}

TEST(HostBackend, InputThatIsWrittenChangesOnlyInReplays) {
  const auto backend = makeHostBackend();
  const at::Tensor input = at::ones({3});
  Captured captured = capture(*backend, input, [](at::Tensor x) {
    x.add_(1);
    return x.view({3, 1}).mul_(2);
  });
  EXPECT_TRUE(at::equal(input, at::ones({3})));
  captured.graph->replay();
  EXPECT_TRUE(at::equal(input, at::full({3}, 4.0)));
  captured.graph->replay();
  EXPECT_TRUE(at::equal(input, at::full({3}, 10.0)));
  EXPECT_TRUE(captured.output.is_alias_of(input));
}

TEST(HostBackend, StatisticsOfNormalizationChangeOnlyInReplays) {
  const auto backend = makeHostBackend();
  const at::Tensor x = at::randn({8, 3});
  const at::Tensor mean = at::zeros({3});
  const at::Tensor variance = at::ones({3});
  const at::Tensor expected_mean = mean.clone();
  const at::Tensor expected_variance = variance.clone();
  at::Tensor output;
  CaptureHints hints;
  hints.inputs = {x, mean, variance};
  const auto graph = backend->capture(
      [&] {
        output = at::batch_norm(x, {}, {}, mean, variance, /*training=*/true,
                                0.1, 1e-5, /*cudnn_enabled=*/false);
      },
      hints);
  EXPECT_TRUE(at::equal(mean, expected_mean));
  EXPECT_TRUE(at::equal(variance, expected_variance));
  for (int round = 0; round < 2; ++round) {
    const at::Tensor expected = at::batch_norm(
        x, {}, {}, expected_mean, expected_variance, true, 0.1, 1e-5, false);
    graph->replay();
    EXPECT_TRUE(at::equal(output, expected));
    EXPECT_TRUE(at::equal(mean, expected_mean));
    EXPECT_TRUE(at::equal(variance, expected_variance));
  }
}

TEST(HostBackend, MemoryFilledPastTheDispatcherStartsAfreshEachTime) {
  expectReplaysAsEager([](at::Tensor x) {
    at::Tensor literal = at::empty({1});  // as torch.tensor makes it
    *literal.mutable_data_ptr<float>() = 5;
    at::Tensor read_only = at::empty({1});
    *read_only.mutable_data_ptr<float>() = 3;
    literal.add_(x.sum());
    return literal * read_only;
  });
}

TEST(HostBackend, HostTensorBecomesDeviceMemoryWhereItIsWritten) {
  expectReplaysAsEager([](at::Tensor x) {
    at::Tensor n = at::scalar_to_tensor(2.0) + 1;
    n.add_(x.sum());
    return n * 2;
  });
}

TEST(HostBackend, ListsOfTensors) {
  expectReplaysAsEager([](at::Tensor x) {
    const auto parts = at::split(x, 2);
    std::vector<at::Tensor> sums = at::_foreach_add(parts, 1.0);
    at::_foreach_mul_(sums, parts);
    return at::stack({at::cat(sums), x.unsqueeze(0).squeeze(0)});
  });
}

TEST(HostBackend, ComplexConjugates) {
  expectReplaysAsEager([](at::Tensor x) {
    const at::Tensor z = at::view_as_complex(x.reshape({4, 3, 2}));
    return at::view_as_real((z.conj() * z + z.conj()).resolve_conj());
  });
}

TEST(HostBackend, OutVariantsAndReductionsWithSeveralResults) {
  expectReplaysAsEager([](at::Tensor x) {
    at::Tensor out = at::empty({0});
    at::add_out(out, x, x);
    const auto [values, indices] = at::max(x, 1);
    return at::gather(out, 1, indices.unsqueeze(1)) + values.unsqueeze(1);
  });
}

TEST(HostBackend, NetworkOfCompositeOperators) {
  const at::Tensor weight = at::randn({6, 6});
  const at::Tensor bias = at::randn({6});
  expectReplaysAsEager([&](at::Tensor x) {
    at::Tensor h = at::linear(x, weight, bias);
    h = at::layer_norm(h, {6}, bias, bias);
    h = at::scaled_dot_product_attention(
        h.view({1, 1, 4, 6}), h.view({1, 1, 4, 6}), h.view({1, 1, 4, 6}));
    h = at::softmax(at::matmul(h, weight), -1);
    return at::einsum("bhij,jk->bhik", {h, weight}) + at::norm(x);
  });
}

TEST(HostBackend, RandomNumbersAreThoseOfAnEagerRun) {
  expectReplaysAsEager([](at::Tensor x) {
    const at::Tensor noise = at::randn({4, 6});
    const at::Tensor dropped = at::dropout(x, 0.5, /*train=*/true);
    return noise + dropped * at::rand_like(x) + at::empty({6}).uniform_();
  });
}

TEST(HostBackend, CaptureDrawsNoRandomNumbers) {
  const auto backend = makeHostBackend();
  at::manual_seed(3);
  const at::Tensor expected = at::rand({5});
  at::manual_seed(3);
  capture(*backend, at::ones({2}),
          [](at::Tensor x) { return x + at::rand({2}); });
  EXPECT_TRUE(at::equal(at::rand({5}), expected));
}

// ---- gradients, modes -------------------------------------------------------

// Forces of a small potential: forward and backward in one body.
at::Tensor gradientOf(const at::Tensor& x, const at::Tensor& weight) {
  const at::AutoGradMode grad(true);
  const at::Tensor position = x.detach().requires_grad_(true);
  at::Tensor h = at::layer_norm(at::linear(position, weight), {6});
  h = at::batch_norm(h, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  h = at::max_pool1d(at::gelu(h), 2) * at::std(h);
  h.sigmoid_();
  h = h * 2;
  h.pow_(2);
  const at::Tensor energy = at::logsumexp(h.pow(2), 0).sum();
  return torch::autograd::grad({energy}, {position})[0];
}

TEST(HostBackend, GradientsComputedInsideAreRecorded) {
  const at::Tensor weight = at::randn({6, 6});
  expectReplaysAsEager([&](at::Tensor x) { return gradientOf(x, weight); });
}

TEST(HostBackend, SecondDerivativesComputedInsideAreRecorded) {
  expectReplaysAsEager([](at::Tensor x) {
    const at::AutoGradMode grad(true);
    const at::Tensor position = x.detach().requires_grad_(true);
    const at::Tensor energy = at::softmax(position, 1).pow(3).sum();
    const at::Tensor force =
        torch::autograd::grad({energy}, {position}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true)[0];
    return torch::autograd::grad({force.norm()}, {position})[0];
  });
}

TEST(HostBackend, CaptureInGradModeReplaysInAnyMode) {
  const auto backend = makeHostBackend();
  const at::Tensor weight = at::randn({6, 6}).requires_grad_(true);
  const Body body = [&](at::Tensor x) {
    at::Tensor y = at::linear(x, weight);
    return y.relu_().add_(1);
  };
  Captured captured = capture(*backend, at::randn({2, 6}), body);
  const at::Tensor values = at::randn({2, 6});
  const at::Tensor expected = body(values).detach();
  EXPECT_TRUE(at::equal(captured(values), expected));
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(captured(values * 0), body(values * 0)));
  }
  {
    const c10::InferenceMode inference;
    captured.graph->replay();
  }
  EXPECT_TRUE(at::equal(captured(values), expected));
}

TEST(HostBackend, CaptureInInferenceModeReplaysOutside) {
  const auto backend = makeHostBackend();
  const Body body = [](at::Tensor x) {
    at::Tensor y = at::linear(x, at::ones({6, 6}));
    return y.relu_().add_(1).narrow(0, 0, 1).mul_(2);
  };
  Captured captured;
  {
    const c10::InferenceMode inference;
    captured = capture(*backend, at::randn({2, 6}), body);
  }
  ASSERT_TRUE(captured.output.is_inference());
  for (int round = 0; round < 2; ++round) {
    const at::Tensor values = at::randn({2, 6});
    std::memcpy(captured.input.mutable_data_ptr(), values.const_data_ptr(),
                values.nbytes());
    captured.graph->replay();
    EXPECT_TRUE(at::equal(captured.output, body(values)));
  }
}

TEST(HostBackend, LeafWrittenInPlaceFailsAsEager) {
  EXPECT_THROW(capture(*makeHostBackend(), at::ones({2}).requires_grad_(true),
                       [](at::Tensor x) { return x.add_(1); }),
               c10::Error);
}

TEST(HostBackend, CastsOfAutocastAreRecorded) {
  const at::Tensor weight = at::randn({6, 6});
  const Body body = [&](at::Tensor x) {
    const bool enabled = at::autocast::is_autocast_enabled(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::Tensor y = at::linear(x, weight).softmax(-1);
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::clear_cache();
    return y;
  };
  ASSERT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  expectReplaysAsEager(body);
}

TEST(HostBackend, ForeignOperatorsThatComputeThemselves) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("pcg_host_test::add_one", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  expectReplaysAsEager([&](at::Tensor x) { return op.call(x * 2) * 3; });
}

// ---- refusals ---------------------------------------------------------------

TEST(HostBackend, RefusesWhatACaptureRefuses) {
  const at::Tensor numbers = at::arange(1.0, 5.0).view({2, 2}).add(at::eye(2));
  const at::Tensor integers = at::arange(4);
  struct Case {
    std::string op;
    Body body;
    at::Tensor input;
  };
  const auto sum = [](const at::Tensor& x) { return x.sum(); };
  const std::vector<Case> cases = {
      {"aten::item", [&](at::Tensor x) { return x * sum(x).item(); }, numbers},
      {"aten::is_nonzero",
       [&](at::Tensor x) { return at::is_nonzero(sum(x)) ? x : x + 1; },
       numbers},
      {"aten::equal",
       [](at::Tensor x) { return at::equal(x, x + 1) ? x : x + 1; }, numbers},
      {"aten::allclose",
       [](at::Tensor x) { return at::allclose(x, x + 1) ? x : x + 1; },
       numbers},
      {"aten::nonzero", [](at::Tensor x) { return at::nonzero(x); }, numbers},
      {"aten::argwhere", [](at::Tensor x) { return at::argwhere(x); }, numbers},
      {"aten::where", [](at::Tensor x) { return at::where(x > 1)[0]; },
       numbers},
      {"aten::masked_select",
       [](at::Tensor x) { return at::masked_select(x, x > 1); }, numbers},
      {"aten::index", [](at::Tensor x) { return x.index({x > 1}); }, numbers},
      {"aten::index_put",
       [](at::Tensor x) { return x.index_put({x > 1}, at::ones({2})); },
       numbers},
      {"aten::_unique2",
       [](at::Tensor x) { return std::get<0>(at::_unique2(x)); }, integers},
      {"aten::unique_consecutive",
       [](at::Tensor x) { return std::get<0>(at::unique_consecutive(x)); },
       integers},
      {"aten::bincount", [](at::Tensor x) { return at::bincount(x); },
       integers},
      {"aten::repeat_interleave",
       [](at::Tensor x) { return at::repeat_interleave(x); }, integers},
      {"aten::one_hot", [](at::Tensor x) { return at::one_hot(x); }, integers},
      {"aten::linalg_inv", [](at::Tensor x) { return at::linalg_inv(x); },
       numbers},
      {"aten::to_sparse", [](at::Tensor x) { return x.to_sparse(); }, numbers},
  };
  for (const Case& item : cases) {
    const std::string refusal = refusalOf(item.body, item.input);
    EXPECT_EQ(refusal.rfind(item.op, 0), 0U)
        << "expected " << item.op << ", found '" << refusal << "'";
    EXPECT_GT(refusal.size(), item.op.size() + 5);
  }
}

TEST(HostBackend, HoldsWhatACaptureHolds) {
  const at::Tensor index = at::tensor({2, 0, 1}, at::kLong);
  expectReplaysAsEager([&](at::Tensor x) { return x.index({index}); });
  expectReplaysAsEager(
      [&](at::Tensor x) { return x.index_put({index}, x.select(0, 3)); });
  expectReplaysAsEager([](at::Tensor x) {
    return x.clone().index_put_({x > 0}, at::scalar_to_tensor(-1.0));
  });
  expectReplaysAsEager(
      [](at::Tensor x) { return at::one_hot(x.argmax(1), 6).to(at::kFloat); });
  expectReplaysAsEager([](at::Tensor x) {
    return std::get<0>(at::repeat_interleave(x, 2, 0).sort(1));
  });
  expectReplaysAsEager([](at::Tensor x) {
    return at::masked_fill(x, x > 0, 0.5) + std::get<0>(x.topk(3, 1)).sum();
  });
  expectReplaysAsEager([](at::Tensor x) {
    return std::get<0>(at::linalg_inv_ex(x.narrow(1, 0, 4)));
  });
}

TEST(HostBackend, ScalarsThatOnlyCpuKernelsReadAreNoRefusal) {
  expectReplaysAsEager([](at::Tensor x) {
    return at::masked_fill(x, x > 0, x.sum()) + at::clamp(x, x.min(), x.max());
  });
}

TEST(HostBackend, RefusesToWriteMemoryItDoesNotKnow) {
  const at::Tensor unknown = at::ones({3});
  const auto backend = makeHostBackend();
  EXPECT_THROW(capture(*backend, at::ones({3}),
                       [&](at::Tensor x) { return unknown.add_(x); }),
               CaptureError);
  EXPECT_THROW(capture(*backend, at::ones({3}),
                       [&](at::Tensor x) { return x + unknown.add_(1); }),
               CaptureError);
  EXPECT_TRUE(at::equal(unknown, at::ones({3})));
}

TEST(HostBackend, RefusalRollsBackAndTheNextCaptureWorks) {
  const auto backend = makeHostBackend();
  const at::Tensor input = at::ones({3});
  at::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  EXPECT_THROW(capture(*backend, input,
                       [](at::Tensor x) {
                         x.add_(at::rand({3}));
                         return x * x.sum().item();
                       }),
               CaptureError);
  EXPECT_TRUE(at::equal(input, at::ones({3})));
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
  EXPECT_EQ(backend->poolBytes(), 0U);
  EXPECT_EQ(input.sum().item<float>(), 3);  // Nothing is refused any more.

  Captured captured =
      capture(*backend, input, [](at::Tensor x) { return x * 2; });
  EXPECT_TRUE(at::equal(captured(at::ones({3})), at::full({3}, 2.0)));
}

TEST(HostBackend, ExceptionsOfTheBodyPassThrough) {
  const auto backend = makeHostBackend();
  const at::Tensor input = at::ones({3});
  EXPECT_THROW(capture(*backend, input,
                       [](at::Tensor x) -> at::Tensor {
                         x.add_(1);
                         throw std::logic_error("no");
                       }),
               std::logic_error);
  EXPECT_THROW(
      capture(*backend, input, [](at::Tensor x) { return x.view({7}); }),
      c10::Error);
  EXPECT_TRUE(at::equal(input, at::ones({3})));
  EXPECT_EQ(input.sum().item<float>(), 3);
}

// ---- resources --------------------------------------------------------------

TEST(HostBackend, OtherThreadsAreNotRecorded) {
  const auto backend = makeHostBackend();
  const Captured captured = capture(*backend, at::ones({3}), [](at::Tensor x) {
    std::thread([] { at::ones({4}).sum().item(); }).join();
    return x + 1;
  });
  EXPECT_EQ(captured.graph->size(), 1);
}

TEST(HostBackend, PoolHoldsTheMemoryOfLiveGraphs) {
  auto backend = makeHostBackend();
  Captured captured = capture(*backend, at::ones({100}), [](at::Tensor x) {
    return (x + 1).view({10, 10}).mul(2).t();
  });
  EXPECT_EQ(backend->poolBytes(), 800U);
  captured.graph.reset();
  EXPECT_EQ(backend->poolBytes(), 0U);

  captured =
      capture(*backend, at::ones({3}), [](at::Tensor x) { return x + 1; });
  backend.reset();
  EXPECT_TRUE(at::equal(captured(at::ones({3})), at::full({3}, 2.0)));
}

TEST(HostBackend, IntermediateMemoryIsNotReused) {
  expectReplaysAsEager([](at::Tensor x) {
    for (int i = 0; i < 20; ++i)
      x = at::tanh(x + i).mul(1.5);
    return x;
  });
}

TEST(HostBackend, CopiesAndAllocates) {
  const auto backend = makeHostBackend();
  EXPECT_EQ(backend->device(), c10::Device(c10::kCPU));
  const at::Tensor from = at::arange(6);
  at::DataPtr slot = backend->allocate(from.nbytes());
  backend->copy({{slot.get(), from.const_data_ptr(), from.nbytes()},
                 {nullptr, nullptr, 0}});
  EXPECT_EQ(std::memcmp(slot.get(), from.const_data_ptr(), from.nbytes()), 0);
}

TEST(HostBackend, WarmUpRunsTheBodyEagerly) {
  const auto backend = makeHostBackend();
  double read = 0;
  backend->warmUp([&] { read = at::ones({3}).sum().item<double>(); });
  EXPECT_EQ(read, 3);
  EXPECT_THROW(backend->warmUp([] { throw std::logic_error("no"); }),
               std::logic_error);
}

// Foreign allocators hand out several storages over the same bytes.
TEST(HostBackend, CapturesLeaveMemoryThatTwoStoragesCoverUnchanged) {
  std::vector<float> memory{1, 2, 3, 4};
  const at::Tensor one = at::from_blob(memory.data(), {4});
  const at::Tensor other = at::from_blob(memory.data(), {4});
  CaptureHints hints;
  hints.inputs = {one, other};
  const auto graph = makeHostBackend()->capture(
      [&] {
        one.add_(1);
        other.mul_(2);
      },
      hints);
  EXPECT_EQ(memory, (std::vector<float>{1, 2, 3, 4}));
  graph->replay();
  EXPECT_EQ(memory, (std::vector<float>{4, 6, 8, 10}));
}

}  // namespace
}  // namespace pcg::test
