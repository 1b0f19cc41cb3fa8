#include "tools/pcg-opt/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"

namespace pcg::opt {
namespace {

// Read by signal handlers.
std::string crash_message;             // NOLINT(cert-err58-cpp)
char temporary_on_disk[PATH_MAX + 1];  // NOLINT(modernize-avoid-c-arrays)
volatile std::sig_atomic_t has_temporary = 0;

extern "C" void removeTemporaryAndDie(int signal) {
  if (has_temporary != 0)
    ::unlink(temporary_on_disk);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

extern "C" void reportCrash(int /*signal*/) {
  if (has_temporary != 0)
    ::unlink(temporary_on_disk);
  const auto written =
      ::write(STDERR_FILENO, crash_message.data(), crash_message.size());
  (void)written;  // Nothing is left to do about it.
  ::_exit(kInternal);
}

void remember(const std::string& path) {
  if (path.size() > PATH_MAX)
    return;
  std::memcpy(temporary_on_disk, path.c_str(), path.size() + 1);
  has_temporary = 1;
}

void forget() {
  has_temporary = 0;
}

[[noreturn]] void cannotWrite(const std::string& path, int error) {
  throw ToolError(kBadUsage,
                  "cannot write " + path + ": " + std::strerror(error));
}

std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr)
    return path;
  std::string result(real);
  std::free(real);  // NOLINT(cppcoreguidelines-no-malloc)
  return result;
}

std::string folderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return "";
  return path.substr(0, slash + 1);
}

mode_t usualMode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

OutputFile::OutputFile(const std::string& path)
    : path_(path), target_(resolved(path)) {
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode))
    cannotWrite(path_, EISDIR);
  if (!exists && !path.empty() && path.back() == '/') {
    cannotWrite(path_, EISDIR);
  }
  if (exists && ::access(target_.c_str(), W_OK) != 0) {
    cannotWrite(path_, errno);
  }
  if (!exists || S_ISREG(info.st_mode)) {
    openTemporary();
    ::chmod(temporary_.c_str(), exists ? info.st_mode & 07777 : usualMode());
  }
  stream_.open(temporary_.empty() ? target_ : temporary_,
               std::ios::binary | std::ios::trunc);
  if (!stream_) {
    const int error = errno;
    if (!temporary_.empty())
      ::unlink(temporary_.c_str());
    forget();
    cannotWrite(path_, error);
  }
}

void OutputFile::openTemporary() {
  const std::string pattern = folderOf(target_) + ".pcg-opt-XXXXXX";
  std::vector<char> name(pattern.begin(), pattern.end());
  name.push_back('\0');
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0)
    cannotWrite(path_, errno);
  ::close(descriptor);
  temporary_ = name.data();
  remember(temporary_);
}

OutputFile::~OutputFile() {
  stream_.close();
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    forget();
  }
}

void OutputFile::commit() {
  errno = 0;
  stream_.flush();
  stream_.close();
  if (!stream_)
    cannotWrite(path_, errno != 0 ? errno : EIO);
  if (temporary_.empty())
    return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    cannotWrite(path_, errno);
  }
  temporary_.clear();
  forget();
}

void installSignalHandlers(const char* program) {
  crash_message = std::string(program) +
                  ": internal error: the program crashed; please report it\n";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // What the caller ignores, as nohup does, stays ignored.
    if (std::signal(signal, removeTemporaryAndDie) == SIG_IGN) {
      std::signal(signal, SIG_IGN);
    }
  }
  std::signal(SIGPIPE, SIG_IGN);
  // A stack of their own, for crashes that come of a full one.
  constexpr std::size_t kStackSize = std::size_t{64} << 10U;
  static std::array<char, kStackSize> crash_stack;
  stack_t stack{};
  stack.ss_sp = crash_stack.data();
  stack.ss_size = crash_stack.size();
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = reportCrash;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace pcg::opt
