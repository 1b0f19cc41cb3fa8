#pragma once

#include <exception>
#include <string>

namespace pcg::opt {

/// The essence of an exception from torch or pcg in one line: no backtrace, no
/// source path of torch, no excerpt; with the model's file and line where the
/// exception names them.
std::string briefMessage(const std::exception& error);

/// The text in one line of valid UTF-8: control characters and other bytes,
/// which a damaged model may put anywhere, become question marks.
std::string printable(std::string text);

/// True for failed assertions of torch and broken invariants of pcg: bugs, in
/// contrast to complaints about what they were given.
bool isInternalError(const std::exception& error);

}  // namespace pcg::opt
