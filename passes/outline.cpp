#include "passes/outline.h"

#include <torch/csrc/jit/ir/ir.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/operators.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

// Constants are copied to where they are used, each once a subgraph.
class SubgraphBuilder {
 public:
  explicit SubgraphBuilder(const PlannedSegment& segment)
      : graph_(std::make_shared<Graph>()) {
    for (Value* input : segment.inputs) {
      Value* inner = graph_->addInput();
      inner->copyMetadata(input);
      inside_[input] = inner;
    }
    for (Node* node : segment.nodes) {
      Node* copy = graph_->insertNode(
          graph_->createClone(node, [&](Value* value) { return map(value); }));
      for (std::size_t i = 0; i < node->outputs().size(); ++i) {
        copy->outputs()[i]->copyMetadata(node->outputs()[i]);
        inside_[node->outputs()[i]] = copy->outputs()[i];
      }
    }
    for (Value* output : segment.outputs) {
      graph_->registerOutput(inside_.at(output));
    }
  }

  const std::shared_ptr<Graph>& graph() const { return graph_; }

 private:
  Value* map(Value* value) {
    const auto it = inside_.find(value);
    if (it != inside_.end())
      return it->second;
    TORCH_INTERNAL_ASSERT(value->node()->kind() == prim::Constant,
                          "segment uses %", value->debugName(),
                          ", which is neither an input nor made inside");
    Node* copy = graph_->createClone(value->node(),
                                     [](Value* unused) { return unused; });
    graph_->prependNode(copy);
    copy->output()->copyMetadata(value);
    inside_[value] = copy->output();
    return copy->output();
  }

  std::shared_ptr<Graph> graph_;
  std::unordered_map<Value*, Value*> inside_;
};

bool isInside(const Node* node,
              const std::unordered_set<const Node*>& members) {
  for (; node != nullptr; node = node->owningBlock()->owningNode()) {
    if (members.count(node) != 0)
      return true;
  }
  return false;
}

// Where a value of the planned graph has gone.
class MovedValues {
 public:
  void add(Value* from, Value* to) { moved_[from] = to; }

  Value* find(Value* value) const {
    for (auto it = moved_.find(value); it != moved_.end();
         it = moved_.find(value)) {
      value = it->second;
    }
    return value;
  }

 private:
  std::unordered_map<Value*, Value*> moved_;
};

// Appends the nodes that the segment replaces to `replaced`.
void outlineSegment(Graph& graph, PlannedSegment segment, MovedValues& moved,
                    std::vector<Node*>& replaced) {
  for (Value*& input : segment.inputs)
    input = moved.find(input);
  const std::unordered_set<const Node*> members(segment.nodes.begin(),
                                                segment.nodes.end());

  Node* call = graph.create(segmentKind(), segment.inputs, 0);
  call->s_(attr::name, segment.name);
  call->g_(attr::Subgraph, SubgraphBuilder(segment).graph());
  // At the last member: what stands between members and is none of them
  // depends on no member, so it may run first.
  call->insertBefore(segment.nodes.back());
  call->copyMetadata(segment.nodes.front());

  const auto redirect = [&](Value* from, Value* to) {
    const auto uses = from->uses();
    for (const auto& use : uses) {
      if (!isInside(use.user, members))
        use.user->replaceInput(use.offset, to);
    }
    to->copyMetadata(from);
    moved.add(from, to);
  };
  // Glue for the caller's side is made from the members' own values; then all
  // uses outside, its own included, move to what replaces them.
  Node* position = segment.nodes.back();
  std::vector<std::pair<Value*, Value*>> replacements;
  for (Node* node : segment.recomputed) {
    Node* copy = graph.createClone(node, [&](Value* value) {
      for (const auto& [from, to] : replacements) {
        if (from == value)
          return to;
      }
      return value;
    });
    copy->insertAfter(position);
    position = copy;
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      replacements.emplace_back(node->outputs()[i], copy->outputs()[i]);
    }
  }
  for (Value* output : segment.outputs) {
    replacements.emplace_back(output, call->addOutput());
  }
  for (const auto& [from, to] : replacements)
    redirect(from, to);
  replaced.insert(replaced.end(), segment.nodes.begin(), segment.nodes.end());
}

void removeMarkers(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    ++it;
    for (Block* inner : node->blocks())
      removeMarkers(inner);
    if (node->kind() == forceNoGraphKind()) {
      node->destroy();
      continue;
    }
    for (const auto name : {noGraphAttribute(), noGraphTagAttribute()}) {
      if (node->hasAttribute(name))
        node->removeAttribute(name);
    }
    if (node->kind() == segmentKind()) {
      removeMarkers(node->g(attr::Subgraph)->block());
    }
  }
}

// Constants have been copied to where they are used.
void removeUnusedConstants(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    ++it;
    for (Block* inner : node->blocks())
      removeUnusedConstants(inner);
    if (node->kind() == prim::Constant && !node->output()->hasUses()) {
      node->destroy();
    }
  }
}

void collectSegments(Block* block, std::vector<Node*>& segments) {
  for (Node* node : block->nodes()) {
    if (node->kind() == segmentKind())
      segments.push_back(node);
    for (Block* inner : node->blocks())
      collectSegments(inner, segments);
  }
}

}  // namespace

std::vector<Node*> segmentNodes(Graph& graph) {
  std::vector<Node*> segments;
  collectSegments(graph.block(), segments);
  return segments;
}

void outline(Graph& graph, const Plan& plan) {
  MovedValues moved;
  std::vector<Node*> replaced;
  for (const PlannedSegment& segment : plan.segments) {
    outlineSegment(graph, segment, moved, replaced);
  }
  // Not before: new values at old addresses would be taken for those that
  // have moved.
  for (auto it = replaced.rbegin(); it != replaced.rend(); ++it)
    (*it)->destroy();
  removeMarkers(graph.block());
  removeUnusedConstants(graph.block());
}

}  // namespace pcg
