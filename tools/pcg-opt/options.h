#pragma once

#include <pcg/options.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/pcg-opt/pipeline.h"

namespace pcg::opt {

/// What is written as the result.
enum class Emit {
  kIr,       ///< Graphs as text.
  kArchive,  ///< A TorchScript file.
  kPlan,     ///< Each node with its segment, or why it stays eager.
  kDot,      ///< The same for Graphviz.
  kHtml,     ///< The model's source as a page, each line with its segment.
};

enum class InputFormat { kAuto, kIr, kModule };
enum class ReportFormat { kNone, kText, kJson };

/// Which remarks are made of a plan.
struct Remarks {
  bool missed = false;  ///< Why nodes stay eager.
  bool passed = false;  ///< What became a segment or was rewritten.
};

/// A command line, checked as far as it can be without looking at the input.
struct ToolOptions {
  /// Set where the program only has to print something: `out` gets it.
  std::optional<std::string> print_and_exit;

  std::string input = "-";
  std::string output = "-";
  bool output_given = false;
  InputFormat format = InputFormat::kAuto;
  std::vector<std::string> methods;
  std::optional<std::string> split_marker;
  bool allow_unregistered_ops = false;
  std::vector<std::string> libraries;

  /// In order. An element without `pass` is the default pipeline.
  Pipeline pipeline;
  PartitionOptions partition;
  bool dump_pipeline = false;

  std::optional<Emit> emit;  ///< Unset: an archive with -o, else IR.
  ReportFormat report = ReportFormat::kNone;
  Remarks remarks;
  std::optional<double> require_coverage;
  bool stats = false;
  bool time_passes = false;

  std::vector<std::string> print_before;
  std::vector<std::string> print_after;
  bool print_before_all = false;
  bool print_after_all = false;
  bool print_after_change = false;
  bool print_after_failure = false;
  bool print_alias_db = false;

  bool verify_each = true;
  bool verify_roundtrip = false;
  bool verify_diagnostics = false;
};

/// Reads a command line: `--name=value`, `--name value`, one dash or two, `--`
/// before an input that starts with a dash. Throws ToolError (bad usage).
ToolOptions parseCommandLine(const std::vector<std::string>& arguments);

/// Applies an option that a pass was given in braces. Throws ToolError (bad
/// usage) for a bad value.
void applyPassOption(PartitionOptions& options, const std::string& name,
                     const std::string& value);

/// The options of all groups and the passes, at most 80 columns wide.
std::string helpText(bool with_hidden);

/// A completion script for bash.
std::string bashCompletion();

}  // namespace pcg::opt
