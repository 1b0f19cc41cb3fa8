#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "tools/pcg-opt/options.h"

namespace pcg::opt {

/// What the command line names as input, recognised by its content.
struct Input {
  enum class Kind { kIr, kModule };

  std::string name;  ///< For messages: the path, or `<stdin>`.
  Kind kind = Kind::kIr;
  std::string text;  ///< IR text, valid UTF-8.

  /// The archive, from its start; seekable.
  std::unique_ptr<std::istream> archive;
};

/// Opens and recognises the input. Reads IR text completely; of an archive only
/// the first bytes, unless it comes from standard input. Throws ToolError (bad
/// input) that says what was found instead.
Input openInput(const ToolOptions& options, std::istream& standard_input);

}  // namespace pcg::opt
