// pcg_fuzz: random TorchScript programs, original and partitioned in lockstep.

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "test/fuzz/compare.h"
#include "test/fuzz/generator.h"
#include "test/fuzz/isolate.h"
#include "test/fuzz/lockstep.h"
#include "test/fuzz/program.h"
#include "test/fuzz/shrink.h"

namespace pcg::fuzz {
namespace {

constexpr const char* kUsage =
    R"(usage: pcg_fuzz [--seed=N] [--count=M] [--minutes=T] [--print]
                [--no-shrink] [--min-replayed=PERCENT] [--most-failures=K]

Makes the programs of the seeds N to N+M-1, partitions each for the host back
end, and compares every call with the original's.

  --seed=N                first seed (1)
  --count=M               programs (100)
  --minutes=T             stop after T minutes, though fewer were run
  --print                 print each program instead of running it
  --no-shrink             report failing programs as they were made
  --min-replayed=PERCENT  fail where fewer programs had a segment that replayed
  --most-failures=K       stop after K differences (1)

Exit code 1: a difference, or too few replays. 2: a bad command line.
)";

// A program takes some ten milliseconds.
constexpr int kSilence = 60;
constexpr int kSilenceWhenShrinking = 10;
constexpr std::chrono::seconds kShrinkingTime(240);
constexpr std::uint64_t kBatch = 100;

using Clock = std::chrono::steady_clock;

struct Settings {
  std::uint64_t seed = 1;
  std::uint64_t count = 100;
  std::uint64_t minutes = 0;
  std::uint64_t min_replayed = 0;
  std::uint64_t most_failures = 1;
  bool print = false;
  bool shrink = true;
};

struct Totals {
  std::uint64_t programs = 0;
  std::uint64_t replayed = 0;
  std::uint64_t passed_over = 0;
  std::uint64_t failures = 0;
  std::int64_t calls = 0;
  std::int64_t raised = 0;
  std::int64_t segments = 0;
  std::int64_t replays = 0;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&](const char* option, std::uint64_t& value) {
      const std::size_t length = std::strlen(option);
      if (word.compare(0, length, option) != 0)
        return false;
      const char* end = word.data() + word.size();
      const auto [stop, error] =
          std::from_chars(word.data() + length, end, value);
      if (error != std::errc() || stop != end) {
        throw std::invalid_argument("expected a number after " +
                                    std::string(option) + ", found '" +
                                    word.substr(length) + "'");
      }
      return true;
    };
    if (word == "--print") {
      settings.print = true;
    } else if (word == "--no-shrink") {
      settings.shrink = false;
    } else if (!number("--seed=", settings.seed) &&
               !number("--count=", settings.count) &&
               !number("--minutes=", settings.minutes) &&
               !number("--min-replayed=", settings.min_replayed) &&
               !number("--most-failures=", settings.most_failures)) {
      throw std::invalid_argument("unknown option '" + word + "'");
    }
  }
  return settings;
}

std::string encode(const Outcome& outcome) {
  std::ostringstream out;
  out << static_cast<int>(outcome.difference.failure) << ' ' << outcome.calls
      << ' ' << outcome.raised << ' ' << outcome.segments << ' '
      << outcome.replays << '\n'
      << outcome.difference.text;
  return out.str();
}

Outcome decode(const std::string& message) {
  Outcome outcome;
  std::istringstream in(message);
  int failure = 0;
  in >> failure >> outcome.calls >> outcome.raised >> outcome.segments >>
      outcome.replays;
  outcome.difference.failure = static_cast<Failure>(failure);
  outcome.difference.text = message.substr(message.find('\n') + 1);
  return outcome;
}

bool failed(const Outcome& outcome) {
  return outcome.difference.failure != Failure::kNone &&
         outcome.difference.failure != Failure::kCompiler;
}

// What a child that sent no outcome died of.
Difference died(const Ending& ending) {
  if (ending.timed_out)
    return {Failure::kHang, "the program did not end"};
  if (ending.signal != 0)
    return {Failure::kCrash, "signal " + std::to_string(ending.signal)};
  return {Failure::kCrash, "exit code " + std::to_string(ending.code)};
}

Outcome runAlone(const Program& program, int silence) {
  std::optional<Outcome> outcome;
  const Ending ending = runInChild(
      [&](const Receive& send) { send(encode(runLockstep(program))); },
      [&](const std::string& message) { outcome = decode(message); }, silence);
  if (!outcome) {
    outcome.emplace();
    outcome->difference = died(ending);
  }
  return *outcome;
}

// The part of a failure that a smaller program must show too: its kind, and
// where it is a matter of words, those.
bool sameFailure(const Difference& a, const Difference& b) {
  if (a.failure != b.failure)
    return false;
  const auto place = [](const Difference& difference) {
    const std::string& text = difference.text;
    switch (difference.failure) {
      case Failure::kCrash:
      case Failure::kText:
      case Failure::kRefused:
        return text.substr(0, 40);
      case Failure::kError:
        return text.substr(std::min(text.find(','), text.size()));
      default:
        return std::string();
    }
  };
  return place(a) == place(b);
}

void report(const Program& program, const Difference& difference,
            const char* heading) {
  std::fprintf(stderr, "---- seed %llu: %s: %s\n%s\n%s\n",
               static_cast<unsigned long long>(program.seed), heading,
               toString(difference.failure), difference.text.c_str(),
               program.render().c_str());
}

void handleFailure(std::uint64_t seed, const Difference& difference,
                   bool shrinking) {
  const Program program = generate(seed);
  if (shrinking) {
    std::fprintf(stderr, "seed %llu: %s: %s\nshrinking ...\n",
                 static_cast<unsigned long long>(seed),
                 toString(difference.failure), difference.text.c_str());
    const auto start = Clock::now();
    Difference latest = difference;
    const Program small = shrink(
        program,
        [&](const Program& candidate) {
          const Outcome outcome = runAlone(candidate, kSilenceWhenShrinking);
          if (!sameFailure(outcome.difference, difference))
            return false;
          latest = outcome.difference;
          return true;
        },
        [&] { return Clock::now() - start > kShrinkingTime; });
    report(small, latest, "shrunk");
  } else {
    report(program, difference, "as made");
  }
  std::fprintf(stderr, "rerun with: pcg_fuzz --seed=%llu --count=1\n",
               static_cast<unsigned long long>(seed));
}

// Runs the seeds from `first` to before `end` in one child, up to the first
// failure. Returns the seed to go on with.
std::uint64_t runBatch(std::uint64_t first, std::uint64_t end,
                       const Settings& settings, Totals& totals) {
  std::uint64_t seed = first;
  bool found = false;
  Difference difference;
  const Ending ending = runInChild(
      [&](const Receive& send) {
        for (std::uint64_t at = first; at < end; ++at) {
          const Outcome outcome = runLockstep(generate(at));
          send(encode(outcome));
          if (failed(outcome))
            return;
        }
      },
      [&](const std::string& message) {
        const Outcome outcome = decode(message);
        ++totals.programs;
        totals.calls += outcome.calls;
        totals.raised += outcome.raised;
        totals.segments += outcome.segments;
        totals.replays += outcome.replays;
        totals.replayed += outcome.replays > 0 ? 1 : 0;
        difference = outcome.difference;
        found = failed(outcome);
        if (difference.failure == Failure::kCompiler)
          ++totals.passed_over;
        ++seed;
      },
      kSilence);
  std::uint64_t culprit = seed - 1;
  if (!found) {
    if (seed == end)
      return end;
    difference = died(ending);
    culprit = seed++;
    ++totals.programs;
  }
  ++totals.failures;
  handleFailure(culprit, difference, settings.shrink);
  return seed;
}

Program smallest() {
  const Type rows = tensorType('f', "ND");
  Program program;
  program.module.name = "Model";
  program.module.functions.push_back(
      {"forward", {{"x", rows}}, {}, {rows, "torch.relu(x)", {}}});
  program.calls.resize(3);
  for (Call& call : program.calls)
    call.method = "forward";
  return program;
}

int run(const Settings& settings) {
  const std::uint64_t end = settings.seed + settings.count;
  if (settings.print) {
    for (std::uint64_t seed = settings.seed; seed < end; ++seed) {
      std::printf("# seed %llu\n%s\n", static_cast<unsigned long long>(seed),
                  generate(seed).render().c_str());
    }
    return 0;
  }
  // Children inherit what this process has set up, and no second thread.
  at::set_num_threads(1);
  runLockstep(smallest());

  Totals totals;
  const auto start = Clock::now();
  const auto limit = std::chrono::minutes(settings.minutes);
  std::uint64_t seed = settings.seed;
  std::uint64_t told = 0;
  while (seed < end && totals.failures < settings.most_failures &&
         (settings.minutes == 0 || Clock::now() - start < limit)) {
    seed = runBatch(seed, std::min(end, seed + kBatch), settings, totals);
    if (totals.programs >= told + 1000) {
      told = totals.programs;
      std::fprintf(stderr, "%llu programs, %llu failures, next seed %llu\n",
                   static_cast<unsigned long long>(totals.programs),
                   static_cast<unsigned long long>(totals.failures),
                   static_cast<unsigned long long>(seed));
    }
  }
  const std::uint64_t share =
      totals.programs == 0 ? 0 : totals.replayed * 100 / totals.programs;
  std::printf(
      "seeds %llu to %llu: %llu programs (%llu passed over), %lld calls (%lld "
      "raised), %lld "
      "segments, %lld replays, %llu%% of the programs replayed, %llu "
      "failures\n",
      static_cast<unsigned long long>(settings.seed),
      static_cast<unsigned long long>(seed - 1),
      static_cast<unsigned long long>(totals.programs),
      static_cast<unsigned long long>(totals.passed_over),
      static_cast<long long>(totals.calls),
      static_cast<long long>(totals.raised),
      static_cast<long long>(totals.segments),
      static_cast<long long>(totals.replays),
      static_cast<unsigned long long>(share),
      static_cast<unsigned long long>(totals.failures));
  if (share < settings.min_replayed) {
    std::fprintf(stderr,
                 "pcg_fuzz: expected %llu%% of the programs to replay a "
                 "segment, found %llu%%\n",
                 static_cast<unsigned long long>(settings.min_replayed),
                 static_cast<unsigned long long>(share));
    return 1;
  }
  return totals.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pcg::fuzz

int main(int argc, char** argv) {
  pcg::fuzz::Settings settings;
  try {
    settings = pcg::fuzz::parse(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "pcg_fuzz: %s\n%s", error.what(), pcg::fuzz::kUsage);
    return 2;
  }
  try {
    return pcg::fuzz::run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pcg_fuzz: %s\n", error.what());
    return 1;
  }
}
