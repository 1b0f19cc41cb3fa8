// Any text must be read or refused with a message, and what was read must
// print to a text that reads back as the same.
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/ir_printer.h"
#include "tools/pcg-opt/ir_reader.h"
#include "tools/pcg-opt/source_text.h"

namespace {

using pcg::opt::Diagnostics;
using pcg::opt::ReadOptions;
using pcg::opt::SourceText;

constexpr std::size_t kLongest = 1 << 16;

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

void check(const std::string& text, bool allow_unregistered) {
  ReadOptions options;
  options.allow_unregistered_ops = allow_unregistered;
  std::ostringstream messages;
  Diagnostics diagnostics(messages);
  const SourceText source("fuzz.ir", text);
  const auto read = pcg::opt::readIr(source, options, diagnostics);
  if (!read) {
    if (messages.str().empty())
      fail("refused without a message", text);
    return;
  }
  const std::string printed = pcg::opt::printGraph(*read->graph);
  const SourceText again_source("again.ir", printed);
  options.allow_unregistered_ops = true;
  const auto again = pcg::opt::readIr(again_source, options, diagnostics);
  if (!again)
    fail("the printed text is refused", messages.str() + printed);
  if (pcg::opt::printGraph(*again->graph) != printed)
    fail("the printed text reads back as something else", printed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // The tool refuses these before it reads IR.
  if (size > kLongest || pcg::opt::findInvalidUtf8(text))
    return 0;
  check(text, false);
  check(text, true);
  return 0;
}
