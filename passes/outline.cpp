#include "passes/outline.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
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
      if (node->kind() == prim::SetAttr) {
        insertNote(node);
        continue;
      }
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
    for (Node* node : segment.recomputed)
      keepIfUnused(inside_.at(node->outputs()[0])->node());
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

  // What it raises comes before what follows it here, not after.
  void keepIfUnused(Node* node) {
    if (!mayRaise(*node) ||
        std::any_of(node->outputs().begin(), node->outputs().end(),
                    [](const Value* output) { return output->hasUses(); })) {
      return;
    }
    keepAlive(node);
  }

  // Stands for an assignment that is made after the segment.
  void insertNote(Node* assignment) {
    const auto object = attributePath(assignment->input(0));
    TORCH_INTERNAL_ASSERT(object, "a segment assigns to an unknown object");
    const std::string& name = assignment->s(attr::name);
    const std::string path = object->empty() ? name : *object + "." + name;
    Value* path_value = graph_->insertConstant(path);
    Node* note = graph_->insertNode(graph_->create(
        noteAttributeKind(), {path_value, map(assignment->input(1))}, 0));
    note->copyMetadata(assignment);
  }

  std::shared_ptr<Graph> graph_;
  std::unordered_map<Value*, Value*> inside_;
};

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

// Removes the members of a segment, whose results nobody uses any more.
//
// Dropping one use searches all uses of the value. A value that very many
// members use is therefore taken from them in slices first: their inputs are
// turned over to stand-ins, each of which has few uses.
class MemberRemoval {
 public:
  MemberRemoval(Graph& graph, const std::vector<Node*>& members)
      : members_(members),
        stand_ins_(graph.create(prim::Uninitialized, /*num_outputs=*/0)) {
    for (Node* member : members_)
      collectReaders(member, member);
  }

  void run() {
    std::vector<std::pair<Value*, Value*>> turned_over;
    for (Value* value : read_) {
      if (value->uses().size() > kManyUses)
        turnOver(value, turned_over);
    }
    for (auto it = members_.rbegin(); it != members_.rend(); ++it)
      (*it)->destroy();
    for (const auto& [value, stand_in] : turned_over)
      stand_in->replaceAllUsesWith(value);
    stand_ins_->destroy();
  }

 private:
  static constexpr std::size_t kManyUses = 512;

  void collectReaders(Node* member, Node* node) {
    for (Value* input : node->inputs()) {
      std::vector<Node*>& readers = readers_[input];
      if (readers.empty())
        read_.push_back(input);
      if (readers.empty() || readers.back() != member)
        readers.push_back(member);
    }
    for (Block* block : node->blocks()) {
      for (Node* inner : block->nodes())
        collectReaders(member, inner);
      collectReaders(member, block->return_node());
    }
  }

  // From the last reader to the first: what is used behind the last slice goes
  // to a stand-in of its own and comes back with the rest.
  void turnOver(Value* value,
                std::vector<std::pair<Value*, Value*>>& turned_over) {
    const std::vector<Node*>& readers = readers_.at(value);
    for (std::size_t i = readers.size(); i > 0;
         i -= std::min(i, kManyUses / 2)) {
      Value* stand_in = stand_ins_->addOutput();
      value->replaceAllUsesAfterNodeWith(readers[i - 1], stand_in);
      turned_over.emplace_back(value, stand_in);
    }
  }

  const std::vector<Node*>& members_;
  Node* stand_ins_;
  std::vector<Value*> read_;  // In order of first use.
  std::unordered_map<const Value*, std::vector<Node*>> readers_;
};

// Returns the members, which stay in place, unused: a new value that took the
// address of one that is gone would be taken for it.
std::vector<Node*> outlineSegment(Graph& graph, PlannedSegment segment,
                                  MovedValues& moved) {
  for (Value*& input : segment.inputs)
    input = moved.find(input);
  Node* call = graph.create(segmentKind(), segment.inputs, 0);
  call->s_(attr::name, segment.name);
  call->g_(attr::Subgraph, SubgraphBuilder(segment).graph());
  // At the last member: what stands between members and is none of them
  // depends on no member, so it may run first.
  call->insertBefore(segment.nodes.back());
  call->copyMetadata(segment.nodes.front());

  // Glue for the caller's side is made from the members' own values; then all
  // uses, its own included, move to what replaces them. The members' uses do so
  // too, and go with the members. Assignments keep their places among the glue.
  std::vector<Node*> members;
  Node* position = segment.nodes.back();
  std::vector<std::pair<Value*, Value*>> replacements;
  std::unordered_map<Value*, Value*> remade;
  auto next_recomputed = segment.recomputed.begin();
  for (Node* node : segment.nodes) {
    if (node->kind() == prim::SetAttr) {
      if (node != position)
        node->moveAfter(position);
      node->i_(deferredAttribute(), 1);
      position = node;
      continue;
    }
    members.push_back(node);
    if (next_recomputed == segment.recomputed.end() ||
        *next_recomputed != node) {
      continue;
    }
    ++next_recomputed;
    Node* copy = graph.createClone(node, [&](Value* value) {
      const auto it = remade.find(value);
      return it == remade.end() ? value : it->second;
    });
    copy->insertAfter(position);
    position = copy;
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      replacements.emplace_back(node->outputs()[i], copy->outputs()[i]);
      remade.insert(replacements.back());
    }
  }
  for (Value* output : segment.outputs) {
    replacements.emplace_back(output, call->addOutput());
  }
  for (const auto& [from, to] : replacements) {
    from->replaceAllUsesWith(to);
    to->copyMetadata(from);
    moved.add(from, to);
  }
  return members;
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
  std::vector<std::vector<Node*>> outlined;
  for (const PlannedSegment& segment : plan.segments) {
    outlined.push_back(outlineSegment(graph, segment, moved));
  }
  for (auto it = outlined.rbegin(); it != outlined.rend(); ++it)
    MemberRemoval(graph, *it).run();
  removeMarkers(graph.block());
  removeUnusedConstants(graph.block());
}

}  // namespace pcg
