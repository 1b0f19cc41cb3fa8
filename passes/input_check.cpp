#include "passes/input_check.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "passes/operators.h"
#include "passes/source_location.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Function;
using torch::jit::Graph;
using torch::jit::Node;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

void forEachNode(const Block& block,
                 const std::function<void(const Node&)>& visit) {
  for (const Node* node : block.nodes()) {
    visit(*node);
    for (const Block* inner : node->blocks())
      forEachNode(*inner, visit);
  }
}

class CallChecker {
 public:
  void visit(const Graph& graph) {
    forEachNode(*graph.block(), [this](const Node& node) { check(node); });
  }

 private:
  void check(const Node& node) {
    if (node.kind() == segmentKind()) {
      throw std::runtime_error(
          "expected a graph that was not outlined before, found " +
          describeNode(node));
    }
    if (node.kind() == prim::CallMethod)
      checkMethod(node);
    if (node.kind() != prim::CallMethod && node.kind() != prim::CallFunction)
      return;
    // Only looks at the node.
    torch::jit::GraphFunction* callee =
        torch::jit::tryToGraphFunction(const_cast<Node*>(&node));
    if (callee == nullptr || finished_.count(callee) != 0)
      return;
    if (!open_.insert(callee).second) {
      throw std::runtime_error(
          "cannot inline a function that calls itself: " + describeNode(node) +
          " calls '" + callee->qualname().qualifiedName() + "'");
    }
    visit(*callee->graph());
    open_.erase(callee);
    finished_.insert(callee);
  }

  static void checkMethod(const Node& node) {
    const auto type = node.input(0)->type()->cast<c10::ClassType>();
    const std::string& name = node.s(attr::name);
    if (type && type->findMethod(name) == nullptr) {
      throw std::runtime_error("cannot inline " + describeNode(node) +
                               ": class " + type->annotation_str() +
                               " has no method '" + name + "'");
    }
  }

  std::unordered_set<const Function*> open_;
  std::unordered_set<const Function*> finished_;
};

class AttributeChecker {
 public:
  void visit(const c10::ivalue::Object& object, const std::string& path) {
    if (finished_.count(&object) != 0)
      return;
    if (!open_.insert(&object).second) {
      throw std::runtime_error(
          "cannot partition a module that holds itself: "
          "expected a tree of submodules, found '" +
          path + "' to be one of the modules around it");
    }
    const auto type = object.type();
    for (std::size_t i = 0; i < type->numAttributes(); ++i) {
      const c10::IValue& value = object.getSlot(i);
      if (!type->getAttribute(i)->is_module() || !value.isObject())
        continue;
      const std::string& name = type->getAttributeName(i);
      visit(value.toObjectRef(), path.empty() ? name : path + "." + name);
    }
    open_.erase(&object);
    finished_.insert(&object);
  }

 private:
  std::unordered_set<const c10::ivalue::Object*> open_;
  std::unordered_set<const c10::ivalue::Object*> finished_;
};

}  // namespace

void checkCalls(const Graph& graph) {
  CallChecker().visit(graph);
}

void checkOperators(const Graph& graph) {
  forEachNode(*graph.block(), [](const Node& node) {
    if (node.maybeOperator() == nullptr &&
        !torch::jit::aliasAnalysisHasSpecialCaseFor(node.kind())) {
      throw std::runtime_error(
          "no operator is registered for " + describeNode(node) +
          " with these arguments; load the library that defines it");
    }
  });
}

void checkAttributes(const torch::jit::Module& module) {
  AttributeChecker().visit(*module._ivalue(), "");
}

}  // namespace pcg
