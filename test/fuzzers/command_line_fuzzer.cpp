// One argument a line: each command line must be taken or refused as bad
// usage, and a pipeline that was read must read back from its own text.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/pipeline.h"
#include "tools/pcg-run/input_spec.h"
#include "tools/pcg-run/run_options.h"

namespace {

using pcg::opt::ToolError;

constexpr std::size_t kLongest = 1 << 12;

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

template <typename Function>
void mustRefuseOrTake(const std::string& text, const Function& function) {
  try {
    function();
  } catch (const ToolError& error) {
    if (error.code() != pcg::opt::kBadUsage || error.what()[0] == '\0')
      fail("refused, but not as bad usage with a message", text);
  } catch (const std::exception& error) {
    fail(error.what(), text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size > kLongest)
    return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> arguments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    arguments.push_back(line);
  mustRefuseOrTake(text, [&] { pcg::opt::parseCommandLine(arguments); });
  mustRefuseOrTake(text, [&] { pcg::run::parseCommandLine(arguments); });
  for (const std::string& argument : arguments) {
    mustRefuseOrTake(argument, [&] {
      const std::string read = toString(pcg::opt::parsePipeline(argument));
      if (toString(pcg::opt::parsePipeline(read)) != read)
        fail("a pipeline reads back as another", argument);
    });
    // Files are none of its business.
    if (argument.find('@') == std::string::npos)
      mustRefuseOrTake(argument, [&] { pcg::run::InputSpec::parse(argument); });
  }
  return 0;
}
