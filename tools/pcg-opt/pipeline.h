#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace pcg::opt {

/// One option that a pass takes in braces.
struct PassOptionInfo {
  std::string name;
  std::string value;  ///< What stands for the value in the help.
  std::string help;
};

/// What the command line knows of a pass.
struct PassInfo {
  std::string name;
  std::string summary;
  std::vector<PassOptionInfo> options;
  bool from_torch = false;    ///< Not one of pcg's own.
  bool needs_module = false;  ///< Does not work on IR text.
};

/// All passes, pcg's own first, in the order in which they usually run.
const std::vector<PassInfo>& passInfos();

/// nullptr where there is none of that name.
const PassInfo* findPass(const std::string& name);

/// A pass with the options that were given to it.
struct PassInstance {
  const PassInfo* pass = nullptr;
  std::vector<std::pair<std::string, std::string>> options;
};

using Pipeline = std::vector<PassInstance>;

/// Name of the shorthand that stands for the default pipeline.
inline constexpr const char* kPartition = "partition";

/// prepare, annotate, make-capturable, plan, outline, verify.
struct PartitionPipelineOptions {
  bool make_capturable = true;
  bool reorder = false;  ///< In front of plan.
  bool verify = true;
  bool lower = false;
};
Pipeline partitionPipeline(const PartitionPipelineOptions& options);

/// Parses `prepare,plan{min-segment-size=4 graph-safe=my::op},outline`. The
/// word `partition`, with options of any of its passes, becomes a PassInstance
/// whose `pass` is nullptr. Throws ToolError (bad usage) that names the column
/// and the word, with the nearest match for names that do not exist.
Pipeline parsePipeline(const std::string& text);

/// The text that parsePipeline reads.
std::string toString(const Pipeline& pipeline);

}  // namespace pcg::opt
