#include "tools/pcg-opt/diagnostics.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <utility>

namespace pcg::opt {
namespace {

// Longer lines are shown in part.
constexpr std::size_t kExcerptWidth = 160;

const char* toString(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kRemark:
      return "remark";
    case Severity::kNote:
      return "note";
  }
  return "error";
}

bool isContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
}

void printExcerpt(std::ostream& out, const Location& where) {
  std::string_view line = where.line_text;
  std::size_t caret = std::min(where.column - 1, line.size());
  const char* before = "";
  const char* after = "";
  if (line.size() > kExcerptWidth) {
    std::size_t start = caret - std::min(caret, kExcerptWidth / 2);
    while (start > 0 && isContinuation(line[start]))
      --start;
    std::size_t end = std::min(start + kExcerptWidth, line.size());
    while (end < line.size() && isContinuation(line[end]))
      ++end;
    if (start > 0)
      before = "...";
    if (end < line.size())
      after = "...";
    line = line.substr(start, end - start);
    caret -= start;
  }
  out << before << line << after << '\n';
  for (const char* dot = before; *dot != '\0'; ++dot)
    out << ' ';
  for (const char c : line.substr(0, caret)) {
    if (!isContinuation(c))
      out << (c == '\t' ? '\t' : ' ');
  }
  out << "^\n";
}

std::string_view skipBlanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first);
}

// What a comment such as `expected-error @+1 {{text}}` says.
struct ParsedExpectation {
  Severity severity = Severity::kError;
  std::size_t line = 0;
  std::string text;
};

bool takeWord(std::string_view& rest, std::string_view word) {
  if (rest.substr(0, word.size()) != word)
    return false;
  rest.remove_prefix(word.size());
  return true;
}

std::optional<std::size_t> takeNumber(std::string_view& rest) {
  std::size_t number = 0;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc())
    return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return number;
}

std::optional<Severity> takeSeverity(std::string_view& rest) {
  for (const Severity severity : {Severity::kError, Severity::kWarning,
                                  Severity::kRemark, Severity::kNote}) {
    if (takeWord(rest, toString(severity)))
      return severity;
  }
  return std::nullopt;
}

std::optional<ParsedExpectation> parseExpectation(Severity severity,
                                                  std::string_view rest,
                                                  std::size_t own_line) {
  ParsedExpectation result;
  result.severity = severity;
  result.line = own_line;
  rest = skipBlanks(rest);
  if (takeWord(rest, "@")) {
    if (takeWord(rest, "above")) {
      result.line = own_line - 1;
    } else if (takeWord(rest, "below")) {
      result.line = own_line + 1;
    } else if (takeWord(rest, "unknown")) {
      result.line = 0;
    } else {
      const bool plus = takeWord(rest, "+");
      const bool minus = !plus && takeWord(rest, "-");
      const auto number = takeNumber(rest);
      if (!number || (minus && *number >= own_line))
        return std::nullopt;
      result.line = plus    ? own_line + *number
                    : minus ? own_line - *number
                            : *number;
    }
    rest = skipBlanks(rest);
  }
  if (!takeWord(rest, "{{"))
    return std::nullopt;
  const std::size_t end = rest.find("}}");
  if (end == std::string_view::npos)
    return std::nullopt;
  result.text = std::string(rest.substr(0, end));
  return result;
}

}  // namespace

Location locate(const SourceText& source, std::size_t offset) {
  const SourceText::Position position = source.position(offset);
  return {source.name(), position.line, position.column,
          std::string(source.line(position.line))};
}

void Diagnostics::report(Diagnostic diagnostic) {
  if (diagnostic.severity == Severity::kError)
    ++errors_;
  if (!verifying_) {
    print(diagnostic);
    return;
  }
  for (Expectation& expectation : expected_) {
    if (!expectation.met && expectation.severity == diagnostic.severity &&
        expectation.line == diagnostic.where.line &&
        diagnostic.message.find(expectation.text) != std::string::npos) {
      expectation.met = true;
      return;
    }
  }
  unexpected_.push_back(std::move(diagnostic));
}

void Diagnostics::error(Location where, std::string message) {
  report({Severity::kError, std::move(where), std::move(message)});
}
void Diagnostics::warning(Location where, std::string message) {
  report({Severity::kWarning, std::move(where), std::move(message)});
}
void Diagnostics::remark(Location where, std::string message) {
  report({Severity::kRemark, std::move(where), std::move(message)});
}
void Diagnostics::note(Location where, std::string message) {
  report({Severity::kNote, std::move(where), std::move(message)});
}

void Diagnostics::print(const Diagnostic& diagnostic) {
  const Location& where = diagnostic.where;
  if (where.line == 0) {
    err_ << program_ << ": " << toString(diagnostic.severity) << ": ";
    if (!where.file.empty())
      err_ << where.file << ": ";
    err_ << diagnostic.message << '\n';
    return;
  }
  err_ << where.file << ':' << where.line << ':' << where.column << ": "
       << toString(diagnostic.severity) << ": " << diagnostic.message << '\n';
  if (!where.line_text.empty())
    printExcerpt(err_, where);
}

void Diagnostics::beginVerification(const SourceText& source) {
  verifying_ = true;
  malformed_ = false;
  expected_.clear();
  unexpected_.clear();
  for (std::size_t i = 0; i < source.lineCount(); ++i) {
    const std::size_t number = source.firstLine() + i;
    const std::string_view line = source.line(number);
    const std::size_t hash = line.find('#');
    if (hash != std::string_view::npos) {
      addExpectations(source, number, line.substr(hash));
    }
  }
}

void Diagnostics::addExpectations(const SourceText& source, std::size_t line,
                                  std::string_view comment) {
  constexpr std::string_view kPrefix = "expected-";
  for (std::size_t at = comment.find(kPrefix); at != std::string_view::npos;
       at = comment.find(kPrefix, at + 1)) {
    Location where{
        source.name(), line,
        static_cast<std::size_t>(comment.data() - source.line(line).data()) +
            at + 1,
        std::string(source.line(line))};
    std::string_view rest = comment.substr(at + kPrefix.size());
    const auto severity = takeSeverity(rest);
    if (!severity)
      continue;  // Prose.
    const auto parsed = parseExpectation(*severity, rest, line);
    if (!parsed) {
      malformed_ = true;
      print({Severity::kError, std::move(where),
             "expected an optional @LINE and text in {{braces}} here"});
      continue;
    }
    expected_.push_back(
        {parsed->severity, parsed->line, parsed->text, std::move(where)});
  }
}

bool Diagnostics::endVerification() {
  verifying_ = false;
  bool good = !malformed_;
  for (const Diagnostic& diagnostic : unexpected_) {
    good = false;
    Diagnostic message = diagnostic;
    message.severity = Severity::kError;
    message.message = std::string("unexpected ") +
                      toString(diagnostic.severity) + ": " + diagnostic.message;
    print(message);
  }
  for (const Expectation& expectation : expected_) {
    if (expectation.met)
      continue;
    good = false;
    print({Severity::kError, expectation.comment,
           std::string("expected ") + toString(expectation.severity) + " \"" +
               expectation.text + "\" was not produced"});
  }
  expected_.clear();
  unexpected_.clear();
  return good;
}

}  // namespace pcg::opt
