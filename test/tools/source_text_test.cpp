#include "tools/pcg-opt/source_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/pcg-opt/suggest.h"

namespace pcg::opt {
namespace {

TEST(SourceText, CountsLinesAndColumnsFromOne) {
  const SourceText source("a.ir", "ab\ncd\r\n\nx");
  EXPECT_EQ(source.position(0).line, 1U);
  EXPECT_EQ(source.position(0).column, 1U);
  EXPECT_EQ(source.position(4).line, 2U);
  EXPECT_EQ(source.position(4).column, 2U);
  EXPECT_EQ(source.position(100).line, 4U);
  EXPECT_EQ(source.position(100).column, 2U);
  EXPECT_EQ(source.line(1), "ab");
  EXPECT_EQ(source.line(2), "cd");
  EXPECT_EQ(source.line(3), "");
  EXPECT_EQ(source.line(4), "x");
  EXPECT_EQ(source.line(0), "");
  EXPECT_EQ(source.line(5), "");
}

TEST(SourceText, APartKeepsTheNumbersOfItsFile) {
  const SourceText source("a.ir", "x\ny", 10);
  EXPECT_EQ(source.position(2).line, 11U);
  EXPECT_EQ(source.line(11), "y");
  EXPECT_EQ(source.line(1), "");
}

TEST(FindInvalidUtf8, AcceptsWholeCharactersOnly) {
  EXPECT_FALSE(findInvalidUtf8("abc \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_EQ(findInvalidUtf8(std::string("ab\0c", 4)), 2U);
  EXPECT_EQ(findInvalidUtf8("a\xff"), 1U);             // never used
  EXPECT_EQ(findInvalidUtf8("\xc3"), 0U);              // cut short
  EXPECT_EQ(findInvalidUtf8("\xc3(").value(), 0U);     // no continuation
  EXPECT_EQ(findInvalidUtf8("\xc0\x80"), 0U);          // overlong
  EXPECT_EQ(findInvalidUtf8("\xe0\x80\x80"), 0U);      // overlong
  EXPECT_EQ(findInvalidUtf8("\xed\xa0\x80"), 0U);      // surrogate
  EXPECT_EQ(findInvalidUtf8("\xf4\x90\x80\x80"), 0U);  // above U+10FFFF
}

TEST(SplitText, CutsAtMarkerLines) {
  std::vector<std::size_t> near;
  const auto parts =
      splitText("a\n# -----\nb\nc\n  # -----  \n# -----\n", "# -----", near);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].text, "a\n");
  EXPECT_EQ(parts[0].first_line, 1U);
  EXPECT_EQ(parts[1].text, "b\nc\n");
  EXPECT_EQ(parts[1].first_line, 3U);
  EXPECT_EQ(parts[2].text, "");
  EXPECT_EQ(parts[3].text, "");
  EXPECT_TRUE(near.empty());
}

TEST(SplitText, NamesLinesThatLookLikeMarkers) {
  std::vector<std::size_t> near;
  const auto parts =
      splitText("# ----\n#-----\n# ------ \n# -----// IR dump\n# --\n## ----\n",
                "# -----", near);
  EXPECT_EQ(parts.size(), 1U);
  EXPECT_EQ(near, (std::vector<std::size_t>{1, 2, 3}));
}

TEST(Nearest, FindsTheClosestWithinAThird) {
  const std::vector<std::string> words = {"outline", "plan", "prepare", "x"};
  EXPECT_EQ(nearest("outlin", words), "outline");
  EXPECT_EQ(nearest("oultine", words), "outline");  // a swap is one edit
  EXPECT_EQ(nearest("prepair", words), "prepare");
  EXPECT_EQ(nearest("plna", words), "plan");
  EXPECT_FALSE(nearest("freeze", words));
  EXPECT_FALSE(nearest("y", words));  // nothing in common
  EXPECT_FALSE(nearest("", words));
  EXPECT_FALSE(nearest(std::string(100000, 'a'), words));
  EXPECT_EQ(didYouMean("plam", words), "; did you mean 'plan'?");
  EXPECT_EQ(didYouMean("freeze", words), "");
}

}  // namespace
}  // namespace pcg::opt
