#pragma once

#include <pcg/options.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pcg::run {

/// A command line of pcg-run, checked as far as it can be without the model.
struct RunOptions {
  /// Set where the program only has to print something.
  std::optional<std::string> print_and_exit;

  std::string model;
  std::vector<std::string> inputs;  ///< As written; see input_spec.h.
  std::string method = "forward";
  std::vector<std::string> libraries;
  std::string device;  ///< Empty: where the model's tensors are.
  std::uint64_t seed = 0;

  std::string original;  ///< Empty: no file to compare with.
  bool verify = false;
  bool partition = false;
  PartitionOptions partition_options;
  std::optional<Backend> backend;  ///< Unset: as the environment or file says.

  std::int64_t calls = 20;
  std::int64_t warm_up = 5;

  bool json = false;
  bool progress = true;
};

/// Throws ToolError (bad usage).
RunOptions parseCommandLine(const std::vector<std::string>& arguments);

std::string helpText();

}  // namespace pcg::run
