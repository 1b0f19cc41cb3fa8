#include "runtime/partition_file.h"

#include <caffe2/serialize/inline_container.h>
#include <pcg/partition.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/library.h>

#include <filesystem>
#include <stdexcept>

namespace pcg {
namespace {

constexpr const char* kExtraFolder = "extra/";

torch::jit::ExtraFilesMap extraFilesOf(const std::string& path) {
  torch::jit::ExtraFilesMap files;
  const std::string folder = kExtraFolder;
  caffe2::serialize::PyTorchStreamReader reader(path);
  for (const std::string& record : reader.getAllRecords()) {
    if (record.compare(0, folder.size(), folder) == 0)
      files[record.substr(folder.size())] = "";
  }
  return files;
}

[[noreturn]] void fail(const std::string& path, const char* what,
                       const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  throw std::runtime_error(path + " " + what + ": " +
                           (torch_error != nullptr
                                ? torch_error->what_without_backtrace()
                                : error.what()));
}

void saveAtOnce(const torch::jit::Module& module, const std::string& path,
                const torch::jit::ExtraFilesMap& extra_files) {
  const std::string unfinished = path + ".unfinished";
  try {
    module.save(unfinished, extra_files);
    std::filesystem::rename(unfinished, path);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    fail(path, "cannot be written", error);
  }
}

using Names = std::optional<c10::List<std::string>>;

std::vector<std::string> strings(const Names& names) {
  std::vector<std::string> result;
  if (names)
    result.assign(names->begin(), names->end());
  return result;
}

TORCH_LIBRARY_FRAGMENT(pcg, library) {
  library.def(
      "partition_file(str input, str output, *, str[]? methods=None, "
      "str[]? no_graph_ops=None, str[]? no_graph_scopes=None, "
      "str[]? graph_safe_ops=None, int min_segment_size=4, "
      "bool make_capturable=True, str backend=\"auto\") -> str",
      [](std::string input, std::string output, Names methods,
         Names no_graph_ops, Names no_graph_scopes, Names graph_safe_ops,
         std::int64_t min_segment_size, bool make_capturable,
         std::string backend) {
        PartitionOptions options;
        options.methods = strings(methods);
        options.no_graph_ops = strings(no_graph_ops);
        options.no_graph_scopes = strings(no_graph_scopes);
        options.graph_safe_ops = strings(graph_safe_ops);
        options.min_segment_size = min_segment_size;
        options.make_capturable = make_capturable;
        options.backend = parseBackend(backend);
        return partitionFile(input, output, options);
      });
}

}  // namespace

std::string partitionFile(const std::string& input, const std::string& output,
                          const PartitionOptions& options) {
  torch::jit::ExtraFilesMap extra_files;
  torch::jit::Module module;
  try {
    extra_files = extraFilesOf(input);
    module = torch::jit::load(input, c10::nullopt, extra_files);
  } catch (const std::exception& error) {
    fail(input, "cannot be loaded", error);
  }
  PartitionedModule partitioned = [&] {
    try {
      return partition(module, options);
    } catch (const std::exception& error) {
      fail(input, "cannot be partitioned", error);
    }
  }();
  saveAtOnce(partitioned.module, output, extra_files);
  return partitioned.report.json();
}

}  // namespace pcg
