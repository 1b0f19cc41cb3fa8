#pragma once

#include <iosfwd>
#include <locale>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"

namespace pcg::opt {

/// While it lives, torch's warnings of this thread are warnings of the tool,
/// one line each.
class WarningForwarder {
 public:
  explicit WarningForwarder(Diagnostics& diagnostics);
  ~WarningForwarder();
  WarningForwarder(const WarningForwarder&) = delete;
  WarningForwarder& operator=(const WarningForwarder&) = delete;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// While it lives, numbers are written as in C++ source, whatever locale the
/// program is in: by these streams and by those that are made meanwhile.
class ClassicNumbers {
 public:
  ClassicNumbers(std::ostream& out, std::ostream& err);
  ~ClassicNumbers();
  ClassicNumbers(const ClassicNumbers&) = delete;
  ClassicNumbers& operator=(const ClassicNumbers&) = delete;

 private:
  std::ostream& out_;
  std::ostream& err_;
  std::locale global_before_;
  std::locale out_before_;
  std::locale err_before_;
};

/// Loads libraries that define operators or classes. They stay loaded. Throws
/// ToolError (bad usage).
void loadLibraries(const std::vector<std::string>& libraries);

/// Sets an environment variable and puts the former value back in the end. The
/// environment belongs to the process: no other thread may read it meanwhile.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace pcg::opt
