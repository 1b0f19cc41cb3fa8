#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pcg::opt {

/// A named text with line numbers. Lines and columns count from 1; a column
/// counts bytes. Neither copies nor moves while others refer to it.
class SourceText {
 public:
  struct Position {
    std::size_t line = 0;
    std::size_t column = 0;
  };

  /// `first_line` is the number of the first line, for a part of a larger file.
  SourceText(std::string name, std::string text, std::size_t first_line = 1);
  SourceText(const SourceText&) = delete;
  SourceText& operator=(const SourceText&) = delete;

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  std::size_t firstLine() const { return first_line_; }

  /// Position of a byte; the end of the text counts as part of its last line.
  Position position(std::size_t offset) const;

  /// A line without its line break; empty where there is no such line.
  std::string_view line(std::size_t number) const;

  std::size_t lineCount() const { return starts_.size(); }

 private:
  std::string name_;
  std::string text_;
  std::size_t first_line_;
  std::vector<std::size_t> starts_;
};

/// Offset of the first byte that is not valid UTF-8, or is NUL.
std::optional<std::size_t> findInvalidUtf8(std::string_view text);

/// One part of a text that holds several.
struct TextPart {
  std::string text;
  std::size_t first_line = 1;
};

/// Cuts a text at lines that consist of `marker`. Lines that look like a
/// mistyped default marker are reported by number in `near_misses`.
std::vector<TextPart> splitText(std::string_view text, std::string_view marker,
                                std::vector<std::size_t>& near_misses);

}  // namespace pcg::opt
