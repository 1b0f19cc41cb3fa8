#pragma once

#include <functional>
#include <string>

namespace pcg::fuzz {

/// How a child process ended.
struct Ending {
  int signal = 0;          ///< That ended it, or 0.
  int code = 0;            ///< Its exit code.
  bool timed_out = false;  ///< Ended by us after a silence.
};

using Receive = std::function<void(const std::string& message)>;

/// Runs `work` in a child process, which a crash or an endless loop ends alone.
/// What it passes to its argument arrives, in order, at `receive` in this
/// process. A child that sends nothing for `silence` seconds is killed. An
/// exception that leaves `work` ends the child with code 3 and its text on
/// stderr. REQUIRES: this process has no other thread.
Ending runInChild(const std::function<void(const Receive& send)>& work,
                  const Receive& receive, int silence);

}  // namespace pcg::fuzz
