#include "tools/pcg-run/json_text.h"

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

namespace pcg::run {
namespace {

constexpr int kDeepest = 64;

struct Json {
  enum class Kind { kPlain, kArray, kObject };
  Kind kind = Kind::kPlain;
  std::string text;
  std::vector<std::pair<std::string, Json>> items;  // Of an array: no names.
};

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  std::optional<Json> read() {
    Json value;
    if (!readValue(value, 0))
      return std::nullopt;
    skipBlanks();
    return at_ == text_.size() ? std::optional<Json>(std::move(value))
                               : std::nullopt;
  }

 private:
  void skipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool take(char c) {
    skipBlanks();
    if (at_ >= text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }

  bool readString(std::string& to) {
    if (!take('"'))
      return false;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') {
        if (++at_ >= text_.size())
          return false;
        // Line breaks and escaped characters have no place in one line.
        if (text_[at_] == 'u') {
          to += '?';
          at_ += 5;
          continue;
        }
        to += text_[at_] == 'n' || text_[at_] == 't' ? ' ' : text_[at_];
        ++at_;
        continue;
      }
      to += text_[at_++];
    }
    return take('"');
  }

  bool readValue(Json& to, int depth) {
    if (depth > kDeepest)
      return false;
    skipBlanks();
    if (at_ >= text_.size())
      return false;
    const char first = text_[at_];
    if (first == '"')
      return readString(to.text);
    if (first == '{' || first == '[') {
      ++at_;
      to.kind = first == '{' ? Json::Kind::kObject : Json::Kind::kArray;
      const char close = first == '{' ? '}' : ']';
      if (take(close))
        return true;
      do {
        auto& item = to.items.emplace_back();
        if (first == '{' && !(readString(item.first) && take(':')))
          return false;
        if (!readValue(item.second, depth + 1))
          return false;
      } while (take(','));
      return take(close);
    }
    while (at_ < text_.size() &&
           std::string(",]} \n\t").find(text_[at_]) == std::string::npos) {
      to.text += text_[at_++];
    }
    return !to.text.empty();
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

void print(const Json& value, std::size_t level, std::string& out) {
  const std::string indent(2 * level, ' ');
  if (value.kind == Json::Kind::kPlain) {
    out += indent + value.text + "\n";
    return;
  }
  if (value.kind == Json::Kind::kArray) {
    for (const auto& item : value.items)
      print(item.second, level, out);
    return;
  }
  std::string line;
  for (const auto& [name, item] : value.items) {
    if (item.kind == Json::Kind::kPlain)
      line += (line.empty() ? "" : ", ") + name + " " + item.text;
  }
  if (!line.empty())
    out += indent + line + "\n";
  for (const auto& [name, item] : value.items) {
    if (item.kind == Json::Kind::kPlain || item.items.empty())
      continue;
    out += indent + "  " + name + ":\n";
    print(item, level + 2, out);
  }
}

}  // namespace

std::string readableJson(const std::string& json) {
  const auto value = Reader(json).read();
  if (!value)
    return json + "\n";
  std::string out;
  print(*value, 0, out);
  return out;
}

}  // namespace pcg::run
