#include "passes/annotate.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include "passes/classify.h"
#include "passes/operators.h"
#include "passes/source_location.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
namespace prim = torch::jit::prim;

void tag(Node* node, const std::string& by) {
  if (node->kind() == prim::Constant || node->kind() == prim::GetAttr ||
      node->kind() == forceNoGraphKind()) {
    return;
  }
  if (node->hasAttribute(noGraphAttribute()) &&
      node->hasAttribute(noGraphTagAttribute())) {
    return;  // The first tag stands.
  }
  node->i_(noGraphAttribute(), 1);
  node->s_(noGraphTagAttribute(), by);
}

void tagDeep(Node* node, const std::string& by) {
  tag(node, by);
  for (Block* block : node->blocks()) {
    for (Node* inner : block->nodes())
      tagDeep(inner, by);
  }
}

// Whether `scope` names a run of whole components of `path`.
bool namesPartOf(const std::string& scope, const std::string& path) {
  for (std::size_t at = path.find(scope); at != std::string::npos;
       at = path.find(scope, at + 1)) {
    const std::size_t end = at + scope.size();
    if ((at == 0 || path[at - 1] == '.') &&
        (end == path.size() || path[end] == '.')) {
      return true;
    }
  }
  return false;
}

// `decoder.sample` matches the module path, a function name, and the path
// followed by the function.
bool inScope(const Node& node, const std::string& scope) {
  const std::string path = modulePath(node);
  if (namesPartOf(scope, path))
    return true;
  for (const std::string& function : functionNames(node)) {
    if (function == scope)
      return true;
    if (namesPartOf(scope, path.empty() ? function : path + "." + function)) {
      return true;
    }
  }
  return false;
}

// Submodule paths that carry `pcg_no_graph`, with the methods it names (none:
// all of them).
std::map<std::string, std::vector<std::string>> taggedSubmodules(
    const torch::jit::Module& module) {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& item : module.named_modules()) {
    if (!item.value.hasattr("pcg_no_graph"))
      continue;
    const c10::IValue value = item.value.attr("pcg_no_graph");
    if (value.isBool()) {
      if (value.toBool())
        found[item.name] = {};
    } else if (value.isList() || value.isTuple()) {
      std::vector<std::string> methods;
      const auto add = [&](const c10::IValue& name) {
        methods.push_back(name.toStringRef());
      };
      if (value.isTuple()) {
        for (const auto& name : value.toTupleRef().elements())
          add(name);
      } else {
        for (const c10::IValue& name : value.toListRef())
          add(name);
      }
      found[item.name] = std::move(methods);
    } else {
      throw std::runtime_error(
          "attribute pcg_no_graph of submodule '" + item.name +
          "': expected a bool or a list of method names, found " +
          value.tagKind());
    }
  }
  return found;
}

class Annotator {
 public:
  Annotator(Graph& graph, const PartitionOptions& options,
            const torch::jit::Module* module)
      : graph_(graph), options_(options) {
    if (module != nullptr)
      submodules_ = taggedSubmodules(*module);
  }

  std::vector<std::string> run() {
    visit(graph_.block());
    std::vector<std::string> warnings;
    for (const std::string& pattern : options_.no_graph_ops) {
      if (matched_.count(pattern) == 0) {
        warnings.push_back("no operator matches the no_graph pattern '" +
                           pattern + "'");
      }
    }
    for (const std::string& scope : options_.no_graph_scopes) {
      if (matched_.count(scope) == 0) {
        warnings.push_back("no node lies in the no_graph scope '" + scope +
                           "'");
      }
    }
    return warnings;
  }

 private:
  void visit(Block* block) {
    Node* open = nullptr;
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it;
      ++it;
      if (node->kind() == noGraphBeginKind()) {
        if (open != nullptr) {
          throw std::runtime_error(
              "expected pcg::no_graph_end, found a second no_graph_begin: " +
              describeNode(*node));
        }
        open = node;
        continue;
      }
      if (node->kind() == noGraphEndKind()) {
        if (open == nullptr) {
          throw std::runtime_error(
              "expected pcg::no_graph_begin earlier in the same block, found "
              "only its end: " +
              describeNode(*node));
        }
        open->destroy();
        node->destroy();
        open = nullptr;
        continue;
      }
      if (open != nullptr)
        tagDeep(node, "region");
      visitNode(node);
      for (Block* inner : node->blocks())
        visit(inner);
    }
    if (open != nullptr) {
      throw std::runtime_error(
          "expected pcg::no_graph_end in the same block, found its end: " +
          describeNode(*open));
    }
  }

  void visitNode(Node* node) {
    if (node->hasAttribute(noGraphAttribute()) &&
        !node->hasAttribute(noGraphTagAttribute())) {
      if (node->i(noGraphAttribute()) != 0)
        tagDeep(node, "attribute");
    }
    const std::string name = qualifiedName(*node);
    for (const std::string& pattern : options_.no_graph_ops) {
      if (matchesPattern(name, pattern)) {
        matched_.insert(pattern);
        tagDeep(node, pattern);
      }
    }
    for (const std::string& scope : options_.no_graph_scopes) {
      if (inScope(*node, scope)) {
        matched_.insert(scope);
        tagDeep(node, scope);
      }
    }
    for (const auto& [path, methods] : submodules_) {
      if (!path.empty() && !namesPartOf(path, modulePath(*node)))
        continue;
      const auto functions = functionNames(*node);
      const bool named =
          methods.empty() ||
          std::any_of(methods.begin(), methods.end(), [&](const auto& method) {
            return std::find(functions.begin(), functions.end(), method) !=
                   functions.end();
          });
      if (named)
        tagDeep(node, "pcg_no_graph of " + path);
    }
  }

  Graph& graph_;
  const PartitionOptions& options_;
  std::map<std::string, std::vector<std::string>> submodules_;
  std::set<std::string> matched_;
};

using AssignedAttributes = std::set<std::pair<std::string, std::string>>;

std::pair<std::string, std::string> attributeKey(const Node& node) {
  return {node.input(0)->type()->repr_str(), node.s(torch::jit::attr::name)};
}

void collectAssigned(const Block* block, AssignedAttributes& assigned) {
  for (const Node* node : block->nodes()) {
    if (node->kind() == prim::SetAttr)
      assigned.insert(attributeKey(*node));
    for (const Block* inner : node->blocks())
      collectAssigned(inner, assigned);
  }
}

void markAssigned(Block* block, const AssignedAttributes& assigned) {
  for (Node* node : block->nodes()) {
    if (node->kind() == prim::GetAttr &&
        assigned.count(attributeKey(*node)) != 0) {
      node->i_(mutableStateAttribute(), 1);
    }
    for (Block* inner : node->blocks())
      markAssigned(inner, assigned);
  }
}

// Reads of attributes that nothing assigns go to the top of the graph: there
// every segment can use them, also one around the branch that reads them.
void hoistReads(Graph& graph) {
  std::unordered_set<const torch::jit::Value*> objects;
  if (!graph.inputs().empty())
    objects.insert(graph.inputs()[0]);
  std::vector<Node*> reads;
  const std::function<void(Block*)> collect = [&](Block* block) {
    for (Node* node : block->nodes()) {
      if (node->kind() == prim::GetAttr &&
          !node->hasAttribute(mutableStateAttribute()) &&
          objects.count(node->input()) != 0) {
        objects.insert(node->output());
        reads.push_back(node);
      }
      for (Block* inner : node->blocks())
        collect(inner);
    }
  };
  collect(graph.block());
  for (auto it = reads.rbegin(); it != reads.rend(); ++it) {
    Node* first = *graph.nodes().begin();
    if (*it != first)
      (*it)->moveBefore(first);
  }
}

}  // namespace

std::vector<std::string> annotate(Graph& graph, const PartitionOptions& options,
                                  const torch::jit::Module* module) {
  return Annotator(graph, options, module).run();
}

void markMutableState(const std::vector<Graph*>& graphs) {
  AssignedAttributes assigned;
  for (const Graph* graph : graphs)
    collectAssigned(graph->block(), assigned);
  for (Graph* graph : graphs) {
    markAssigned(graph->block(), assigned);
    hoistReads(*graph);
  }
}

}  // namespace pcg
