#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pcg::fuzz {

/// What a partitioned module did otherwise than its original.
enum class Failure {
  kNone,
  kText,       ///< The text is no TorchScript: the fuzzer's fault.
  kCompiler,   ///< torch's compiler gave up on it: see lockstep.h.
  kRefused,    ///< pcg::partition threw.
  kReport,     ///< Partitioning twice gave two reports.
  kOriginal,   ///< pcg::partition changed its argument.
  kError,      ///< One side raised, or with another class or message.
  kStructure,  ///< Kinds or lengths of values.
  kLayout,     ///< Dtype, shape, strides or gradient flags of a tensor.
  kValues,     ///< Bits of a tensor, or a host value.
  kAliasing,   ///< Which values share memory or are one object.
  kRandom,     ///< State of the default generator.
  kCrash,      ///< The process ended.
  kHang,       ///< No sign of life for too long.
};

const char* toString(Failure failure);

/// Empty where nothing differed: `kNone`.
struct Difference {
  Failure failure = Failure::kNone;
  std::string text;
};

/// Everything that the caller can reach on one side, with names for messages.
/// Both sides name equal things in the same order.
using World = std::vector<std::pair<std::string, c10::IValue>>;

/// Compares two worlds. Tensors are compared bitwise (any NaN equals any NaN)
/// with dtype, shape, strides, requires_grad and is_leaf; lists and dicts with
/// their order. Then, over all of a world's values together: which tensors
/// share a storage, at what distance from each other, and which lists, dicts
/// and tensors are one object. Not compared, since a caller learns nothing from
/// it: addresses, and the offset of a tensor that shares its storage with none.
Difference compare(const World& expected, const World& found,
                   bool with_aliasing);

/// The tensors of a world in the order in which compare() visits them, each
/// object once.
std::vector<at::Tensor> tensorsOf(const World& world);

}  // namespace pcg::fuzz
