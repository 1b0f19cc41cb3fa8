#pragma once

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/pcg-opt/source_text.h"

namespace pcg::opt {

/// What the program returns.
enum ExitCode : int {
  kSuccess = 0,
  kBadInput = 1,  ///< The input, or what a pass or check found in it.
  kBadUsage = 2,  ///< The command line, or an output that cannot be written.
  kInternal = 3,  ///< A bug in pcg or torch.
};

enum class Severity { kError, kWarning, kRemark, kNote };

/// A place in a text, with the text of its line. Without a line it stands for
/// the whole file; without a file for the program.
struct Location {
  std::string file;
  std::size_t line = 0;
  std::size_t column = 0;
  std::string line_text;
};

Location locate(const SourceText& source, std::size_t offset);

struct Diagnostic {
  Severity severity = Severity::kError;
  Location where;
  std::string message;
};

/// Ends the work on an input, or the program.
class ToolError : public std::runtime_error {
 public:
  ToolError(ExitCode code, const std::string& message, Location where = {})
      : std::runtime_error(message), code_(code), where_(std::move(where)) {}

  ExitCode code() const { return code_; }
  const Location& where() const { return where_; }

 private:
  ExitCode code_;
  Location where_;
};

/// Takes all that the tool has to say of its input and prints it,
///
///     model.ir:3:14: error: unknown operator aten::rely
///       %y : Tensor = aten::rely(%x)
///                     ^
///
/// or compares it with what comments in the input expect:
///
///     # expected-error @+1 {{unknown operator}}
///
/// Severities are error, warning, remark and note. The comment's own line is
/// meant, or `@+N`, `@-N`, `@above`, `@below`, `@LINE`, or `@unknown` for
/// messages without a line. The text in braces is part of the message.
class Diagnostics {
 public:
  /// Messages without a line start with the program's name.
  explicit Diagnostics(std::ostream& err, std::string program = "pcg-opt")
      : err_(err), program_(std::move(program)) {}

  void report(Diagnostic diagnostic);
  void error(Location where, std::string message);
  void warning(Location where, std::string message);
  void remark(Location where, std::string message);
  void note(Location where, std::string message);

  std::size_t errorCount() const { return errors_; }

  /// From here on messages are compared and not printed.
  void beginVerification(const SourceText& source);

  /// Prints what was missing or not expected; true if nothing was.
  bool endVerification();

 private:
  struct Expectation {
    Severity severity;
    std::size_t line;  ///< 0: any message without a line.
    std::string text;
    Location comment;
    bool met = false;
  };

  void print(const Diagnostic& diagnostic);
  void addExpectations(const SourceText& source, std::size_t line,
                       std::string_view comment);

  std::ostream& err_;
  const std::string program_;
  std::size_t errors_ = 0;
  bool verifying_ = false;
  bool malformed_ = false;
  std::vector<Expectation> expected_;
  std::vector<Diagnostic> unexpected_;
};

}  // namespace pcg::opt
