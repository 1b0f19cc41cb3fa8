#include "test/fuzz/isolate.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

namespace pcg::fuzz {
namespace {

// Ends a message; none contains it.
constexpr char kEnd = '\0';

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void writeAll(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR)
      fail("cannot write to the parent process");
    if (count > 0)
      done += static_cast<std::size_t>(count);
  }
}

[[noreturn]] void child(int file,
                        const std::function<void(const Receive&)>& work) {
  int code = 0;
  try {
    work(
        [file](const std::string& message) { writeAll(file, message + kEnd); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pcg_fuzz: %s\n", error.what());
    code = 3;
  }
  std::fflush(nullptr);
  // Destructors and exit handlers belong to the parent.
  _exit(code);
}

}  // namespace

Ending runInChild(const std::function<void(const Receive& send)>& work,
                  const Receive& receive, int silence) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0)
    fail("cannot make a pipe");
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0)
    fail("cannot start a process");
  if (process == 0) {
    close(ends[0]);
    child(ends[1], work);
  }
  close(ends[1]);

  Ending ending;
  std::string pending;
  std::array<char, 4096> buffer{};
  while (true) {
    pollfd waiting{ends[0], POLLIN, 0};
    const int ready = poll(&waiting, 1, silence * 1000);
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready == 0) {
      ending.timed_out = true;
      kill(process, SIGKILL);
      break;
    }
    const ssize_t count = read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    pending.append(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t end = pending.find(kEnd); end != std::string::npos;
         end = pending.find(kEnd)) {
      receive(pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    ending.signal = WTERMSIG(status);
  else
    ending.code = WEXITSTATUS(status);
  return ending;
}

}  // namespace pcg::fuzz
