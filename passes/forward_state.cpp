#include "passes/forward_state.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/ir.h>

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "passes/operators.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

// The value of each attribute that was assigned, by name, with the path of its
// object. One entry a name: objects at two paths may be the same object.
struct Assigned {
  std::string path;
  Value* value;
};
using State = std::map<std::string, Assigned>;

// Code that is not in the graph, or runs at another time.
bool runsUnseenCode(const Node& node) {
  switch (node.kind()) {
    case prim::CallMethod:
    case prim::CallFunction:
    case prim::fork:
    case torch::jit::aten::wait:
    case prim::Enter:
    case prim::Exit:
      return true;
    default:
      return !node.kind().is_aten() && !node.kind().is_prim();
  }
}

void collectChanges(const Block* block, std::set<std::string>& names,
                    bool& all) {
  for (const Node* node : block->nodes()) {
    if (node->kind() == prim::SetAttr)
      names.insert(node->s(attr::name));
    all |= runsUnseenCode(*node);
    for (const Block* inner : node->blocks())
      collectChanges(inner, names, all);
  }
}

// What was known of attributes of that name, and of those of objects that are
// reached by it.
void forget(const std::string& name, State& state) {
  state.erase(name);
  for (auto it = state.begin(); it != state.end();) {
    const std::string path = "." + it->second.path + ".";
    it = path.find("." + name + ".") == std::string::npos ? std::next(it)
                                                          : state.erase(it);
  }
}

void forgetChanges(const Node& node, State& state) {
  std::set<std::string> names;
  bool all = false;
  for (const Block* block : node.blocks())
    collectChanges(block, names, all);
  if (all)
    state.clear();
  for (const std::string& name : names)
    forget(name, state);
}

void forward(Node* node, const State& state) {
  const auto known = state.find(node->s(attr::name));
  if (known == state.end())
    return;
  const auto path = attributePath(node->input());
  Value* value = known->second.value;
  // A narrower type could make a list of another type than before.
  if (!path || *path != known->second.path ||
      *value->type() != *node->output()->type()) {
    return;
  }
  node->output()->replaceAllUsesWith(value);
  node->destroy();
}

void visit(Block* block, State& state) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    ++it;
    if (node->kind() == prim::SetAttr) {
      const auto path = attributePath(node->input(0));
      const std::string& name = node->s(attr::name);
      forget(name, state);
      if (path)
        state[name] = {*path, node->input(1)};
    } else if (node->kind() == prim::GetAttr) {
      forward(node, state);
    } else if (!node->blocks().empty()) {
      // A loop's body also runs after itself.
      if (node->kind() != prim::If)
        forgetChanges(*node, state);
      for (Block* inner : node->blocks()) {
        State inside = state;
        visit(inner, inside);
      }
      forgetChanges(*node, state);
    } else if (runsUnseenCode(*node)) {
      state.clear();
    }
  }
}

}  // namespace

void forwardState(Graph& graph) {
  std::set<std::string> assigned;
  bool unseen = false;
  collectChanges(graph.block(), assigned, unseen);
  if (assigned.empty())
    return;
  State nothing;
  visit(graph.block(), nothing);
}

}  // namespace pcg
