#include "tools/pcg-opt/input.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/source_text.h"

namespace pcg::opt {
namespace {

// Enough to recognise a format.
constexpr std::size_t kHeadSize = 4096;

[[noreturn]] void badInput(const std::string& name,
                           const std::string& message) {
  throw ToolError(kBadInput, message, {name, 0, 0, ""});
}

std::unique_ptr<std::istream> openFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    badInput(path, std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode))
    badInput(path, "is a directory");
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file)
    badInput(path, std::strerror(errno));
  return file;
}

std::string readAll(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool startsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool isArchive(std::string_view head) {
  return startsWith(head, std::string_view("PK\x03\x04", 4)) ||
         startsWith(head, std::string_view("PK\x05\x06", 4));
}

// Says what a file that is neither archive nor text is.
[[noreturn]] void rejectBinary(const std::string& name, std::string_view head) {
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) {
    badInput(name,
             "this is a Python pickle, as old versions of torch.save write it; "
             "write a scripted or traced module with torch.jit.save");
  }
  if (head.size() > 8 && head.substr(4, 4) == "PTMF") {
    badInput(name,
             "this is a model for mobile devices; pcg-opt reads what "
             "torch.jit.save writes");
  }
  badInput(name, "expected a TorchScript file or IR text, found binary data");
}

// Cuts a character off that the end of `head` splits.
std::string_view wholeCharacters(std::string_view head) {
  for (int i = 0; i < 3 && !head.empty(); ++i) {
    const auto last = static_cast<unsigned char>(head.back());
    if (last < 0x80)
      break;
    head.remove_suffix(1);
    if (last >= 0xc0)
      break;
  }
  return head;
}

}  // namespace

Input openInput(const ToolOptions& options, std::istream& standard_input) {
  Input input;
  const bool from_stdin = options.input == "-";
  input.name = from_stdin ? "<stdin>" : options.input;
  std::unique_ptr<std::istream> file;
  std::string head;
  if (from_stdin) {
    head = readAll(standard_input);
  } else {
    file = openFile(options.input);
    head.resize(kHeadSize);
    file->read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<std::size_t>(file->gcount()));
  }
  if (head.empty())
    badInput(input.name, "is empty");

  const bool archive = isArchive(head);
  if (options.format == InputFormat::kModule && !archive) {
    if (findInvalidUtf8(wholeCharacters(head)))
      rejectBinary(input.name, head);
    badInput(input.name, "is no TorchScript file: it is not a zip archive");
  }
  if (archive && options.format != InputFormat::kIr) {
    input.kind = Input::Kind::kModule;
    if (from_stdin) {
      input.archive = std::make_unique<std::istringstream>(std::move(head));
    } else {
      file->clear();
      file->seekg(0);
      input.archive = std::move(file);
    }
    return input;
  }
  // Judged by its beginning first: nobody wants to wait for gigabytes.
  const std::string_view start =
      std::string_view(head).substr(0, std::min(head.size(), kHeadSize));
  const bool head_is_text =
      !findInvalidUtf8(head.size() > start.size() || head.size() == kHeadSize
                           ? wholeCharacters(start)
                           : start);
  if (!head_is_text && (start[0] == '\x80' || head.find('\0') < kHeadSize)) {
    rejectBinary(input.name, start);
  }
  input.text = std::move(head);
  if (file)
    input.text += readAll(*file);
  if (const auto invalid = findInvalidUtf8(input.text)) {
    const SourceText source(input.name, input.text);
    Location where = locate(source, *invalid);
    where.line_text.clear();  // It cannot be shown.
    throw ToolError(kBadInput,
                    input.text[*invalid] == '\0'
                        ? "expected IR text, found a NUL byte"
                        : "expected IR text in UTF-8, found another byte",
                    std::move(where));
  }
  return input;
}

}  // namespace pcg::opt
