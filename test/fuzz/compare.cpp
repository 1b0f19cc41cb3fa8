#include "test/fuzz/compare.h"

#include <ATen/ATen.h>

#include <cstring>
#include <sstream>
#include <unordered_map>

namespace pcg::fuzz {
namespace {

using c10::IValue;

// A value that memory or identity can be shared with.
struct Place {
  std::string name;
  const void* object = nullptr;
  const void* storage = nullptr;  // of a tensor
  std::int64_t offset = 0;        // in bytes
};

bool sameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.detach().contiguous();
  const at::Tensor right = b.detach().contiguous();
  if (std::memcmp(left.const_data_ptr(), right.const_data_ptr(),
                  left.nbytes()) == 0) {
    return true;
  }
  if (!a.is_floating_point())
    return false;
  // Zeros of either sign differ in their bits and are told apart.
  const at::Tensor bits_equal =
      left.view(left.element_size() == 8 ? at::kLong : at::kInt)
          .eq(right.view(right.element_size() == 8 ? at::kLong : at::kInt));
  return bits_equal.logical_or(left.isnan().logical_and(right.isnan()))
      .all()
      .item<bool>();
}

std::string shapeOf(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.scalar_type() << tensor.sizes() << " strides "
      << tensor.strides() << (tensor.requires_grad() ? " requires_grad" : "")
      << (tensor.is_leaf() ? "" : " with history");
  return out.str();
}

std::string firstValues(const at::Tensor& tensor) {
  std::ostringstream out;
  const at::Tensor flat = tensor.detach().to(at::kDouble).reshape({-1});
  out << '[';
  for (std::int64_t i = 0; i < flat.numel() && i < 12; ++i)
    out << (i == 0 ? "" : ", ") << flat[i].item<double>();
  out << (flat.numel() > 12 ? ", ...]" : "]");
  return out.str();
}

class Comparison {
 public:
  Difference run(const World& expected, const World& found,
                 bool with_aliasing) {
    const c10::InferenceMode as_created(false);
    const at::NoGradGuard no_grad;
    if (expected.size() != found.size())
      return {Failure::kStructure, "worlds of different size"};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      Difference difference =
          visit(expected[i].first, expected[i].second, found[i].second);
      if (difference.failure != Failure::kNone)
        return difference;
    }
    return with_aliasing ? aliasing() : Difference();
  }

 private:
  static Difference differ(Failure failure, const std::string& name,
                           const std::string& expected,
                           const std::string& found) {
    return {failure, name + ": expected " + expected + ", found " + found};
  }

  Difference visit(const std::string& name, const IValue& expected,
                   const IValue& found) {
    if (expected.tagKind() != found.tagKind()) {
      return differ(Failure::kStructure, name, expected.tagKind(),
                    found.tagKind());
    }
    if (expected.isTensor())
      return tensors(name, expected.toTensor(), found.toTensor());
    if (expected.isTuple()) {
      return sequences(name, expected.toTupleRef().elements().vec(),
                       found.toTupleRef().elements().vec());
    }
    if (expected.isList()) {
      add(name, expected, found);
      return sequences(name, expected.toListRef().vec(),
                       found.toListRef().vec());
    }
    if (expected.isGenericDict()) {
      add(name, expected, found);
      std::vector<IValue> a, b;
      for (const auto& item : expected.toGenericDict()) {
        a.push_back(item.key());
        a.push_back(item.value());
      }
      for (const auto& item : found.toGenericDict()) {
        b.push_back(item.key());
        b.push_back(item.value());
      }
      return sequences(name, a, b);
    }
    const bool both_nan = expected.isDouble() &&
                          expected.toDouble() != expected.toDouble() &&
                          found.toDouble() != found.toDouble();
    if (!both_nan && expected != found) {
      std::ostringstream a, b;
      a << expected;
      b << found;
      return differ(Failure::kValues, name, a.str(), b.str());
    }
    return {};
  }

  Difference sequences(const std::string& name, const std::vector<IValue>& a,
                       const std::vector<IValue>& b) {
    if (a.size() != b.size()) {
      return differ(Failure::kStructure, name,
                    std::to_string(a.size()) + " elements",
                    std::to_string(b.size()));
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      Difference difference =
          visit(name + "[" + std::to_string(i) + "]", a[i], b[i]);
      if (difference.failure != Failure::kNone)
        return difference;
    }
    return {};
  }

  Difference tensors(const std::string& name, const at::Tensor& expected,
                     const at::Tensor& found) {
    if (expected.defined() != found.defined()) {
      return differ(Failure::kStructure, name,
                    expected.defined() ? "a tensor" : "an undefined tensor",
                    found.defined() ? "a tensor" : "an undefined tensor");
    }
    if (!expected.defined())
      return {};
    add(name, expected, found);
    const std::string a = shapeOf(expected);
    const std::string b = shapeOf(found);
    if (a != b)
      return differ(Failure::kLayout, name, a, b);
    if (!sameBits(expected, found)) {
      return differ(Failure::kValues, name, a + " " + firstValues(expected),
                    firstValues(found));
    }
    return {};
  }

  void add(const std::string& name, const IValue& expected,
           const IValue& found) {
    expected_.push_back(placeOf(name, expected));
    found_.push_back(placeOf(name, found));
  }

  static Place placeOf(const std::string& name, const IValue& value) {
    Place place{name, value.internalToPointer(), nullptr, 0};
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      place.storage = tensor.storage().unsafeGetStorageImpl();
      place.offset = tensor.storage_offset() *
                     static_cast<std::int64_t>(tensor.element_size());
    }
    return place;
  }

  Difference aliasing() const {
    std::unordered_map<const void*, std::size_t> firsts[2][2];
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      std::string texts[2];
      for (const bool right : {false, true}) {
        const std::vector<Place>& places = right ? found_ : expected_;
        const Place& place = places[i];
        const std::size_t object =
            firsts[right][0].try_emplace(place.object, i).first->second;
        if (object != i)
          texts[right] += " is " + places[object].name;
        if (place.storage == nullptr)
          continue;
        const std::size_t sharing =
            firsts[right][1].try_emplace(place.storage, i).first->second;
        if (sharing != i) {
          texts[right] += " shares memory with " + places[sharing].name +
                          " at " +
                          std::to_string(place.offset - places[sharing].offset);
        }
      }
      if (texts[0] != texts[1]) {
        for (std::string& text : texts)
          text = text.empty() ? " alone" : text;
        return {Failure::kAliasing, expected_[i].name + ": expected" +
                                        texts[0] + ", found" + texts[1]};
      }
    }
    return {};
  }

  std::vector<Place> expected_;
  std::vector<Place> found_;
};

void collect(const IValue& value, std::vector<at::Tensor>& out) {
  if (value.isTensor()) {
    for (const at::Tensor& known : out) {
      if (known.is_same(value.toTensor()))
        return;
    }
    if (value.toTensor().defined())
      out.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const IValue& element : value.toTupleRef().elements())
      collect(element, out);
  } else if (value.isList()) {
    for (const IValue& element : value.toListRef())
      collect(element, out);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict())
      collect(item.value(), out);
  }
}

}  // namespace

const char* toString(Failure failure) {
  switch (failure) {
    case Failure::kNone:
      return "none";
    case Failure::kText:
      return "text that does not compile";
    case Failure::kCompiler:
      return "no compilation";
    case Failure::kRefused:
      return "refused by pcg::partition";
    case Failure::kReport:
      return "two reports";
    case Failure::kOriginal:
      return "original changed";
    case Failure::kError:
      return "exceptions";
    case Failure::kStructure:
      return "structure";
    case Failure::kLayout:
      return "layout";
    case Failure::kValues:
      return "values";
    case Failure::kAliasing:
      return "aliasing";
    case Failure::kRandom:
      return "random numbers";
    case Failure::kCrash:
      return "crash";
    case Failure::kHang:
      break;
  }
  return "no end";
}

Difference compare(const World& expected, const World& found,
                   bool with_aliasing) {
  return Comparison().run(expected, found, with_aliasing);
}

std::vector<at::Tensor> tensorsOf(const World& world) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, value] : world)
    collect(value, tensors);
  return tensors;
}

}  // namespace pcg::fuzz
