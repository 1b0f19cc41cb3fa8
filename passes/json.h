#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace pcg {

/// Writes JSON text; the caller keeps begin and end calls balanced. Strings are
/// taken to be UTF-8.
class JsonWriter {
 public:
  JsonWriter& beginObject() { return open('{'); }
  JsonWriter& endObject() { return close('}'); }
  JsonWriter& beginArray() { return open('['); }
  JsonWriter& endArray() { return close(']'); }

  JsonWriter& key(std::string_view name) {
    value(name);
    text_ += ": ";
    separate_ = false;
    return *this;
  }

  JsonWriter& value(std::string_view text) {
    separator();
    text_ += '"';
    for (const char c : text)
      append(c);
    text_ += '"';
    return *this;
  }
  JsonWriter& value(const std::string& text) {
    return value(std::string_view(text));
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(std::int64_t number) {
    separator();
    text_ += std::to_string(number);
    return *this;
  }
  JsonWriter& value(double number) {
    separator();
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.6g", number);
    for (char& c : buffer) {
      if (c == ',')
        c = '.';  // A locale's decimal comma.
    }
    text_ += buffer;
    return *this;
  }
  JsonWriter& value(bool truth) {
    separator();
    text_ += truth ? "true" : "false";
    return *this;
  }

  std::string take() { return std::move(text_); }

 private:
  JsonWriter& open(char bracket) {
    separator();
    text_ += bracket;
    separate_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    text_ += bracket;
    separate_ = true;
    return *this;
  }
  void separator() {
    if (separate_)
      text_ += ", ";
    separate_ = true;
  }
  void append(char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (byte < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\u%04x", byte);
      text_ += buffer;
    } else {
      text_ += c;
    }
  }

  std::string text_;
  bool separate_ = false;
};

}  // namespace pcg
