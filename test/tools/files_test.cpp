#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tools/pcg-opt/archive.h"
#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/input.h"
#include "tools/pcg-opt/output_file.h"

namespace pcg::opt {
namespace {

using testing::HasSubstr;

class Folder : public testing::Test {
 protected:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pcg-opt-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() override { std::filesystem::remove_all(path_); }

  std::string in(const std::string& name) const { return path_ + "/" + name; }

  static std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  std::size_t count() const {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      (void)entry;
      ++files;
    }
    return files;
  }

  std::string path_;
};

class OutputFileTest : public Folder {};
class InputTest : public Folder {};

TEST_F(OutputFileTest, AppearsOnlyWhenCommitted) {
  {
    OutputFile file(in("out"));
    file.stream() << "text";
    EXPECT_FALSE(std::filesystem::exists(in("out")));
    EXPECT_EQ(count(), 1U);  // the temporary one
    file.commit();
  }
  EXPECT_EQ(contents(in("out")), "text");
  EXPECT_EQ(count(), 1U);
}

TEST_F(OutputFileTest, LeavesNothingWithoutCommit) {
  write(in("out"), "old");
  {
    OutputFile file(in("out"));
    file.stream() << "new";
  }
  EXPECT_EQ(contents(in("out")), "old");
  EXPECT_EQ(count(), 1U);
}

TEST_F(OutputFileTest, KeepsPermissionsAndLinks) {
  write(in("target"), "old");
  ::chmod(in("target").c_str(), 0604);
  std::filesystem::create_symlink("target", in("link"));
  OutputFile file(in("link"));
  file.stream() << "new";
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(in("link")));
  EXPECT_EQ(contents(in("target")), "new");
  struct stat info {};
  ASSERT_EQ(::stat(in("target").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0604U);
}

TEST_F(OutputFileTest, NewFilesHaveTheUsualPermissions) {
  const mode_t before = ::umask(027);
  {
    OutputFile file(in("out"));
    file.commit();
  }
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(in("out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0640U);
}

TEST_F(OutputFileTest, SaysWhyItCannotBeWritten) {
  const auto error = [](const std::string& path) -> std::string {
    try {
      OutputFile file(path);
    } catch (const ToolError& failure) {
      EXPECT_EQ(failure.code(), kBadUsage);
      return failure.what();
    }
    return "(no error)";
  };
  EXPECT_THAT(error(in("no/such")), HasSubstr("No such file or directory"));
  EXPECT_THAT(error(path_), HasSubstr("Is a directory"));
  EXPECT_THAT(error(in("new/")), HasSubstr("Is a directory"));
  write(in("file"), "");
  EXPECT_THAT(error(in("file/x")), HasSubstr("Not a directory"));
  if (::getuid() != 0) {  // root may write anything
    ::chmod(in("file").c_str(), 0444);
    EXPECT_THAT(error(in("file")), HasSubstr("Permission denied"));
  }
}

TEST_F(OutputFileTest, ReportsADeviceThatIsFull) {
  OutputFile file("/dev/full");
  file.stream() << "text";
  try {
    file.commit();
    FAIL() << "expected an error";
  } catch (const ToolError& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("No space left on device"));
  }
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

Input open(const std::string& path, const std::string& standard_input = "",
           InputFormat format = InputFormat::kAuto) {
  ToolOptions options;
  options.input = path;
  options.format = format;
  std::istringstream in(standard_input);
  return openInput(options, in);
}

std::string inputError(const std::string& path,
                       const std::string& standard_input = "",
                       InputFormat format = InputFormat::kAuto) {
  try {
    open(path, standard_input, format);
  } catch (const ToolError& error) {
    EXPECT_EQ(error.code(), kBadInput);
    return error.where().file + ":" + std::to_string(error.where().line) +
           ": " + error.what();
  }
  return "(no error)";
}

TEST_F(InputTest, IsRecognisedByContent) {
  write(in("model.pt"), "graph():\n  return ()\n");
  EXPECT_EQ(open(in("model.pt")).kind, Input::Kind::kIr);
  const std::string zip("PK\x03\x04 and so on", 14);
  write(in("graph.ir"), zip);
  EXPECT_EQ(open(in("graph.ir")).kind, Input::Kind::kModule);
  EXPECT_EQ(open("-", zip).kind, Input::Kind::kModule);
  EXPECT_EQ(open("-", "graph()").kind, Input::Kind::kIr);
  EXPECT_EQ(open("-", "graph()").name, "<stdin>");
  EXPECT_EQ(open("-", "graph()").text, "graph()");
}

TEST_F(InputTest, TextMayBeOfAnyLengthAndAlphabet) {
  for (const std::size_t size : {4094U, 4095U, 4096U, 4097U, 9000U}) {
    const std::string text = std::string(size, ' ') + "\xe2\x82\xac end";
    write(in("t"), text);
    EXPECT_EQ(open(in("t")).text, text);
    EXPECT_EQ(open("-", text).text, text);
  }
}

TEST_F(InputTest, SaysWhatItFoundInstead) {
  EXPECT_THAT(inputError(in("none")), HasSubstr("No such file or directory"));
  EXPECT_THAT(inputError(path_), HasSubstr("is a directory"));
  EXPECT_THAT(inputError("-", ""), HasSubstr("is empty"));
  EXPECT_THAT(inputError("-", std::string("\x80\x02}q\0.", 6)),
              HasSubstr("this is a Python pickle"));
  EXPECT_THAT(inputError("-", std::string("\x1c\0\0\0PTMF\0\0", 10)),
              HasSubstr("a model for mobile devices"));
  EXPECT_THAT(inputError("-", std::string("\x7f"
                                          "ELF\0\0",
                                          6)),
              HasSubstr("found binary data"));
  EXPECT_THAT(inputError("-", "graph()\n # \xff\n"),
              HasSubstr("<stdin>:2: expected IR text in UTF-8"));
  EXPECT_THAT(inputError("-", std::string(5000, '\n') + std::string(1, '\0')),
              HasSubstr("<stdin>:5001: expected IR text, found a NUL byte"));
  EXPECT_THAT(inputError("-", "graph()", InputFormat::kModule),
              HasSubstr("is no TorchScript file"));
  EXPECT_THAT(inputError("-", std::string("PK\x03\x04\0", 5), InputFormat::kIr),
              HasSubstr("found"));
}

// A zip archive with entries of the given names, sizes as stated.
std::string zipDirectory(
    const std::vector<std::pair<std::string, std::uint32_t>>& entries) {
  std::string directory;
  const auto put = [&](std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      directory += static_cast<char>((value >> (8 * i)) & 0xff);
    }
  };
  for (const auto& [name, size] : entries) {
    put(0x02014b50, 4);
    put(0, 12);
    put(0x12345678, 4);  // checksum
    put(10, 4);          // packed
    put(size, 4);
    put(name.size(), 2);
    put(0, 16);
    directory += name;
  }
  const std::size_t directory_size = directory.size();
  put(0x06054b50, 4);
  put(0, 4);
  put(entries.size(), 2);
  put(entries.size(), 2);
  put(directory_size, 4);
  put(0, 4);
  put(0, 2);
  return directory;
}

std::string archiveError(const std::string& bytes) {
  std::istringstream in(bytes);
  try {
    expectTorchScript(listArchive(in, "a.pt"), "a.pt");
  } catch (const ToolError& error) {
    EXPECT_EQ(error.where().file, "a.pt");
    return error.what();
  }
  return "(no error)";
}

TEST(Archive, ListsEntries) {
  std::istringstream in(zipDirectory({{"m/constants.pkl", 20},
                                      {"m/extra/b/c", 3},
                                      {"m/extra/a", 4},
                                      {"m/extra/", 0}}));
  const auto entries = listArchive(in, "a.pt");
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].name, "m/constants.pkl");
  EXPECT_EQ(entries[0].size, 20U);
  EXPECT_EQ(entries[0].packed_size, 10U);
  EXPECT_EQ(entries[0].checksum, 0x12345678U);
  EXPECT_EQ(nameInArchive(entries[0]), "constants.pkl");
  EXPECT_THAT(extraFileNames(entries), testing::ElementsAre("a", "b/c"));
}

TEST(Archive, KnowsWhatIsNoTorchScript) {
  EXPECT_EQ(archiveError(zipDirectory({{"m/constants.pkl", 1}})), "(no error)");
  EXPECT_THAT(archiveError(zipDirectory({{"m/data.pkl", 1}})),
              HasSubstr("Python pickle written by torch.save"));
  EXPECT_THAT(archiveError(zipDirectory({{"m/archive_format", 1}})),
              HasSubstr("torch.export archive"));
  EXPECT_THAT(archiveError(zipDirectory({{"word/document.xml", 1}})),
              HasSubstr("it has no constants.pkl"));
  EXPECT_THAT(archiveError(zipDirectory({})), HasSubstr("no constants.pkl"));
}

TEST(Archive, SurvivesEveryDamage) {
  const std::string good =
      zipDirectory({{"m/constants.pkl", 1}, {"m/code/a.py", 2}});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(archiveError(good.substr(0, size)),
                HasSubstr("truncated or damaged"));
  }
  for (std::size_t i = 0; i < good.size() * 8; ++i) {
    std::string damaged = good;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    archiveError(damaged);  // Any answer but a crash.
  }
}

TEST(Archive, RefusesBombs) {
  std::vector<std::pair<std::string, std::uint32_t>> entries(
      16, {"m/constants.pkl", 0xfffffff0U});
  EXPECT_THAT(archiveError(zipDirectory(entries)),
              HasSubstr("would unpack to more than 200 times its size"));
}

TEST(Archive, RefusesFilesThatLieOverEachOther) {
  const std::vector<std::pair<std::string, std::uint32_t>> entries(4,
                                                                   {"m/a", 10});
  std::string archive = zipDirectory(entries);
  // Each claims most of the archive for itself.
  for (std::size_t i = 0; i < entries.size(); ++i)
    archive[i * 49 + 20] = static_cast<char>(100);
  EXPECT_THAT(archiveError(archive), HasSubstr("its files are larger than "));
}

TEST(Archive, Crc32IsTheUsualOne) {
  EXPECT_EQ(crc32("123456789", 9), 0xcbf43926U);
  EXPECT_EQ(crc32("", 0), 0U);
  const std::string text(1000, 'x');
  EXPECT_EQ(crc32(text.data(), 1000), 0x3b41c9e6U);
}

}  // namespace
}  // namespace pcg::opt
