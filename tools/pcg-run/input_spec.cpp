#include "tools/pcg-run/input_spec.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "tools/pcg-opt/archive.h"
#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/error_text.h"
#include "tools/pcg-opt/suggest.h"
#include "tools/pcg-run/comparison.h"

namespace pcg::run {

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;
using opt::ToolError;

namespace {

constexpr int kDeepest = 64;

struct TensorSpec {
  c10::ScalarType type = c10::kFloat;
  std::vector<std::int64_t> sizes;
  std::vector<double> range;  // none, one value, or lower and upper bound
};

const std::vector<std::pair<std::string, c10::ScalarType>>& tensorTypes() {
  static const std::vector<std::pair<std::string, c10::ScalarType>> types = {
      {"f64", c10::kDouble},       {"f32", c10::kFloat},
      {"f16", c10::kHalf},         {"bf16", c10::kBFloat16},
      {"i64", c10::kLong},         {"i32", c10::kInt},
      {"i16", c10::kShort},        {"i8", c10::kChar},
      {"u8", c10::kByte},          {"bool", c10::kBool},
      {"c64", c10::kComplexFloat}, {"c128", c10::kComplexDouble},
  };
  return types;
}

}  // namespace

struct InputSpec::Node {
  enum class Kind { kTensor, kValue, kList, kTuple, kDict, kSpread };

  Kind kind = Kind::kValue;
  TensorSpec tensor;
  IValue value;  // kValue: a number, a string, None, or a file's content.
  std::vector<Node> items;  // Of a dict: keys and values in turn.
};

namespace {

using Node = InputSpec::Node;

// ---- files ------------------------------------------------------------------

[[noreturn]] void badFile(const std::string& path, const std::string& message) {
  throw ToolError(opt::kBadInput, message, {path, 0, 0, ""});
}

IValue readSaved(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    badFile(path, "cannot be opened");
  if (std::filesystem::is_directory(path))
    badFile(path, "is a directory");
  std::vector<char> bytes{std::istreambuf_iterator<char>(file),
                          std::istreambuf_iterator<char>()};
  if (bytes.size() < 4 || std::string_view(bytes.data(), 2) != "PK") {
    badFile(path,
            "expected what torch.save writes, a zip archive, and found "
            "something else");
  }
  std::istringstream archive(std::string(bytes.begin(), bytes.end()));
  const auto entries = opt::listArchive(archive, path);
  const bool has_data = std::any_of(
      entries.begin(), entries.end(), [](const opt::ArchiveEntry& entry) {
        return opt::nameInArchive(entry) == "data.pkl";
      });
  const bool is_module = std::any_of(
      entries.begin(), entries.end(), [](const opt::ArchiveEntry& entry) {
        return opt::nameInArchive(entry) == "constants.pkl";
      });
  if (is_module || !has_data) {
    badFile(path, is_module
                      ? "this is a TorchScript module; an input is what "
                        "torch.save wrote of tensors, numbers and containers"
                      : "this zip archive is not what torch.save writes: it "
                        "has no data.pkl");
  }
  try {
    return torch::jit::pickle_load(bytes);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    badFile(path, "cannot be read: " + opt::briefMessage(error));
  }
}

// ---- the text ---------------------------------------------------------------

bool isWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '+' || c == '-';
}

template <typename Number>
std::optional<Number> parseNumber(std::string_view word) {
  if (!word.empty() && word[0] == '+')
    word.remove_prefix(1);
  Number number{};
  const auto result =
      std::from_chars(word.data(), word.data() + word.size(), number);
  if (word.empty() || result.ec != std::errc() ||
      result.ptr != word.data() + word.size()) {
    return std::nullopt;
  }
  return number;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Node parse() {
    skipBlanks();
    Node node;
    if (take('*')) {
      node.kind = Node::Kind::kSpread;
      node.items.push_back(parseValue(0));
      const IValue& value = node.items[0].value;
      if (node.items[0].kind != Node::Kind::kValue ||
          !(value.isTuple() || value.isList())) {
        at_ = 0;
        fail("expected the file of a tuple or a list behind '*'");
      }
    } else {
      node = parseValue(0);
    }
    skipBlanks();
    if (at_ < text_.size())
      fail("expected the end, found '" + rest() + "'");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw ToolError(opt::kBadUsage, "--input='" + text_ + "', column " +
                                        std::to_string(at_ + 1) + ": " +
                                        message);
  }

  std::string rest() const {
    const std::string found = text_.substr(at_, 20);
    return found.size() < text_.size() - at_ ? found + "..." : found;
  }

  void skipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t'))
      ++at_;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    skipBlanks();
    if (take(c))
      return;
    fail(std::string("expected '") + c + "', found " +
         (at_ < text_.size() ? "'" + rest() + "'" : "the end"));
  }

  std::string takeWord() {
    const std::size_t start = at_;
    while (at_ < text_.size() && isWordCharacter(text_[at_]))
      ++at_;
    return text_.substr(start, at_ - start);
  }

  Node parseValue(int depth) {
    if (depth > kDeepest)
      fail("values nest more than " + std::to_string(kDeepest) + " deep");
    skipBlanks();
    Node node;
    if (at_ == text_.size())
      fail("expected a value");
    if (take('[')) {
      node.kind = Node::Kind::kList;
      parseItems(node, ']', depth);
      return node;
    }
    if (take('(')) {
      node.kind = Node::Kind::kTuple;
      const bool comma = parseItems(node, ')', depth);
      if (node.items.size() == 1 && !comma) {  // Mere brackets, as in Python.
        Node inner = std::move(node.items[0]);
        return inner;
      }
      return node;
    }
    if (take('{')) {
      node.kind = Node::Kind::kDict;
      parseItems(node, '}', depth);
      return node;
    }
    if (text_[at_] == '"' || text_[at_] == '\'') {
      node.value = parseString();
      return node;
    }
    if (take('@')) {
      const std::size_t end =
          std::min(text_.find_first_of(",])}", at_), text_.size());
      std::string path = text_.substr(at_, end - at_);
      while (!path.empty() && path.back() == ' ')
        path.pop_back();
      if (path.empty())
        fail("expected a file name behind '@'");
      at_ = end;
      node.value = readSaved(path);
      return node;
    }
    return parseWord();
  }

  // Whether the last item was followed by a comma.
  bool parseItems(Node& node, char close, int depth) {
    bool comma = false;
    for (;;) {
      skipBlanks();
      if (take(close))
        return comma;
      if (!node.items.empty() && !comma) {
        fail(std::string("expected ',' or '") + close + "', found " +
             (at_ < text_.size() ? "'" + rest() + "'" : "the end"));
      }
      node.items.push_back(parseValue(depth + 1));
      if (node.kind == Node::Kind::kDict) {
        expect(':');
        node.items.push_back(parseValue(depth + 1));
      }
      skipBlanks();
      comma = take(',');
    }
  }

  std::string parseString() {
    const char quote = text_[at_++];
    std::string result;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size())
        ++at_;
      result += text_[at_++];
    }
    if (!take(quote))
      fail(std::string("expected ") + quote + " at the end of the string");
    return result;
  }

  Node parseWord() {
    const std::size_t start = at_;
    const std::string word = takeWord();
    Node node;
    if (at_ < text_.size() && text_[at_] == '[') {
      at_ = start;
      return parseTensor(word);
    }
    if (word == "None") {
      return node;
    }
    if (word == "true" || word == "True") {
      node.value = true;
      return node;
    }
    if (word == "false" || word == "False") {
      node.value = false;
      return node;
    }
    if (const auto integer = parseNumber<std::int64_t>(word)) {
      node.value = *integer;
      return node;
    }
    if (const auto number = parseNumber<double>(word)) {
      node.value = *number;
      return node;
    }
    at_ = start;
    fail(
        "expected a value such as f32[2,3], 4, 0.5, true, None, \"text\", "
        "[..], (..), {..} or @file, found '" +
        rest() + "'");
  }

  Node parseTensor(const std::string& word) {
    Node node;
    node.kind = Node::Kind::kTensor;
    const auto& types = tensorTypes();
    const auto found =
        std::find_if(types.begin(), types.end(),
                     [&](const auto& type) { return type.first == word; });
    if (found == types.end()) {
      std::vector<std::string> names;
      std::string listed;
      for (const auto& type : types) {
        names.push_back(type.first);
        listed += (listed.empty() ? "" : ", ") + type.first;
      }
      fail("unknown element type '" + word + "'; expected one of " + listed +
           opt::didYouMean(word, names));
    }
    node.tensor.type = found->second;
    at_ += word.size() + 1;
    while (true) {
      skipBlanks();
      if (take(']'))
        break;
      if (!node.tensor.sizes.empty()) {
        expect(',');
        skipBlanks();
      }
      const std::size_t start = at_;
      const auto size = parseNumber<std::int64_t>(takeWord());
      if (!size || *size < 0) {
        at_ = start;
        fail("expected a size, found " +
             (at_ < text_.size() ? "'" + rest() + "'" : "the end"));
      }
      node.tensor.sizes.push_back(*size);
    }
    if (take('('))
      parseRange(node.tensor);
    return node;
  }

  void parseRange(TensorSpec& tensor) {
    const std::size_t start = at_;
    const bool whole =
        !c10::isFloatingType(tensor.type) && !c10::isComplexType(tensor.type);
    do {
      skipBlanks();
      const std::size_t word_start = at_;
      const auto number = parseNumber<double>(takeWord());
      if (!number ||
          (whole && *number != static_cast<double>(
                                   static_cast<std::int64_t>(*number)))) {
        at_ = word_start;
        fail(whole ? "expected an integer" : "expected a number");
      }
      tensor.range.push_back(*number);
      skipBlanks();
    } while (take(','));
    expect(')');
    if (tensor.range.size() > 2) {
      at_ = start;
      fail("expected a value, or a lower and an upper bound");
    }
    if (tensor.range.size() == 2 && !(tensor.range[0] < tensor.range[1])) {
      at_ = start;
      fail("expected a lower bound that is less than the upper one");
    }
    if (whole)
      checkFits(tensor, start);
  }

  void checkFits(const TensorSpec& tensor, std::size_t start) {
    double least = 0;
    double most = 1;
    if (tensor.type == c10::kByte) {
      most = 255;
    } else if (tensor.type != c10::kBool) {
      const int bits = static_cast<int>(8 * c10::elementSize(tensor.type));
      // Doubles hold integers up to 2^53.
      most =
          static_cast<double>((std::int64_t{1} << std::min(bits - 1, 53)) - 1);
      least = -most - 1;
    }
    const double last = tensor.range.back() - (tensor.range.size() == 2);
    if (tensor.range[0] < least || last > most) {
      at_ = start;
      std::ostringstream message;
      message.precision(17);
      message << "expected integers from " << least << " to " << most;
      fail(message.str());
    }
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

// ---- values -----------------------------------------------------------------

at::Tensor makeTensor(const TensorSpec& spec) {
  const bool complex = c10::isComplexType(spec.type);
  if (spec.range.size() == 1)
    return at::full(spec.sizes, spec.range[0], spec.type);
  if (!complex && !c10::isFloatingType(spec.type)) {
    std::int64_t low = 0;
    std::int64_t high = spec.type == c10::kBool ? 2 : 10;
    if (!spec.range.empty()) {
      low = static_cast<std::int64_t>(spec.range[0]);
      high = static_cast<std::int64_t>(spec.range[1]);
    }
    return at::randint(low, high, spec.sizes, c10::kLong).to(spec.type);
  }
  // Drawn in float where the type itself has no generator.
  const c10::ScalarType drawn =
      complex || spec.type == c10::kDouble ? spec.type : c10::kFloat;
  if (spec.range.empty())
    return at::randn(spec.sizes, drawn).to(spec.type);
  const double low = spec.range[0];
  return (at::rand(spec.sizes, drawn) * (spec.range[1] - low) + low)
      .to(spec.type);
}

IValue moved(const IValue& value, const c10::Device& device) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? IValue(value.toTensor().to(device))
                                      : value;
  }
  if (value.isTuple()) {
    std::vector<IValue> items;
    for (const IValue& item : value.toTupleRef().elements())
      items.push_back(moved(item, device));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& item : value.toListRef())
      list.push_back(moved(item, device));
    return list;
  }
  if (value.isGenericDict()) {
    const auto old = value.toGenericDict();
    c10::impl::GenericDict dict(old.keyType(), old.valueType());
    for (const auto& item : old)
      dict.insert(item.key(), moved(item.value(), device));
    return dict;
  }
  return value;
}

IValue makeValue(const Node& node, const c10::Device& device) {
  switch (node.kind) {
    case Node::Kind::kTensor:
      return makeTensor(node.tensor).to(device);
    case Node::Kind::kValue:
    case Node::Kind::kSpread:
      return moved(copyOf(node.value), device);
    case Node::Kind::kList: {
      c10::impl::GenericList list(c10::AnyType::get());
      for (const Node& item : node.items)
        list.push_back(makeValue(item, device));
      return list;
    }
    case Node::Kind::kTuple: {
      std::vector<IValue> items;
      for (const Node& item : node.items)
        items.push_back(makeValue(item, device));
      return c10::ivalue::Tuple::create(std::move(items));
    }
    case Node::Kind::kDict: {
      break;
    }
  }
  // A dict, as a list of keys and values until its type is known.
  std::vector<IValue> items;
  for (const Node& item : node.items)
    items.push_back(makeValue(item, device));
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    dict.insert(items[i], items[i + 1]);
  return dict;
}

std::string nameOf(const IValue& value) {
  if (value.isNone())
    return "None";
  if (value.isTensor())
    return "a tensor";
  if (value.isBool())
    return "a bool";
  if (value.isInt())
    return "an int";
  if (value.isDouble())
    return "a float";
  if (value.isString())
    return "a string";
  if (value.isTuple()) {
    return "a tuple of " + std::to_string(value.toTupleRef().elements().size());
  }
  if (value.isList())
    return "a list";
  if (value.isGenericDict())
    return "a dict";
  return value.tagKind();
}

// Gives a value the type that the method declares.
class Fitter {
 public:
  explicit Fitter(const std::string& text) : text_(text) {}

  IValue fit(const IValue& value, const TypePtr& type,
             const std::string& path = "") const {
    switch (type->kind()) {
      case TypeKind::TensorType:
        if (value.isTensor())
          return value;
        break;
      case TypeKind::IntType:
        if (value.isInt())
          return value;
        break;
      case TypeKind::BoolType:
        if (value.isBool())
          return value;
        break;
      case TypeKind::FloatType:
        if (value.isDouble())
          return value;
        if (value.isInt())
          return static_cast<double>(value.toInt());
        break;
      case TypeKind::NumberType:
        if (value.isScalar())
          return value;
        break;
      case TypeKind::StringType:
        if (value.isString())
          return value;
        break;
      case TypeKind::DeviceObjType:
        if (value.isString())
          return device(value.toStringRef(), path);
        break;
      case TypeKind::NoneType:
        if (value.isNone())
          return value;
        break;
      case TypeKind::OptionalType:
        if (value.isNone())
          return value;
        return fit(value, type->expectRef<c10::OptionalType>().getElementType(),
                   path);
      case TypeKind::ListType:
        if (value.isList())
          return fitList(value, type, path);
        break;
      case TypeKind::TupleType:
        if (value.isTuple() &&
            value.toTupleRef().elements().size() == type->containedTypeSize()) {
          return fitTuple(value, type, path);
        }
        break;
      case TypeKind::DictType:
        if (value.isGenericDict())
          return fitDict(value, type, path);
        break;
      default:
        // Any, unions, classes: as it is, where torch accepts that.
        if (value.type()->isSubtypeOf(*type))
          return value;
    }
    throw ToolError(
        opt::kBadInput,
        "--input='" + text_ + "': " + (path.empty() ? "" : path + ": ") +
            "expected " + type->repr_str() + ", found " + nameOf(value));
  }

 private:
  IValue device(const std::string& word, const std::string& path) const {
    try {
      return c10::Device(word);
    } catch (const std::exception&) {
      throw ToolError(opt::kBadInput, "--input='" + text_ + "': " +
                                          (path.empty() ? "" : path + ": ") +
                                          "expected a device such as cuda:0, "
                                          "found \"" +
                                          word + "\"");
    }
  }

  IValue fitList(const IValue& value, const TypePtr& type,
                 const std::string& path) const {
    const TypePtr element = type->containedType(0);
    c10::impl::GenericList list(element);
    const std::vector<IValue> items = value.toListRef().vec();
    for (std::size_t i = 0; i < items.size(); ++i) {
      list.push_back(
          fit(items[i], element, path + "[" + std::to_string(i) + "]"));
    }
    return list;
  }

  IValue fitTuple(const IValue& value, const TypePtr& type,
                  const std::string& path) const {
    std::vector<IValue> items;
    const auto& elements = value.toTupleRef().elements();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      items.push_back(fit(elements[i], type->containedType(i),
                          path + "[" + std::to_string(i) + "]"));
    }
    return c10::ivalue::Tuple::create(std::move(items));
  }

  IValue fitDict(const IValue& value, const TypePtr& type,
                 const std::string& path) const {
    c10::impl::GenericDict dict(type->containedType(0), type->containedType(1));
    for (const auto& item : value.toGenericDict()) {
      std::ostringstream key;
      key << item.key();
      const std::string inner = path + "[" + key.str() + "]";
      dict.insert(fit(item.key(), type->containedType(0), inner),
                  fit(item.value(), type->containedType(1), inner));
    }
    return dict;
  }

  const std::string& text_;
};

}  // namespace

InputSpec InputSpec::parse(const std::string& text) {
  InputSpec spec;
  spec.text_ = text;
  spec.root_ = std::make_shared<const Node>(Parser(text).parse());
  return spec;
}

std::size_t InputSpec::argumentCount() const {
  if (root_->kind != Node::Kind::kSpread)
    return 1;
  const IValue& value = root_->items[0].value;
  return value.isTuple() ? value.toTupleRef().elements().size()
                         : value.toListRef().size();
}

IValue InputSpec::make(std::size_t which, const TypePtr& type,
                       const c10::Device& device) const {
  try {
    if (root_->kind != Node::Kind::kSpread)
      return Fitter(text_).fit(makeValue(*root_, device), type);
    const IValue all = makeValue(root_->items[0], device);
    const IValue item = all.isTuple() ? all.toTupleRef().elements().at(which)
                                      : IValue(all.toListRef().at(which));
    return Fitter(text_).fit(item, type, "[" + std::to_string(which) + "]");
  } catch (const ToolError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw ToolError(opt::kBadInput,
                    "--input='" + text_ + "': " + opt::briefMessage(error));
  }
}

}  // namespace pcg::run
