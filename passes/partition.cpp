#include <pcg/partition.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <stdexcept>

#include "passes/annotate.h"
#include "passes/input_check.h"
#include "passes/lower.h"
#include "passes/make_capturable.h"
#include "passes/outline.h"
#include "passes/plan.h"
#include "passes/prepare.h"
#include "passes/reorder.h"
#include "passes/verify.h"

namespace pcg {
namespace {

using torch::jit::Graph;

bool isPublic(const std::string& name) {
  return name.rfind('_', 0) != 0;
}

std::vector<std::string> chosenMethods(const torch::jit::Module& module,
                                       const PartitionOptions& options) {
  std::vector<std::string> names;
  for (const auto& method : module.get_methods()) {
    if (options.methods.empty() && isPublic(method.name())) {
      names.push_back(method.name());
    }
  }
  for (const std::string& name : options.methods) {
    if (!module.find_method(name)) {
      throw std::runtime_error("expected a method named '" + name +
                               "', found none in " +
                               module.type()->annotation_str());
    }
    names.push_back(name);
  }
  return names;
}

}  // namespace

PartitionedModule partition(const torch::jit::Module& module,
                            const PartitionOptions& options) {
  checkAttributes(module);
  const std::vector<std::string> chosen = chosenMethods(module, options);
  std::vector<OutlinedMethod> methods;
  // Methods that stay as they are may assign attributes too.
  std::vector<std::shared_ptr<Graph>> others;
  std::vector<Graph*> graphs;
  for (const auto& method : module.get_methods()) {
    std::shared_ptr<Graph> graph;
    try {
      graph = prepare(torch::jit::toGraphFunction(method.function()).graph());
    } catch (const std::exception& error) {
      throw std::runtime_error("cannot prepare method '" + method.name() +
                               "': " + error.what());
    }
    graphs.push_back(graph.get());
    if (std::find(chosen.begin(), chosen.end(), method.name()) !=
        chosen.end()) {
      methods.push_back({method.name(), std::move(graph)});
    } else {
      others.push_back(std::move(graph));
    }
  }
  markMutableState(graphs);

  PartitionReport report;
  for (OutlinedMethod& method : methods) {
    Graph& graph = *method.graph;
    for (std::string& warning : annotate(graph, options, &module)) {
      if (std::find(report.warnings.begin(), report.warnings.end(), warning) ==
          report.warnings.end()) {
        report.warnings.push_back(std::move(warning));
      }
    }
    if (options.make_capturable) {
      for (std::string& change : makeCapturable(graph)) {
        report.rewrites.push_back(std::move(change));
      }
    }
    if (options.reorder)
      reorder(graph, options);
    const auto original = options.verify ? graph.copy() : nullptr;
    const Plan cut = plan(graph, options);
    addToReport(cut, method.name, report);
    outline(graph, cut);
    if (options.verify) {
      verify(graph);
      verifyOrder(*original, graph);
    }
  }
  return {lower(module, methods, options), std::move(report)};
}

}  // namespace pcg
