#include "tools/pcg-opt/diagnostics.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace pcg::opt {
namespace {

TEST(Diagnostics, PrintsPlaceLineAndCaret) {
  std::ostringstream err;
  Diagnostics diagnostics(err);
  const SourceText source("a.ir", "first\n  second\n");
  diagnostics.error(locate(source, 8), "wrong");
  EXPECT_EQ(err.str(), "a.ir:2:3: error: wrong\n  second\n  ^\n");
  EXPECT_EQ(diagnostics.errorCount(), 1U);
}

TEST(Diagnostics, PrintsFileOrProgramWhereThereIsNoLine) {
  std::ostringstream err;
  Diagnostics diagnostics(err);
  diagnostics.warning({"m.pt", 0, 0, ""}, "odd");
  diagnostics.remark({}, "fine");
  EXPECT_EQ(err.str(), "pcg-opt: warning: m.pt: odd\npcg-opt: remark: fine\n");
  EXPECT_EQ(diagnostics.errorCount(), 0U);
}

TEST(Diagnostics, CaretStandsUnderTabsAndWideCharacters) {
  std::ostringstream err;
  Diagnostics diagnostics(err);
  const SourceText source("a.ir", "\t\xc3\xa4\xc3\xa4 x");
  diagnostics.error(locate(source, 6), "wrong");
  EXPECT_EQ(err.str(),
            "a.ir:1:7: error: wrong\n\t\xc3\xa4\xc3\xa4 x\n\t   ^\n");
}

TEST(Diagnostics, LongLinesAreShownInPart) {
  std::ostringstream err;
  Diagnostics diagnostics(err);
  const SourceText source(
      "a.ir", std::string(100000, 'a') + "X" + std::string(100000, 'b'));
  diagnostics.error(locate(source, 100000), "wrong");
  std::istringstream lines(err.str());
  std::string head;
  std::string excerpt;
  std::string caret;
  std::getline(lines, head);
  std::getline(lines, excerpt);
  std::getline(lines, caret);
  EXPECT_LT(excerpt.size(), 200U);
  EXPECT_EQ(excerpt[caret.size() - 1], 'X');
  EXPECT_EQ(excerpt.substr(0, 3), "...");
}

bool verifies(const std::string& text, Severity severity, std::size_t line,
              const std::string& message) {
  std::ostringstream err;
  Diagnostics diagnostics(err);
  const SourceText source("a.ir", text);
  diagnostics.beginVerification(source);
  diagnostics.report({severity, {"a.ir", line, 1, ""}, message});
  const bool met = diagnostics.endVerification();
  EXPECT_EQ(met, err.str().empty()) << err.str();
  return met;
}

TEST(Diagnostics, ExpectationsNameLineSeverityAndText) {
  const auto error = Severity::kError;
  EXPECT_TRUE(verifies("# expected-error {{is bad}}", error, 1, "x is bad"));
  EXPECT_TRUE(verifies("x # expected-error {{bad}}", error, 1, "bad"));
  EXPECT_TRUE(verifies("# expected-error @+2 {{bad}}", error, 3, "bad"));
  EXPECT_TRUE(verifies("\n\n# expected-error@-1 {{bad}}", error, 2, "bad"));
  EXPECT_TRUE(verifies("\n# expected-error @above {{bad}}", error, 1, "bad"));
  EXPECT_TRUE(verifies("# expected-error @below {{bad}}", error, 2, "bad"));
  EXPECT_TRUE(verifies("# expected-error @7 {{bad}}", error, 7, "bad"));
  EXPECT_TRUE(verifies("# expected-error @unknown {{bad}}", error, 0, "bad"));
  EXPECT_TRUE(
      verifies("# expected-remark {{r}}", Severity::kRemark, 1, "a remark"));
  EXPECT_TRUE(verifies("# expected-warning {{w}}", Severity::kWarning, 1, "w"));
  EXPECT_TRUE(verifies("# expected-note {{n}}", Severity::kNote, 1, "n"));

  EXPECT_FALSE(verifies("# expected-error {{bad}}", error, 2, "bad"));
  EXPECT_FALSE(verifies("# expected-error {{bad}}", error, 1, "good"));
  EXPECT_FALSE(verifies("# expected-warning {{bad}}", error, 1, "bad"));
  EXPECT_FALSE(verifies("# expected-error bad", error, 1, "bad"));
  EXPECT_FALSE(verifies("# expected-error @-9 {{bad}}", error, 1, "bad"));
  EXPECT_FALSE(verifies("# expected-error @ {{bad}}", error, 1, "bad"));
  EXPECT_FALSE(verifies("nothing", error, 1, "bad"));
}

TEST(Diagnostics, EachExpectationMeetsOneMessage) {
  std::ostringstream err;
  Diagnostics diagnostics(err);
  const SourceText source(
      "a.ir", "# expected-error {{a}} expected-error {{a}} and expected-value");
  diagnostics.beginVerification(source);
  diagnostics.error(locate(source, 0), "a");
  diagnostics.error(locate(source, 0), "a");
  EXPECT_TRUE(diagnostics.endVerification());
  diagnostics.beginVerification(source);
  diagnostics.error(locate(source, 0), "a");
  EXPECT_FALSE(diagnostics.endVerification());
  EXPECT_NE(err.str().find("expected error \"a\" was not produced"),
            std::string::npos);
}

}  // namespace
}  // namespace pcg::opt
