#include "tools/pcg-opt/source_text.h"

#include <algorithm>
#include <utility>

namespace pcg::opt {
namespace {

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = line.find_first_not_of(kBlank);
  if (first == std::string_view::npos)
    return {};
  return line.substr(first, line.find_last_not_of(kBlank) - first + 1);
}

// `#`, blanks, and three or more dashes.
bool looksLikeMarker(std::string_view line) {
  if (line.empty() || line.front() != '#')
    return false;
  line = trimmed(line.substr(1));
  return line.size() >= 3 &&
         line.find_first_not_of('-') == std::string_view::npos;
}

}  // namespace

SourceText::SourceText(std::string name, std::string text,
                       std::size_t first_line)
    : name_(std::move(name)), text_(std::move(text)), first_line_(first_line) {
  starts_.push_back(0);
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n')
      starts_.push_back(i + 1);
  }
}

SourceText::Position SourceText::position(std::size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  const auto index = static_cast<std::size_t>(after - starts_.begin()) - 1;
  return {first_line_ + index, offset - starts_[index] + 1};
}

std::string_view SourceText::line(std::size_t number) const {
  if (number < first_line_ || number - first_line_ >= starts_.size())
    return {};
  const std::size_t start = starts_[number - first_line_];
  std::string_view rest = std::string_view(text_).substr(start);
  rest = rest.substr(0, rest.find('\n'));
  if (!rest.empty() && rest.back() == '\r')
    rest.remove_suffix(1);
  return rest;
}

std::optional<std::size_t> findInvalidUtf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead == 0)
      return i;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length =
        lead >= 0xc2 && lead < 0xe0
            ? 2
            : (lead >= 0xe0 && lead < 0xf0
                   ? 3
                   : (lead >= 0xf0 && lead < 0xf5 ? 4 : 0));
    if (length == 0 || i + length > text.size())
      return i;
    unsigned code = lead & (0xffU >> (length + 1));
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xc0U) != 0x80U)
        return i;
      code = (code << 6U) | (next & 0x3fU);
    }
    const bool overlong =
        (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (overlong || surrogate || code > 0x10ffff)
      return i;
    i += length;
  }
  return std::nullopt;
}

std::vector<TextPart> splitText(std::string_view text, std::string_view marker,
                                std::vector<std::size_t>& near_misses) {
  std::vector<TextPart> parts;
  std::size_t part_start = 0;
  std::size_t part_line = 1;
  std::size_t line = 1;
  for (std::size_t start = 0; start < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view content = trimmed(text.substr(start, end - start));
    const std::size_t next = std::min(end + 1, text.size());
    if (content == marker) {
      parts.push_back({std::string(text.substr(part_start, start - part_start)),
                       part_line});
      part_start = next;
      part_line = line + 1;
    } else if (looksLikeMarker(content)) {
      near_misses.push_back(line);
    }
    start = next;
  }
  parts.push_back({std::string(text.substr(part_start)), part_line});
  return parts;
}

}  // namespace pcg::opt
