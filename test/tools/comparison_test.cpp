#include "tools/pcg-run/comparison.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <limits>

namespace pcg::run {
namespace {

using c10::IValue;
using testing::HasSubstr;

IValue tuple(std::vector<IValue> items) {
  return c10::ivalue::Tuple::create(std::move(items));
}

TEST(Difference, IsEmptyForEqualBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(difference(at::full({2}, nan), at::full({2}, nan)), "");
  EXPECT_EQ(difference(nan, nan), "");
  EXPECT_EQ(difference(IValue(), IValue()), "");
  EXPECT_EQ(difference("a", "a"), "");
  EXPECT_EQ(difference(at::empty({0}), at::empty({0})), "");
  const at::Tensor complex = at::randn({3}, at::kComplexFloat);
  EXPECT_EQ(difference(complex.conj(), complex.clone().conj()), "");
}

TEST(Difference, SaysHowManyElementsDifferAndByHowMuch) {
  const at::Tensor a = at::zeros({4});
  at::Tensor b = a.clone();
  b[1] = 0.25;
  b[2] = -0.5;
  EXPECT_EQ(difference(a, b), "2 of 4 elements differ, by at most 0.5");
  b[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(difference(a, b), HasSubstr("some by an infinity or NaN"));
  EXPECT_EQ(difference(at::zeros({}), -at::zeros({})),
            "1 of 1 element differs, by at most 0");
}

TEST(Difference, SeesTypeSizesAndStrides) {
  EXPECT_THAT(difference(at::zeros({2}), at::zeros({3})),
              HasSubstr("expected Float[2]"));
  EXPECT_THAT(difference(at::zeros({2}), at::zeros({2}, at::kHalf)),
              HasSubstr("found Half[2]"));
  EXPECT_THAT(difference(at::zeros({2, 3}), at::zeros({3, 2}).t()),
              HasSubstr("with strides [1, 2]"));
  EXPECT_THAT(difference(at::zeros({2}), at::zeros({2}).requires_grad_()),
              HasSubstr("requires grad"));
  EXPECT_THAT(difference(at::zeros({2}), at::Tensor()),
              HasSubstr("found none"));
  EXPECT_EQ(difference(1, 1.0), "expected Int, found Double");
  EXPECT_EQ(difference(1, 2), "expected 1, found 2");
}

TEST(Difference, NamesThePlaceInContainers) {
  c10::impl::GenericDict a(c10::StringType::get(), c10::TensorType::get());
  c10::impl::GenericDict b(c10::StringType::get(), c10::TensorType::get());
  a.insert("k", at::zeros({1}));
  b.insert("k", at::ones({1}));
  EXPECT_EQ(difference(tuple({1, a}), tuple({1, b})),
            "[1][k]: 1 of 1 element differs, by at most 1");
  EXPECT_EQ(difference(tuple({1}), tuple({1, 2})),
            "expected 1 elements, found 2");
  a.insert("l", at::zeros({1}));
  EXPECT_THAT(difference(a, b), HasSubstr("keys"));
}

TEST(Difference, ComparesSparseAndQuantizedTensors) {
  at::Tensor dense = at::eye(3);
  at::Tensor other = dense.clone();
  other[1][1] = 2;
  EXPECT_EQ(difference(dense.to_sparse(), dense.to_sparse()), "");
  EXPECT_THAT(difference(dense.to_sparse(), other.to_sparse()),
              HasSubstr("1 of 3 elements differ"));
  const auto quantized = [](const at::Tensor& tensor) {
    return at::quantize_per_tensor(tensor, 0.1, 0, at::kQInt8);
  };
  EXPECT_EQ(difference(quantized(dense), quantized(dense)), "");
  EXPECT_NE(difference(quantized(dense), quantized(other)), "");
}

TEST(CopyOf, KeepsWhatSharesMemoryAndNothingElse) {
  const at::Tensor base = at::arange(6.0);
  const IValue value = tuple({base, base.slice(0, 2), at::ones({1})});
  const IValue copy = copyOf(value);
  EXPECT_EQ(difference(value, copy), "");
  EXPECT_EQ(sharing(copy), "0 0 2");
  copy.toTupleRef().elements()[0].toTensor().fill_(7);
  EXPECT_EQ(copy.toTupleRef().elements()[1].toTensor()[0].item<float>(), 7);
  EXPECT_EQ(base[0].item<float>(), 0);
}

TEST(Sharing, NumbersTheFirstTensorInTheSameMemory) {
  const at::Tensor a = at::zeros({4});
  const at::Tensor b = at::zeros({4});
  EXPECT_EQ(sharing(tuple({a, tuple({b, a.view({2, 2})})})), "0 1 0");
  EXPECT_EQ(sharing(tuple({at::empty({0}), at::empty({0})})), "0 1");
}

TEST(StateDifference, NamesTheAttribute) {
  const auto make = [](double value) {
    torch::jit::Module inner("Inner");
    inner.register_buffer("count", at::full({2}, value));
    torch::jit::Module outer("Outer");
    outer.register_module("inner", inner);
    outer.register_attribute("steps", c10::IntType::get(), 1);
    return outer;
  };
  EXPECT_EQ(stateDifference(make(1), make(1)), "");
  EXPECT_EQ(stateDifference(make(1), make(2)),
            "inner.count: 2 of 2 elements differ, by at most 1");
  torch::jit::Module changed = make(1);
  changed.setattr("steps", 2);
  EXPECT_EQ(stateDifference(make(1), changed), "steps: expected 1, found 2");
}

}  // namespace
}  // namespace pcg::run
