#include "tools/pcg-opt/runner.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ostream>
#include <utility>

#include "tools/pcg-opt/error_text.h"
#include "tools/pcg-opt/explain.h"
#include "tools/pcg-opt/ir_printer.h"

namespace pcg::opt {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string allGraphs(const WorkState& state) {
  std::string text;
  for (const MethodState& method : state.methods) {
    text += printGraph(*method.graph);
  }
  return text;
}

}  // namespace

void PassTimes::add(const std::string& pass, double seconds) {
  const auto known =
      std::find_if(times_.begin(), times_.end(),
                   [&](const auto& item) { return item.first == pass; });
  if (known == times_.end()) {
    times_.emplace_back(pass, seconds);
  } else {
    known->second += seconds;
  }
}

std::string PassTimes::text() const {
  std::string text = "pass times in seconds:\n";
  double total = 0;
  const auto row = [&](double seconds, const std::string& name) {
    char number[32];  // NOLINT(modernize-avoid-c-arrays)
    std::snprintf(number, sizeof(number), "%10.4f  ", seconds);
    text += number + name + "\n";
  };
  for (const auto& [pass, seconds] : times_) {
    row(seconds, pass);
    total += seconds;
  }
  row(total, "total");
  return text;
}

void Runner::run(const Pipeline& pipeline, WorkState& state) {
  for (const PassInstance& instance : pipeline)
    runOne(instance, state);
}

void Runner::runOne(const PassInstance& instance, WorkState& state) {
  const std::string& name = instance.pass->name;
  if (options_.print_before_all || contains(options_.print_before, name)) {
    dump("before " + name, state);
  }
  const std::string before =
      options_.print_after_change ? allGraphs(state) : "";
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  try {
    runPass(instance, state, diagnostics_);
    check(name, state);
  } catch (const ToolError&) {
    if (options_.print_after_failure) {
      dump("after " + name + ", which failed", state);
    }
    throw;
  }
  times_.add(name, std::chrono::duration<double>(Clock::now() - start).count());
  // A plan is valid until the next pass.
  if (name == "plan")
    makeRemarks(state, options_.remarks, diagnostics_);
  const bool changed =
      options_.print_after_change && allGraphs(state) != before;
  if (changed || options_.print_after_all ||
      contains(options_.print_after, name)) {
    dump("after " + name, state);
  }
}

void Runner::printAfter(const std::string& pass, const WorkState& state) {
  if (options_.print_after_all || options_.print_after_change ||
      contains(options_.print_after, pass)) {
    dump("after " + pass, state);
  }
}

void Runner::dump(const std::string& title, const WorkState& state) {
  for (const MethodState& method : state.methods) {
    err_ << "# -----// IR dump " << title;
    if (state.loaded)
      err_ << " (" << method.name << ")";
    err_ << " //----- #\n" << printGraph(*method.graph) << '\n';
  }
}

void Runner::check(const std::string& pass, const WorkState& state) const {
  if (!options_.verify_each)
    return;
  for (const MethodState& method : state.methods) {
    try {
      method.graph->lint();
    } catch (const std::exception& error) {
      throw ToolError(kInternal, "pass '" + pass +
                                     "' left a graph that is not well formed "
                                     "(" +
                                     method.name + "): " + briefMessage(error));
    }
  }
}

}  // namespace pcg::opt
