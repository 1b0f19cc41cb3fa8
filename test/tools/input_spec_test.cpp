#include "tools/pcg-run/input_spec.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tools/pcg-opt/diagnostics.h"

namespace pcg::run {
namespace {

using c10::IValue;
using c10::TypePtr;
using testing::HasSubstr;

const c10::Device kCpu(c10::kCPU);

IValue make(const std::string& text, const TypePtr& type) {
  return InputSpec::parse(text).make(0, type, kCpu);
}

at::Tensor tensor(const std::string& text) {
  return make(text, c10::TensorType::get()).toTensor();
}

std::string error(opt::ExitCode code, const std::function<void()>& function) {
  try {
    function();
  } catch (const opt::ToolError& failure) {
    EXPECT_EQ(failure.code(), code) << failure.what();
    return failure.where().file + ": " + failure.what();
  }
  return "(no error)";
}

std::string syntaxError(const std::string& text) {
  return error(opt::kBadUsage, [&] { InputSpec::parse(text); });
}

std::string misfit(const std::string& text, const TypePtr& type) {
  return error(opt::kBadInput, [&] { make(text, type); });
}

TEST(InputSpec, TensorsHaveTheTypeAndSizesThatAreWritten) {
  for (const auto& [text, type, sizes] : std::vector<
           std::tuple<const char*, c10::ScalarType, std::vector<int64_t>>>{
           {"f64[2,3]", at::kDouble, {2, 3}},
           {"f32[1, 3, 2]", at::kFloat, {1, 3, 2}},
           {"f16[4]", at::kHalf, {4}},
           {"bf16[4]", at::kBFloat16, {4}},
           {"i64[0]", at::kLong, {0}},
           {"i32[2]", at::kInt, {2}},
           {"i16[2]", at::kShort, {2}},
           {"i8[2]", at::kChar, {2}},
           {"u8[2]", at::kByte, {2}},
           {"bool[]", at::kBool, {}},
           {"c64[2]", at::kComplexFloat, {2}},
           {"c128[2]", at::kComplexDouble, {2}}}) {
    const at::Tensor made = tensor(text);
    EXPECT_EQ(made.scalar_type(), type) << text;
    EXPECT_EQ(made.sizes(), at::IntArrayRef(sizes)) << text;
  }
}

TEST(InputSpec, OneSeedMakesOneValue) {
  const InputSpec spec = InputSpec::parse("[f32[8], f32[8]]");
  const TypePtr type = c10::ListType::create(c10::TensorType::get());
  const auto made = [&](std::uint64_t seed) {
    at::manual_seed(seed);
    return spec.make(0, type, kCpu).toTensorVector();
  };
  EXPECT_TRUE(made(1)[0].equal(made(1)[0]));
  EXPECT_FALSE(made(1)[0].equal(made(2)[0]));
  EXPECT_FALSE(made(1)[0].equal(made(1)[1]));
}

TEST(InputSpec, RangesBoundTheValues) {
  const at::Tensor ints = tensor("i32[1000](-3,4)");
  EXPECT_EQ(ints.min().item<int>(), -3);
  EXPECT_EQ(ints.max().item<int>(), 3);
  const at::Tensor floats = tensor("f64[1000](2.5,3)");
  EXPECT_GE(floats.min().item<double>(), 2.5);
  EXPECT_LT(floats.max().item<double>(), 3);
  EXPECT_TRUE(tensor("f32[4](0.5)").equal(at::full({4}, 0.5F)));
  EXPECT_TRUE(tensor("bool[2](1)").equal(at::ones({2}, at::kBool)));
  EXPECT_EQ(tensor("u8[1000](250,256)").max().item<int>(), 255);
}

TEST(InputSpec, ValuesTakeTheTypeThatTheMethodDeclares) {
  const TypePtr number = c10::FloatType::get();
  EXPECT_EQ(make("3", c10::IntType::get()).toInt(), 3);
  EXPECT_EQ(make("3", number).toDouble(), 3.0);
  EXPECT_EQ(make("-2.5e1", number).toDouble(), -25.0);
  EXPECT_EQ(make("True", c10::BoolType::get()).toBool(), true);
  EXPECT_EQ(make("'a\\'b'", c10::StringType::get()).toStringRef(), "a'b");
  EXPECT_TRUE(make("None", c10::OptionalType::create(number)).isNone());
  EXPECT_EQ(make("2", c10::OptionalType::create(number)).toDouble(), 2.0);
  EXPECT_EQ(make("2", c10::NumberType::get()).toInt(), 2);
  EXPECT_EQ(make("\"cuda:1\"", c10::DeviceObjType::get()).toDevice(),
            c10::Device("cuda:1"));
  EXPECT_EQ(make("[1, 2.5,]", c10::ListType::create(number)).toDoubleVector(),
            (std::vector<double>{1, 2.5}));
  EXPECT_EQ(make("[]", c10::ListType::ofInts()).toIntVector().size(), 0U);
  const IValue pair = make(
      "(f32[2], (4,))",
      c10::TupleType::create({c10::TensorType::get(),
                              c10::TupleType::create({c10::IntType::get()})}));
  EXPECT_EQ(pair.toTupleRef().elements()[1].toTupleRef().elements()[0].toInt(),
            4);
  EXPECT_EQ(make("(4)", c10::IntType::get()).toInt(), 4);
  const IValue dict =
      make("{\"a\": 1, 'b': 2}",
           c10::DictType::create(c10::StringType::get(), number));
  EXPECT_EQ(dict.toGenericDict().at("b").toDouble(), 2.0);
}

TEST(InputSpec, MistakesAreNamedWithTheirColumn) {
  EXPECT_THAT(syntaxError(""), HasSubstr("column 1: expected a value"));
  EXPECT_THAT(syntaxError("f31[2]"), HasSubstr("did you mean 'f32'?"));
  EXPECT_THAT(syntaxError("f32[2"), HasSubstr("column 6: expected ','"));
  EXPECT_THAT(syntaxError("f32[-1]"), HasSubstr("column 5: expected a size"));
  EXPECT_THAT(syntaxError("f32[2,]"), HasSubstr("expected a size"));
  EXPECT_THAT(syntaxError("f32[2](1"), HasSubstr("expected ')'"));
  EXPECT_THAT(syntaxError("f32[2](2,1)"), HasSubstr("less than the upper"));
  EXPECT_THAT(syntaxError("f32[2](1,2,3)"), HasSubstr("a lower and an upper"));
  EXPECT_THAT(syntaxError("i8[2](0,200)"),
              HasSubstr("expected integers from -128 to 127"));
  EXPECT_THAT(syntaxError("i64[2](0.5)"), HasSubstr("expected an integer"));
  EXPECT_THAT(syntaxError("[1 2]"), HasSubstr("column 4: expected ',' or ']'"));
  EXPECT_THAT(syntaxError("(1,"), HasSubstr("column 4: expected a value"));
  EXPECT_THAT(syntaxError("{1, 2}"), HasSubstr("expected ':'"));
  EXPECT_THAT(syntaxError("\"a"), HasSubstr("at the end of the string"));
  EXPECT_THAT(syntaxError("word"), HasSubstr("expected a value such as"));
  EXPECT_THAT(syntaxError("3 4"), HasSubstr("expected the end, found '4'"));
  EXPECT_THAT(syntaxError("@"), HasSubstr("expected a file name"));
  EXPECT_THAT(syntaxError("*[1]"), HasSubstr("the file of a tuple or a list"));
  EXPECT_THAT(syntaxError(std::string(100000, '[')),
              HasSubstr("nest more than 64 deep"));
}

TEST(InputSpec, WhatDoesNotFitIsNamed) {
  const TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  EXPECT_THAT(misfit("3", c10::TensorType::get()),
              HasSubstr("expected Tensor, found an int"));
  EXPECT_THAT(misfit("[f32[1], 2]", tensors),
              HasSubstr("[1]: expected Tensor, found an int"));
  EXPECT_THAT(misfit("0.5", c10::IntType::get()),
              HasSubstr("expected int, found a float"));
  EXPECT_THAT(misfit("(1,)", c10::TupleType::create(
                                 {c10::IntType::get(), c10::IntType::get()})),
              HasSubstr("expected Tuple[int, int], found a tuple of 1"));
  EXPECT_THAT(misfit("'gpu'", c10::DeviceObjType::get()),
              HasSubstr("expected a device such as cuda:0"));
  EXPECT_THAT(misfit("f32[999999999999,9999999]", c10::TensorType::get()),
              HasSubstr("--input='f32["));
}

class SavedInputs : public testing::Test {
 protected:
  SavedInputs() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pcg-run-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SavedInputs() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string save(const std::string& name, const IValue& value) const {
    const std::vector<char> bytes = torch::jit::pickle_save(value);
    return write(name, std::string(bytes.begin(), bytes.end()));
  }

  std::string folder_;
};

TEST_F(SavedInputs, AreCopiedForEachCall) {
  const at::Tensor saved = at::arange(6.0).view({2, 3});
  const InputSpec spec = InputSpec::parse("@" + save("t.pt", saved));
  const auto made = [&] {
    return spec.make(0, c10::TensorType::get(), kCpu).toTensor();
  };
  made().zero_();
  EXPECT_TRUE(made().equal(saved));
  EXPECT_EQ(spec.argumentCount(), 1U);
}

TEST_F(SavedInputs, AStarMakesEachElementAnArgument) {
  const std::string path =
      save("pair.pt", c10::ivalue::Tuple::create({at::ones({2}), IValue(4)}));
  const InputSpec spec = InputSpec::parse("*@" + path);
  ASSERT_EQ(spec.argumentCount(), 2U);
  EXPECT_EQ(spec.make(1, c10::IntType::get(), kCpu).toInt(), 4);
  EXPECT_THAT(error(opt::kBadInput,
                    [&] { spec.make(1, c10::StringType::get(), kCpu); }),
              HasSubstr("[1]: expected str, found an int"));
}

TEST_F(SavedInputs, FilesThatHoldNoneAreNamed) {
  const auto fileError = [](const std::string& path) {
    return error(opt::kBadInput, [&] { InputSpec::parse("@" + path); });
  };
  EXPECT_THAT(fileError(folder_ + "/none.pt"), HasSubstr("cannot be opened"));
  EXPECT_THAT(fileError(folder_), HasSubstr("is a directory"));
  EXPECT_THAT(fileError(write("text.pt", "hello")),
              HasSubstr("expected what torch.save writes"));
  const std::vector<char> bytes = torch::jit::pickle_save(at::ones({64}));
  const std::string whole(bytes.begin(), bytes.end());
  for (std::size_t size = 4; size < whole.size(); size += 37) {
    EXPECT_THAT(fileError(write("cut.pt", whole.substr(0, size))),
                HasSubstr("truncated or damaged"));
  }
}

}  // namespace
}  // namespace pcg::run
