// Every bad input ends with an error that says what is wrong, and exit code 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tools/pcg-opt/pcg_opt.h"
#include "tools/pcg-opt/source_text.h"
#include "tools/pcg-run/pcg_run.h"

namespace pcg {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

struct Result {
  int code;
  std::string out;
  std::string err;
};

Result optimize(const std::vector<const char*>& arguments,
                const std::string& in) {
  std::istringstream input(in);
  std::ostringstream out;
  std::ostringstream err;
  const int code = runPcgOpt(static_cast<int>(arguments.size()),
                             arguments.data(), input, out, err);
  return {code, out.str(), err.str()};
}

Result partitionText(const std::string& in) {
  return optimize({"pcg-opt", "--partition", "-"}, in);
}

// What the tool prints of a bad input is short, whatever the input is.
void expectRefusal(const Result& result, const std::string& message,
                   const std::string& what) {
  EXPECT_EQ(result.code, 1) << what << ": " << result.err.substr(0, 400);
  EXPECT_EQ(result.out, "") << what;
  EXPECT_THAT(result.err, HasSubstr("error: ")) << what;
  EXPECT_THAT(result.err, HasSubstr(message)) << what;
  EXPECT_THAT(result.err, Not(HasSubstr("internal error"))) << what;
  EXPECT_LT(result.err.size(), 4000U) << what;
}

std::string zeros(std::size_t size) {
  return std::string(size, '\0');
}

TEST(BadInputs, FilesOfOtherKindsAreNamed) {
  struct Case {
    const char* what;
    std::string bytes;
    const char* message;
  };
  const std::string graph = "graph(%x : Tensor):\n  return (%x)\n";
  std::string utf16 = "\xff\xfe";
  for (const char c : graph) {
    utf16 += c;
    utf16 += '\0';
  }
  for (const Case& item : std::vector<Case>{
           {"nothing", "", "is empty"},
           {"blanks", " \n\t\r\n", "expected a graph"},
           {"a comment", "# no more", "expected a graph"},
           {"zeros", zeros(5000), "found binary data"},
           {"pickle 2", std::string("\x80\x02}q\0.", 6), "a Python pickle"},
           {"pickle 3", "\x80\x03]q.", "a Python pickle"},
           {"pickle 4", "\x80\x04\x95.", "a Python pickle"},
           {"pickle 5", "\x80\x05\x95.", "a Python pickle"},
           {"pickle 0", "(dp0\n.", "expected IR text"},
           {"mobile model", std::string("\x1c\0\0\0PTMF\0\0", 10),
            "a model for mobile devices"},
           {"ELF", "\x7f" + std::string("ELF\2\1\1\0\0", 9), "found binary"},
           {"gzip", std::string("\x1f\x8b\x08\0\0\0\0\0", 8), "found "},
           {"PNG", std::string("\x89PNG\r\n\x1a\n\0", 9), "found binary data"},
           {"JSON", "{\"a\": 1}", "expected IR text"},
           {"Python", "import torch\n", "expected IR text"},
           {"UTF-16", utf16, "found binary data"},
           {"Latin-1", graph + "# \xe4\n", "in UTF-8, found another byte"},
           {"half a character", graph + "# \xe2\x82", "in UTF-8"},
           {"surrogate", graph + "# \xed\xa0\x80", "in UTF-8"},
           {"NUL", graph + "#" + zeros(1), "found binary data"},
           {"late NUL", graph + std::string(9000, '#') + zeros(1), "a NUL"},
           {"zip head", "PK\x03\x04", "it has no directory"},
           {"empty zip", "PK\x05\x06" + zeros(18), "no constants.pkl"}}) {
    expectRefusal(partitionText(item.bytes), item.message, item.what);
  }
}

TEST(BadInputs, TextsOfTenMegabytesAreRefusedInShort) {
  constexpr std::size_t kSize = 10'000'000;
  struct Case {
    const char* what;
    std::string text;
    const char* message;
  };
  std::string lines = "graph():\n";
  while (lines.size() < kSize)
    lines += "  %x : int = prim::Constant[value=1](%none)\n";
  lines += "  return ()\n";
  for (const Case& item : std::vector<Case>{
           {"one word", std::string(kSize, 'a'), "expected IR text"},
           {"blanks", "graph():" + std::string(kSize, ' ') + "x", "expected"},
           {"brackets", "graph" + std::string(kSize, '('), "expected"},
           {"a type", "graph(%x : " + std::string(kSize, '('), "nests more"},
           {"a name", "graph(%" + std::string(kSize, 'x'), "expected"},
           {"a number",
            "graph():\n  %x : int = prim::Constant[value=" +
                std::string(kSize, '9') + "]()\n  return (%x)\n",
            "value"},
           {"a string",
            "graph():\n  %x : str = prim::Constant[value=\"" +
                std::string(kSize, 's'),
            "string"},
           {"a list",
            "graph():\n  %x : int = prim::Constant[value=" +
                std::string(kSize, '['),
            "nests more"},
           {"many mistakes", lines, "too many errors"}}) {
    expectRefusal(partitionText(item.text), item.message, item.what);
  }
}

// The texts of lit/pcg-opt/ir-errors.ir, where each message is compared.
TEST(BadInputs, EveryMistakeInIrTextIsRefused) {
  std::ifstream file(PCG_SOURCE_DIR "/lit/pcg-opt/ir-errors.ir");
  const std::string text{std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>()};
  std::vector<std::size_t> near_misses;
  const auto parts = opt::splitText(text, "# -----", near_misses);
  ASSERT_GT(parts.size(), 40U);
  for (const auto& part : parts)
    expectRefusal(optimize({"pcg-opt", "-"}, part.text), "<stdin>:", part.text);
}

std::string archive() {
  torch::jit::Module module("Model");
  module.register_parameter("weight", torch::ones({64}), false);
  module.define(
      "def forward(self, x):\n  return torch.relu(x * self.weight)\n");
  std::ostringstream out;
  module.save(out);
  return out.str();
}

TEST(BadInputs, ArchivesCutAnywhereAreRefused) {
  const std::string whole = archive();
  for (std::size_t size = 4; size < whole.size(); size += 1 + size / 37) {
    expectRefusal(partitionText(whole.substr(0, size)), "truncated or damaged",
                  std::to_string(size) + " bytes");
  }
}

// A flipped bit is refused, or lies where nothing is read; then the module is
// the one that was saved.
TEST(BadInputs, FlippedBitsAreRefusedOrMeanNothing) {
  const std::string whole = archive();
  const Result good = optimize({"pcg-opt", "-"}, whole);
  ASSERT_EQ(good.code, 0) << good.err;
  int refused = 0;
  constexpr std::size_t kStep = 61;  // Prime: every bit of a byte has its turn.
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += kStep) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const Result result = optimize({"pcg-opt", "-"}, damaged);
    if (result.code == 0) {
      EXPECT_EQ(result.out, good.out) << "bit " << bit;
      continue;
    }
    ++refused;
    expectRefusal(result, "<stdin>", "bit " + std::to_string(bit));
  }
  EXPECT_GT(refused, 100);
}

TEST(BadInputs, PcgRunRefusesThemToo) {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "pcg-run-XXXXXX").string();
  const std::string folder = ::mkdtemp(pattern.data());
  const std::string whole = archive();
  int number = 0;
  for (const std::string& bytes :
       {std::string(), zeros(100), whole.substr(0, whole.size() / 2),
        std::string("\x80\x02}q\0.", 6),
        std::string("graph():\n  return ()")}) {
    const std::string path = folder + "/" + std::to_string(number++) + ".pt";
    std::ofstream(path, std::ios::binary) << bytes;
    const char* const arguments[] = {"pcg-run", path.c_str()};
    std::ostringstream out;
    std::ostringstream err;
    const int code = runPcgRun(2, arguments, out, err, false);
    expectRefusal({code, out.str(), err.str()}, path, path);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace pcg
