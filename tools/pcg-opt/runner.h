#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/passes.h"

namespace pcg::opt {

/// Seconds that passes took, in the order in which they first ran.
class PassTimes {
 public:
  void add(const std::string& pass, double seconds);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, double>> times_;
};

/// Runs passes with everything the command line asked to see between them:
/// IR before and after, remarks, checks, times. Throws ToolError as runPass
/// does.
class Runner {
 public:
  Runner(const ToolOptions& options, Diagnostics& diagnostics,
         std::ostream& err)
      : options_(options), diagnostics_(diagnostics), err_(err) {}

  void run(const Pipeline& pipeline, WorkState& state);

  /// What `run` prints after a pass, for one that ran elsewhere.
  void printAfter(const std::string& pass, const WorkState& state);

  const PassTimes& times() const { return times_; }

 private:
  void runOne(const PassInstance& instance, WorkState& state);
  void dump(const std::string& title, const WorkState& state);
  void check(const std::string& pass, const WorkState& state) const;

  const ToolOptions& options_;
  Diagnostics& diagnostics_;
  std::ostream& err_;
  PassTimes times_;
};

}  // namespace pcg::opt
