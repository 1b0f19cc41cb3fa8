#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace pcg::opt {

/// One file of a zip archive.
struct ArchiveEntry {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t packed_size = 0;
  std::uint32_t checksum = 0;
};

/// The directory of a zip archive. Throws ToolError (bad input) where it is
/// truncated or damaged, or would unpack to far more than it holds.
std::vector<ArchiveEntry> listArchive(std::istream& in,
                                      const std::string& name);

/// Throws ToolError (bad input), saying what the archive is instead, unless it
/// is one that torch.jit.save wrote.
void expectTorchScript(const std::vector<ArchiveEntry>& entries,
                       const std::string& name);

/// Names of the files that the model's author added (`_extra_files`).
std::vector<std::string> extraFileNames(
    const std::vector<ArchiveEntry>& entries);

/// An entry's name without the archive's top folder.
std::string nameInArchive(const ArchiveEntry& entry);

/// The checksum that zip archives use.
std::uint32_t crc32(const void* data, std::size_t size);

}  // namespace pcg::opt
