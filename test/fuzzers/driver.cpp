// Stands in for libFuzzer where the compiler has none:
//
//     ir_reader_fuzzer [-seconds=N] [-seed=N] CORPUS...
//
// runs the target on every file of the corpus and then, for N seconds (default:
// 0), on random changes of them. What it ran last when the target ended the
// process is in the file crash-input.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

std::string current;  // Read by a signal handler.

extern "C" void saveInput(int signal) {
  const int file = ::open("crash-input", O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const auto written = ::write(file, current.data(), current.size());
  (void)written;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()),
                         current.size());
}

std::vector<std::string> readCorpus(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      names.push_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file())
        names.push_back(entry.path().string());
    }
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> corpus;
  for (const std::string& name : names) {
    std::ifstream file(name, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file),
                        std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(std::uint64_t seed, const std::vector<std::string>& corpus)
      : random_(seed), corpus_(corpus) {}

  std::string next() {
    std::string text = pick();
    for (std::size_t edits = 1 + below(4); edits > 0; --edits)
      edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(random_() %
                                    std::max<std::size_t>(bound, 1));
  }
  const std::string& pick() { return corpus_[below(corpus_.size())]; }

  void edit(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < text.size())
          text[at] = static_cast<char>(below(256));
        break;
      case 1:
        if (at < text.size())
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 2:
        text.erase(at, 1 + below(16));
        break;
      case 3: {
        const std::string& other = pick();
        text.insert(at, other.substr(below(other.size()), below(48)));
        break;
      }
      case 4: {  // Repeat, or move, a piece of its own.
        const std::string piece = text.substr(below(text.size()), below(32));
        text.insert(at, piece);
        break;
      }
      case 5: {  // The end of another.
        const std::string& other = pick();
        text = text.substr(0, at) + other.substr(below(other.size()));
        break;
      }
      default: {
        static constexpr std::string_view kMarks = "%()[]{}<>:,=.-#\"\\ \n09";
        text.insert(at, 1, kMarks[below(kMarks.size())]);
      }
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& corpus_;
};

bool takeNumber(std::string_view argument, std::string_view name,
                std::uint64_t& number) {
  if (argument.substr(0, name.size()) != name)
    return false;
  argument.remove_prefix(name.size());
  const auto result = std::from_chars(
      argument.data(), argument.data() + argument.size(), number);
  return result.ec == std::errc() &&
         result.ptr == argument.data() + argument.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seconds = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> paths;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const std::string& argument : arguments) {
    if (takeNumber(argument, "-seconds=", seconds) ||
        takeNumber(argument, "-seed=", seed)) {
      continue;
    }
    if (argument.rfind('-', 0) == 0 || !std::filesystem::exists(argument)) {
      std::fprintf(stderr, "usage: %s [-seconds=N] [-seed=N] CORPUS...\n",
                   argv[0]);
      return 2;
    }
    paths.push_back(argument);
  }
  const std::vector<std::string> corpus = readCorpus(paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "expected a corpus, found no file\n");
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, saveInput);
  for (const std::string& input : corpus)
    run(input);
  std::uint64_t runs = corpus.size();
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  for (Mutator mutator(seed, corpus); Clock::now() < end; ++runs)
    run(mutator.next());
  std::printf("%llu inputs, no failure\n",
              static_cast<unsigned long long>(runs));
  return 0;
}
