#include "tools/pcg-opt/passes.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/canonicalize.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/inline_fork_wait.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "passes/annotate.h"
#include "passes/classify.h"
#include "passes/lower.h"
#include "passes/make_capturable.h"
#include "passes/outline.h"
#include "passes/prepare.h"
#include "passes/reorder.h"
#include "passes/verify.h"
#include "tools/pcg-opt/error_text.h"
#include "tools/pcg-opt/options.h"
#include "tools/pcg-opt/suggest.h"

namespace pcg::opt {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
namespace prim = torch::jit::prim;

bool isPublic(const std::string& name) {
  return name.rfind('_', 0) != 0;
}

std::shared_ptr<Graph> graphOf(const Module& module, const std::string& name) {
  const auto method = module.get_method(name);
  return torch::jit::toGraphFunction(method.function()).graph();
}

// ---- pcg's passes -----------------------------------------------------------

void runPrepare(WorkState& state, Diagnostics& /*diagnostics*/) {
  for (MethodState& method : state.methods) {
    method.graph = prepare(method.graph);
  }
}

// Attributes that a method assigns are state to all methods, chosen or not.
void runAnnotate(WorkState& state, Diagnostics& /*diagnostics*/) {
  std::vector<std::shared_ptr<Graph>> others;
  std::vector<Graph*> graphs;
  for (const MethodState& method : state.methods) {
    graphs.push_back(method.graph.get());
  }
  const Module* module = nullptr;
  if (state.loaded) {
    module = &state.loaded->module;
    for (const auto& method : module->get_methods()) {
      const bool chosen = std::any_of(
          state.methods.begin(), state.methods.end(),
          [&](const MethodState& item) { return item.name == method.name(); });
      if (chosen)
        continue;
      others.push_back(prepare(graphOf(*module, method.name())));
      graphs.push_back(others.back().get());
    }
  }
  markMutableState(graphs);
  std::vector<std::string>& warnings = state.report.warnings;
  for (MethodState& method : state.methods) {
    for (std::string& warning :
         annotate(*method.graph, state.options, module)) {
      if (std::find(warnings.begin(), warnings.end(), warning) ==
          warnings.end()) {
        warnings.push_back(std::move(warning));
      }
    }
  }
}

void classifyBlock(const Block* block, const PartitionOptions& options,
                   Diagnostics& diagnostics) {
  for (const Node* node : block->nodes()) {
    const CaptureSafety safety = classifyOperator(*node, options);
    std::string text = qualifiedName(*node) + " is " + toString(safety.kind);
    if (safety.reason != Reason::kNone) {
      text += std::string(" [") + toString(safety.reason) + "]";
    }
    if (!safety.sentence.empty())
      text += ": " + safety.sentence;
    diagnostics.remark(locate(*node), std::move(text));
    for (const Block* inner : node->blocks()) {
      classifyBlock(inner, options, diagnostics);
    }
  }
}

void runClassify(WorkState& state, Diagnostics& diagnostics) {
  for (const MethodState& method : state.methods) {
    classifyBlock(method.graph->block(), state.options, diagnostics);
  }
}

void runMakeCapturable(WorkState& state, Diagnostics& /*diagnostics*/) {
  for (MethodState& method : state.methods) {
    for (std::string& change : makeCapturable(*method.graph)) {
      state.report.rewrites.push_back(std::move(change));
    }
  }
}

void runReorder(WorkState& state, Diagnostics& /*diagnostics*/) {
  for (MethodState& method : state.methods)
    reorder(*method.graph, state.options);
}

void runPlan(WorkState& state, Diagnostics& /*diagnostics*/) {
  state.report.segments.clear();
  state.report.breaks.clear();
  state.report.possible_breaks.clear();
  state.report.eager_kernels = 0;
  for (MethodState& method : state.methods) {
    method.plan = plan(*method.graph, state.options);
    addToReport(*method.plan, method.name, state.report);
  }
  state.planned = true;
}

void runOutline(WorkState& state, Diagnostics& /*diagnostics*/) {
  for (MethodState& method : state.methods) {
    method.original = method.graph->copy();
    outline(*method.graph, *method.plan);
  }
}

void runVerify(WorkState& state, Diagnostics& /*diagnostics*/) {
  for (MethodState& method : state.methods) {
    verify(*method.graph);
    if (method.original)
      verifyOrder(*method.original, *method.graph);
  }
}

void runLower(WorkState& state, Diagnostics& /*diagnostics*/) {
  std::vector<OutlinedMethod> outlined;
  for (const MethodState& method : state.methods) {
    outlined.push_back({method.name, method.graph});
  }
  state.loaded->module = lower(state.loaded->module, outlined, state.options);
  for (MethodState& method : state.methods) {
    method.graph = graphOf(state.loaded->module, method.name)->copy();
  }
}

// ---- torch's passes ---------------------------------------------------------

void runFreeze(WorkState& state, Diagnostics& /*diagnostics*/) {
  commit(state);
  Module& module = state.loaded->module;
  if (module.hasattr("training") && module.is_training()) {
    throw ToolError(kBadInput,
                    "pass 'freeze': the module is in training mode; call "
                    "eval() before it is saved");
  }
  std::vector<std::string> preserved;
  for (const MethodState& method : state.methods) {
    if (method.name != "forward")
      preserved.push_back(method.name);
  }
  module = torch::jit::freeze_module(module, preserved);
  for (MethodState& method : state.methods) {
    method.graph = graphOf(module, method.name)->copy();
  }
}

using GraphPass = std::function<void(std::shared_ptr<Graph>&)>;

void onEachGraph(WorkState& state, const GraphPass& pass) {
  for (MethodState& method : state.methods)
    pass(method.graph);
}

const std::map<std::string, GraphPass>& torchPasses() {
  static const std::map<std::string, GraphPass> passes = {
      {"inline", [](auto& graph) { torch::jit::Inline(*graph); }},
      {"constant-propagation",
       [](auto& graph) { torch::jit::ConstantPropagation(graph); }},
      {"constant-pooling",
       [](auto& graph) { torch::jit::ConstantPooling(graph); }},
      {"dce", [](auto& graph) { torch::jit::EliminateDeadCode(graph); }},
      {"cse",
       [](auto& graph) { torch::jit::EliminateCommonSubexpression(graph); }},
      {"peephole", [](auto& graph) { torch::jit::PeepholeOptimize(graph); }},
      {"lower-tuples",
       [](auto& graph) { torch::jit::LowerSimpleTuples(graph); }},
      {"inline-fork-wait",
       [](auto& graph) { torch::jit::InlineForkWait(graph); }},
      {"remove-tensor-mutation",
       [](auto& graph) { torch::jit::RemoveTensorMutation(graph); }},
      {"canonicalize",
       [](auto& graph) {
         graph = torch::jit::Canonicalize(graph, /*keep_unique_names=*/false);
       }},
  };
  return passes;
}

using PassFunction = void (*)(WorkState&, Diagnostics&);

const std::map<std::string, PassFunction>& ownPasses() {
  static const std::map<std::string, PassFunction> passes = {
      {"prepare", runPrepare},   {"annotate", runAnnotate},
      {"classify", runClassify}, {"make-capturable", runMakeCapturable},
      {"plan", runPlan},         {"outline", runOutline},
      {"verify", runVerify},     {"lower", runLower},
      {"freeze", runFreeze},     {"reorder", runReorder},
  };
  return passes;
}

bool changesGraphs(const std::string& pass) {
  return pass != "plan" && pass != "classify" && pass != "verify";
}

}  // namespace

void takeMethods(WorkState& state) {
  const Module& module = state.loaded->module;
  std::vector<std::string> names;
  for (const auto& method : module.get_methods()) {
    names.push_back(method.name());
  }
  std::vector<std::string> chosen = state.options.methods;
  for (const std::string& name : chosen) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw ToolError(kBadInput,
                      "has no method '" + name + "'" + didYouMean(name, names));
    }
  }
  if (chosen.empty()) {
    std::copy_if(names.begin(), names.end(), std::back_inserter(chosen),
                 isPublic);
  }
  if (chosen.empty()) {
    throw ToolError(kBadInput, "has no public method");
  }
  for (const std::string& name : chosen) {
    state.methods.push_back(
        {name, graphOf(module, name)->copy(), std::nullopt, nullptr});
  }
}

void commit(WorkState& state) {
  for (const MethodState& method : state.methods) {
    auto& function = torch::jit::toGraphFunction(
        state.loaded->module.get_method(method.name).function());
    const std::shared_ptr<Graph> target = function.graph();
    // The function keeps its graph object, so that its contents are replaced.
    target->block()->clear();
    target->block()->cloneFrom(method.graph->block(), nullptr);
    function.clear_optimized_graphs();
  }
}

void runPass(const PassInstance& instance, WorkState& state,
             Diagnostics& diagnostics) {
  const std::string& name = instance.pass->name;
  for (const auto& [key, value] : instance.options) {
    applyPassOption(state.options, key, value);
  }
  try {
    const auto own = ownPasses().find(name);
    if (own != ownPasses().end()) {
      own->second(state, diagnostics);
    } else {
      onEachGraph(state, torchPasses().at(name));
    }
  } catch (const ToolError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw ToolError(kInternal, "pass '" + name + "': out of memory");
  } catch (const std::exception& error) {
    const std::string message = briefMessage(error);
    bool internal = isInternalError(error);
    // Segments that somebody wrote by hand may well be wrong, and torch
    // asserts that every operator is registered.
    const bool made_here = std::any_of(
        state.methods.begin(), state.methods.end(),
        [](const MethodState& method) { return method.original != nullptr; });
    if (name == "verify" && !made_here)
      internal = false;
    if (message.find("We don't have an op for") != std::string::npos) {
      internal = false;
    }
    throw ToolError(internal ? kInternal : kBadInput,
                    "pass '" + name + "': " + message);
  }
  if (changesGraphs(name)) {
    for (MethodState& method : state.methods)
      method.plan.reset();
  }
}

Location locate(const Node& node) {
  const auto place = [](const torch::jit::SourceRange& range) {
    // A loaded model's code was generated; its Python source is remembered.
    const auto original = range.source() != nullptr
                              ? range.findSourceRangeThatGenerated()
                              : std::nullopt;
    const torch::jit::SourceRange& best = original ? *original : range;
    Location where;
    const auto position = best.file_line_col();
    if (!position)
      return where;
    where.file = std::get<0>(*position);
    where.line = std::get<1>(*position);
    where.column = std::get<2>(*position) + 1;
    const auto& source = *best.source();
    where.line_text =
        source.get_line(source.lineno_for_offset(best.start())).str();
    return where;
  };
  Location where = place(node.sourceRange());
  if (where.line == 0 && node.callstack()) {
    for (const auto& entry : (*node.callstack())->vec()) {
      where = place(std::get<1>(entry));
      if (where.line != 0)
        break;
    }
  }
  // Torch gives SetAttr no place: that of its value is the next best.
  if (where.line == 0 && !node.inputs().empty()) {
    where = place(node.inputs().back()->node()->sourceRange());
  }
  while (!where.line_text.empty() &&
         (where.line_text.back() == '\n' || where.line_text.back() == '\r')) {
    where.line_text.pop_back();
  }
  return where;
}

}  // namespace pcg::opt
