#include "tools/pcg-opt/archive.h"

#include <algorithm>
#include <array>
#include <istream>
#include <optional>

#include "tools/pcg-opt/diagnostics.h"

namespace pcg::opt {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::uint32_t kEntrySignature = 0x02014b50;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kLocatorSize = 20;
constexpr std::size_t kEnd64Size = 56;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kLongestComment = 0xffff;

// No directory of a model is larger, and no model unpacks to more than this
// many times its size.
constexpr std::uint64_t kLargestDirectory = std::uint64_t{1} << 30;
constexpr std::uint64_t kFreeUnpackedSize = std::uint64_t{1} << 28;
constexpr std::uint64_t kLargestRatio = 200;

[[noreturn]] void damaged(const std::string& name, const std::string& why) {
  throw ToolError(kBadInput, "the archive is truncated or damaged: " + why,
                  {name, 0, 0, ""});
}

// Little-endian numbers of a byte string; the caller has checked the size.
std::uint64_t number(const std::string& bytes, std::size_t at,
                     std::size_t size) {
  std::uint64_t result = 0;
  for (std::size_t i = size; i-- > 0;) {
    result = (result << 8U) | static_cast<unsigned char>(bytes[at + i]);
  }
  return result;
}

class DirectoryReader {
 public:
  DirectoryReader(std::istream& in, const std::string& name)
      : in_(in), name_(name) {
    in_.clear();
    in_.seekg(0, std::ios::end);
    const auto size = in_.tellg();
    if (size < 0)
      damaged(name_, "it cannot be read");
    size_ = static_cast<std::uint64_t>(size);
  }

  std::vector<ArchiveEntry> read() {
    findDirectory();
    std::string bytes = readAt(directory_offset_, directory_size_);
    std::vector<ArchiveEntry> entries;
    std::uint64_t unpacked = 0;
    std::uint64_t packed = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      if (bytes.size() - at < kEntrySize ||
          number(bytes, at, 4) != kEntrySignature) {
        damaged(name_, "its directory is not well formed");
      }
      ArchiveEntry entry;
      at = readEntry(bytes, at, entry);
      // Files that lie over each other would be read again and again.
      if (entry.packed_size > size_ - packed) {
        damaged(name_, "its files are larger than itself");
      }
      packed += entry.packed_size;
      unpacked += std::max(entry.size, entry.packed_size) - entry.packed_size;
      if (unpacked > kFreeUnpackedSize + kLargestRatio * size_) {
        throw ToolError(kBadInput,
                        "the archive would unpack to more than " +
                            std::to_string(kLargestRatio) + " times its size",
                        {name_, 0, 0, ""});
      }
      entries.push_back(std::move(entry));
    }
    if (entries.size() != entry_count_) {
      damaged(name_, "its directory lists " + std::to_string(entries.size()) +
                         " files of " + std::to_string(entry_count_));
    }
    return entries;
  }

 private:
  std::string readAt(std::uint64_t offset, std::uint64_t size) {
    if (offset > size_ || size > size_ - offset) {
      damaged(name_, "its directory points behind its end");
    }
    std::string bytes(static_cast<std::size_t>(size), '\0');
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(offset));
    in_.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (static_cast<std::uint64_t>(in_.gcount()) != size) {
      damaged(name_, "it cannot be read");
    }
    return bytes;
  }

  void findDirectory() {
    const std::uint64_t tail_size =
        std::min<std::uint64_t>(size_, kEndSize + kLongestComment);
    const std::uint64_t tail_offset = size_ - tail_size;
    const std::string tail = readAt(tail_offset, tail_size);
    std::optional<std::size_t> end;
    for (std::size_t at = tail.size() < kEndSize ? 0
                                                 : tail.size() - kEndSize + 1;
         at-- > 0;) {
      if (number(tail, at, 4) == kEndSignature) {
        end = at;
        break;
      }
    }
    if (!end)
      damaged(name_, "it has no directory");
    entry_count_ = number(tail, *end + 10, 2);
    directory_size_ = number(tail, *end + 12, 4);
    directory_offset_ = number(tail, *end + 16, 4);
    if (entry_count_ == 0xffff || directory_size_ == 0xffffffff ||
        directory_offset_ == 0xffffffff) {
      readEnd64(tail_offset + *end);
    }
    if (directory_size_ > kLargestDirectory) {
      damaged(name_, "its directory is too large");
    }
  }

  void readEnd64(std::uint64_t end_offset) {
    if (end_offset < kLocatorSize)
      damaged(name_, "it has no directory");
    const std::string locator = readAt(end_offset - kLocatorSize, kLocatorSize);
    if (number(locator, 0, 4) != kLocatorSignature) {
      damaged(name_, "it has no directory");
    }
    const std::string end = readAt(number(locator, 8, 8), kEnd64Size);
    if (number(end, 0, 4) != kEnd64Signature) {
      damaged(name_, "it has no directory");
    }
    entry_count_ = number(end, 32, 8);
    directory_size_ = number(end, 40, 8);
    directory_offset_ = number(end, 48, 8);
  }

  std::size_t readEntry(const std::string& bytes, std::size_t at,
                        ArchiveEntry& entry) const {
    const std::size_t name_size = number(bytes, at + 28, 2);
    const std::size_t extra_size = number(bytes, at + 30, 2);
    const std::size_t comment_size = number(bytes, at + 32, 2);
    const std::size_t next =
        at + kEntrySize + name_size + extra_size + comment_size;
    if (next > bytes.size())
      damaged(name_, "its directory is cut short");
    entry.checksum = static_cast<std::uint32_t>(number(bytes, at + 16, 4));
    entry.packed_size = number(bytes, at + 20, 4);
    entry.size = number(bytes, at + 24, 4);
    entry.name = bytes.substr(at + kEntrySize, name_size);
    // Sizes that do not fit stand in an extra field, in this order.
    std::size_t field = at + kEntrySize + name_size;
    const std::size_t fields_end = field + extra_size;
    while (field + 4 <= fields_end) {
      const std::size_t size = number(bytes, field + 2, 2);
      std::size_t value = field + 4;
      const std::size_t field_end = std::min(value + size, fields_end);
      if (number(bytes, field, 2) == 1) {
        for (std::uint64_t* wide : {&entry.size, &entry.packed_size}) {
          if (*wide == 0xffffffff && value + 8 <= field_end) {
            *wide = number(bytes, value, 8);
            value += 8;
          }
        }
      }
      field = field_end;
    }
    return next;
  }

  std::istream& in_;
  const std::string& name_;
  std::uint64_t size_ = 0;
  std::uint64_t entry_count_ = 0;
  std::uint64_t directory_size_ = 0;
  std::uint64_t directory_offset_ = 0;
};

bool startsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

}  // namespace

std::vector<ArchiveEntry> listArchive(std::istream& in,
                                      const std::string& name) {
  return DirectoryReader(in, name).read();
}

std::string nameInArchive(const ArchiveEntry& entry) {
  const std::size_t slash = entry.name.find('/');
  return slash == std::string::npos ? entry.name : entry.name.substr(slash + 1);
}

void expectTorchScript(const std::vector<ArchiveEntry>& entries,
                       const std::string& name) {
  bool constants = false;
  bool data = false;
  bool code = false;
  bool exported = false;
  for (const ArchiveEntry& entry : entries) {
    const std::string inner = nameInArchive(entry);
    constants |= inner == "constants.pkl" || inner == "model.json";
    data |= inner == "data.pkl";
    code |= startsWith(inner, "code/");
    exported |= inner == "archive_format" || startsWith(inner, "models/") ||
                entry.name == "serialized_exported_program.json";
  }
  if (constants || (data && code))
    return;
  const char* message =
      exported ? "this is a torch.export archive; pcg-opt reads what "
                 "torch.jit.save writes"
      : data   ? "this is a Python pickle written by torch.save; write a "
                 "scripted or traced module with torch.jit.save"
               : "this zip archive is no TorchScript file: it has no "
                 "constants.pkl";
  throw ToolError(kBadInput, message, {name, 0, 0, ""});
}

std::vector<std::string> extraFileNames(
    const std::vector<ArchiveEntry>& entries) {
  const std::string folder = "extra/";
  std::vector<std::string> names;
  for (const ArchiveEntry& entry : entries) {
    const std::string inner = nameInArchive(entry);
    if (startsWith(inner, folder) && inner.size() > folder.size()) {
      names.push_back(inner.substr(folder.size()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::uint32_t crc32(const void* data, std::size_t size) {
  // Eight bytes a step: models are large.
  constexpr std::size_t kStep = 8;
  using Tables = std::array<std::array<std::uint32_t, 256>, kStep>;
  static const Tables tables = [] {
    Tables made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t remainder = i;
      for (int bit = 0; bit < 8; ++bit) {
        remainder = (remainder >> 1U) ^ ((remainder & 1U) * 0xedb88320U);
      }
      made[0][i] = remainder;
    }
    for (std::size_t t = 1; t < kStep; ++t) {
      for (std::size_t i = 0; i < 256; ++i) {
        const std::uint32_t before = made[t - 1][i];
        made[t][i] = (before >> 8U) ^ made[0][before & 0xffU];
      }
    }
    return made;
  }();
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t sum = 0xffffffffU;
  for (; size >= kStep; size -= kStep, bytes += kStep) {
    std::array<std::uint32_t, kStep> in{};
    for (std::size_t i = 0; i < kStep; ++i)
      in[i] = bytes[i];
    for (std::size_t i = 0; i < 4; ++i)
      in[i] ^= (sum >> (8 * i)) & 0xffU;
    sum = 0;
    for (std::size_t i = 0; i < kStep; ++i) {
      sum ^= tables[kStep - 1 - i][in[i]];
    }
  }
  for (; size > 0; --size, ++bytes) {
    sum = (sum >> 8U) ^ tables[0][(sum ^ *bytes) & 0xffU];
  }
  return ~sum;
}

}  // namespace pcg::opt
