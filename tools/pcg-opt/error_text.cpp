#include "tools/pcg-opt/error_text.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <stdexcept>
#include <string_view>

#include "tools/pcg-opt/source_text.h"

namespace pcg::opt {
namespace {

constexpr std::string_view kAssertion = "INTERNAL ASSERT FAILED";
constexpr std::string_view kPlease = "please report a bug to PyTorch.";

std::string fullMessage(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

std::string trimmed(std::string text) {
  const auto is_idle = [](char c) {
    return c == ' ' || c == '\t' || c == '\r';
  };
  while (!text.empty() &&
         (is_idle(text.back()) || text.back() == ':' || text.back() == '.')) {
    text.pop_back();
  }
  std::size_t start = 0;
  while (start < text.size() && is_idle(text[start]))
    ++start;
  return text.substr(start);
}

// `File "code/x.py", line 12` of an excerpt.
std::string place(const std::string& text) {
  const std::size_t file = text.find("File \"");
  if (file == std::string::npos)
    return "";
  const std::size_t name = file + 6;
  const std::size_t name_end = text.find('"', name);
  if (name_end == std::string::npos)
    return "";
  constexpr std::string_view kLine = "\", line ";
  if (text.compare(name_end, kLine.size(), kLine) != 0)
    return "";
  std::size_t digits = name_end + kLine.size();
  std::string line;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    line += text[digits++];
  }
  return " (" + text.substr(name, name_end - name) + ":" + line + ")";
}

}  // namespace

std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20)
      c = '?';
  }
  while (const auto invalid = findInvalidUtf8(text))
    text[*invalid] = '?';
  return text;
}

std::string briefMessage(const std::exception& error) {
  std::string text = fullMessage(error);
  const std::size_t please = text.find(kPlease);
  if (please != std::string::npos) {
    const std::string rest = trimmed(text.substr(please + kPlease.size()));
    text = rest.empty() || rest == "\n"
               ? "assertion failed: " + text.substr(0, text.find(kAssertion))
               : rest;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    if (!line.empty())
      return printable(line + place(text));
  }
  return "unknown error";
}

bool isInternalError(const std::exception& error) {
  if (dynamic_cast<const c10::Error*>(&error) == nullptr &&
      dynamic_cast<const std::logic_error*>(&error) != nullptr) {
    return true;
  }
  return fullMessage(error).find(kAssertion) != std::string::npos;
}

}  // namespace pcg::opt
