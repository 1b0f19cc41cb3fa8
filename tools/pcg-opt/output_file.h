#pragma once

#include <fstream>
#include <iosfwd>
#include <string>

namespace pcg::opt {

/// A file that appears, complete, only when it is committed.
///
/// Until then it is a temporary file beside the target, which the destructor
/// removes. An existing target is replaced and keeps its permissions; one that
/// is no regular file (a device, a pipe) is written directly.
class OutputFile {
 public:
  /// Throws ToolError (bad usage) where the file could not be written.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream() { return stream_; }

  /// Throws ToolError (bad usage) where something could not be written.
  void commit();

 private:
  void openTemporary();

  std::string path_;       // As the user wrote it.
  std::string target_;     // Behind symbolic links.
  std::string temporary_;  // Empty: the target is written directly.
  std::ofstream stream_;
};

/// For a program's main: interrupts and crashes remove the temporary file (one
/// OutputFile at a time is covered), a crash ends as an internal error with a
/// message and exit code 3, and a closed pipe fails the write to it.
/// `program` is its name in that message.
void installSignalHandlers(const char* program);

}  // namespace pcg::opt
