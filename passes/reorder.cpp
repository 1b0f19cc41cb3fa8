#include "passes/reorder.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "passes/classify.h"
#include "passes/plan.h"
#include "passes/provenance.h"
#include "passes/source_location.h"
#include "passes/well_formed.h"

namespace pcg {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace aten = torch::jit::aten;

namespace {

// How far a value is followed back to a reduction.
constexpr int kMostSteps = 8;

std::vector<Node*> nodesOf(Block* block) {
  return {block->nodes().begin(), block->nodes().end()};
}

// What a node does that its place among others shows.
struct NodeFacts {
  bool barrier = false;
  bool touches_written = false;
  bool draws = false;
  bool may_raise_or_has_effect = false;
};

struct Rule {
  bool NodeFacts::*member;
  const char* sentence;
};
// Nodes of which one of these holds keep their order among themselves.
constexpr Rule kRules[] = {
    {&NodeFacts::touches_written, "touches memory that is written"},
    {&NodeFacts::draws, "draws random numbers"},
    {&NodeFacts::may_raise_or_has_effect, "may raise or has an effect"},
};

}  // namespace

struct OrderRecord::Facts {
  std::unordered_map<const Node*, NodeFacts> nodes;
  // Each block's nodes in the recorded order.
  std::vector<std::pair<Block*, std::vector<Node*>>> blocks;
};

namespace {

class FactFinder {
 public:
  explicit FactFinder(Graph& graph)
      : provenance_(graph), aliases_(graph.shared_from_this()) {
    collectWrites(graph.block());
  }

  NodeFacts factsOf(const Node* node) const {
    NodeFacts facts;
    facts.barrier = hasSideEffectsDeep(*node) || changesMode(node);
    facts.draws = drawsRandomNumbers(*node);
    facts.touches_written = touchesWritten(node);
    facts.may_raise_or_has_effect =
        facts.draws || writesOutside(node) || mayRaise(node);
    return facts;
  }

 private:
  void collectWrites(const Block* block) {
    for (const Node* node : block->nodes()) {
      const auto* schema = node->maybeSchema();
      // Without a schema, what a node writes is not known.
      if (schema == nullptr && !node->kind().is_prim())
        writes_anywhere_ = unknown_written_ = true;
      for (const std::size_t position : writtenInputs(*node)) {
        writes_anywhere_ = true;
        const Origin& origin = provenance_.originOf(node->input(position));
        unknown_written_ |= origin.unknown;
        for (const Origin::Place& place : origin.places)
          written_.insert(place.value);
      }
      for (const Block* inner : node->blocks())
        collectWrites(inner);
    }
  }

  // What changes how the nodes behind it behave, or might.
  static bool changesMode(const Node* node) {
    switch (classifyOperator(*node, PartitionOptions{}).reason) {
      case Reason::kSideEffect:
      case Reason::kModuleState:
      case Reason::kContextManager:
      case Reason::kAsynchronous:
      case Reason::kOpaqueCall:
      case Reason::kForeignOperator:
      case Reason::kUnknownOperator:
      case Reason::kAutograd:
        return true;
      default:
        break;
    }
    return std::any_of(node->blocks().begin(), node->blocks().end(),
                       [](const Block* block) {
                         return std::any_of(block->nodes().begin(),
                                            block->nodes().end(), changesMode);
                       });
  }

  // Alias analysis trusts schemas; provenance knows those that lie.
  bool isWritten(const Value* value) const {
    if (!writes_anywhere_ || (!containsTensor(*value->type()) &&
                              !isMutableContainer(*value->type()))) {
      return false;
    }
    // Elements may be written behind a container's back.
    if (value->type()->kind() != c10::TypeKind::TensorType)
      return true;
    const Origin& origin = provenance_.originOf(value);
    return unknown_written_ || origin.unknown || aliases_.hasWriters(value) ||
           std::any_of(origin.places.begin(), origin.places.end(),
                       [this](const Origin::Place& place) {
                         return written_.count(place.value) != 0;
                       });
  }

  bool touchesWritten(const Node* node) const {
    const auto written = [this](const Value* value) {
      return isWritten(value);
    };
    if (std::any_of(node->inputs().begin(), node->inputs().end(), written) ||
        std::any_of(node->outputs().begin(), node->outputs().end(), written)) {
      return true;
    }
    return std::any_of(
        node->blocks().begin(), node->blocks().end(), [&](const Block* block) {
          return touchesWritten(block->return_node()) ||
                 std::any_of(block->nodes().begin(), block->nodes().end(),
                             [this](const Node* inner) {
                               return touchesWritten(inner);
                             });
        });
  }

  // Whether somebody else than the graph may see what the node writes.
  bool writesOutside(const Node* node) const {
    for (const std::size_t position : writtenInputs(*node)) {
      const Origin& origin = provenance_.originOf(node->input(position));
      if (origin.unknown ||
          std::any_of(origin.places.begin(), origin.places.end(),
                      [](const Origin::Place& place) {
                        return place.kind != Origin::Kind::kNode;
                      })) {
        return true;
      }
    }
    return false;  // Branches and loops count as nodes that may raise.
  }

  bool mayRaise(const Node* node) const {
    switch (node->kind()) {
      case prim::Constant:
      case prim::GetAttr:
      case prim::ListConstruct:
      case prim::TupleConstruct:
      case prim::TupleUnpack:
      case prim::NumToTensor:
      case aten::dim:
        return false;
      case aten::item:
      case aten::Bool:
        return node->input()->type()->kind() != c10::TypeKind::TensorType ||
               !hasOneElement(node->input(), kMostSteps);
      default:
        return true;
    }
  }

  bool hasOneElement(const Value* value, int steps) const {
    if (isWritten(value))
      return false;  // It may have been resized.
    // Not TensorType::numel: it is 1 where the rank is open.
    const auto type = value->type()->cast<c10::TensorType>();
    const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
    if (sizes && std::all_of(sizes->begin(), sizes->end(),
                             [](std::int64_t size) { return size == 1; })) {
      return true;
    }
    // Names without overload are those of reductions over all dimensions.
    static const std::unordered_set<std::string> kReductions = {
        "aten::sum",        "aten::mean", "aten::prod", "aten::max",
        "aten::min",        "aten::any",  "aten::all",  "aten::median",
        "aten::std",        "aten::var",  "aten::dot",  "aten::norm.Scalar",
        "prim::NumToTensor"};
    static const std::unordered_set<std::string> kElementwise = {
        "aten::neg",        "aten::abs",        "aten::sqrt",
        "aten::exp",        "aten::log",        "aten::tanh",
        "aten::sigmoid",    "aten::relu",       "aten::logical_not",
        "aten::isnan",      "aten::isfinite",   "aten::add.Scalar",
        "aten::sub.Scalar", "aten::mul.Scalar", "aten::div.Scalar",
        "aten::eq.Scalar",  "aten::ne.Scalar",  "aten::lt.Scalar",
        "aten::le.Scalar",  "aten::gt.Scalar",  "aten::ge.Scalar"};
    const Node& maker = *value->node();
    const std::string name = qualifiedName(maker);
    if (kReductions.count(name) != 0)
      return true;
    return steps > 0 && kElementwise.count(name) != 0 &&
           hasOneElement(maker.input(0), steps - 1);
  }

  Provenance provenance_;
  torch::jit::AliasDb aliases_;
  std::unordered_set<const Value*> written_;
  bool writes_anywhere_ = false;
  bool unknown_written_ = false;
};

[[noreturn]] void fail(const Node* node, const std::string& problem) {
  throw std::logic_error("reordering broke a rule: " + describeNode(*node) +
                         " " + problem);
}

}  // namespace

// ---- the record -------------------------------------------------------------

OrderRecord::OrderRecord(Graph& graph) {
  const FactFinder finder(graph);
  auto facts = std::make_unique<Facts>();
  const std::function<void(Block*)> record = [&](Block* block) {
    facts->blocks.emplace_back(block, nodesOf(block));
    for (Node* node : block->nodes()) {
      facts->nodes[node] = finder.factsOf(node);
      for (Block* inner : node->blocks())
        record(inner);
    }
  };
  record(graph.block());
  facts_ = std::move(facts);
}

OrderRecord::~OrderRecord() = default;

void OrderRecord::verify(Graph& graph) const {
  checkWellFormed(graph);  // Whatever uses a value stands behind its maker.
  for (const auto& [block, before] : facts_->blocks) {
    const std::vector<Node*> after = nodesOf(block);
    std::unordered_map<const Node*, std::size_t> barriers_in_front;
    std::size_t barriers = 0;
    for (const Node* node : before) {
      barriers += facts_->nodes.at(node).barrier ? 1 : 0;
      barriers_in_front[node] = barriers;
    }
    barriers = 0;
    for (const Node* node : after) {
      const auto recorded = barriers_in_front.find(node);
      if (recorded == barriers_in_front.end())
        fail(node, "was not in its block before");
      barriers += facts_->nodes.at(node).barrier ? 1 : 0;
      if (recorded->second != barriers)
        fail(node, "has changed places with a node that has a side effect");
    }
    if (after.size() != before.size())
      fail(before.front(), "is in a block that has lost nodes");
    for (const Rule& rule : kRules) {
      const auto select = [&](const std::vector<Node*>& nodes) {
        std::vector<const Node*> selected;
        std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(selected),
                     [&](const Node* node) {
                       return facts_->nodes.at(node).*rule.member;
                     });
        return selected;
      };
      const auto old_order = select(before);
      const auto new_order = select(after);
      const auto difference =
          std::mismatch(old_order.begin(), old_order.end(), new_order.begin());
      if (difference.first != old_order.end()) {
        fail(*difference.second, std::string("has changed places with ") +
                                     describeNode(**difference.first) +
                                     ": each " + rule.sentence);
      }
    }
  }
}

// ---- the pass ---------------------------------------------------------------

class Reorderer {
 public:
  Reorderer(Graph& graph, const PartitionOptions& options)
      : graph_(graph), options_(options), record_(graph) {}

  std::size_t run() {
    const Plan before = plan(graph_, options_);
    for (const PlannedSegment& segment : before.segments)
      members_.insert(segment.nodes.begin(), segment.nodes.end());
    for (const PlannedBreak& item : before.breaks)
      breaks_.insert(item.node);
    for (const auto& [block, nodes] : record_.facts_->blocks) {
      const Node* owner = block->owningNode();
      if (!isInsideSegment(owner))
        arrange(block, schedule(nodes));
    }
    record_.verify(graph_);
    const Plan after = plan(graph_, options_);
    if (after.segments.size() >= before.segments.size() ||
        after.eager_kernels > before.eager_kernels) {
      for (const auto& [block, nodes] : record_.facts_->blocks)
        arrange(block, nodes);
      return 0;
    }
    return countMoved();
  }

 private:
  bool isInsideSegment(const Node* node) const {
    for (; node != nullptr; node = node->owningBlock()->owningNode()) {
      if (members_.count(node) != 0)
        return true;
    }
    return false;
  }

  bool cuts(const Node* node) const {
    return breaks_.count(node) != 0 ||
           (!node->blocks().empty() && members_.count(node) == 0);
  }

  static void arrange(Block* block, const std::vector<Node*>& order) {
    for (Node* node : order)
      node->moveBefore(block->return_node());
  }

  // In turns, all nodes that may run and cut nothing, and all that may run and
  // cut, each in their old order.
  std::vector<Node*> schedule(const std::vector<Node*>& nodes) const {
    const auto successors = dependences(nodes);
    std::vector<std::size_t> waiting(nodes.size(), 0);
    for (const auto& list : successors) {
      for (const std::size_t later : list)
        ++waiting[later];
    }
    using Ready = std::priority_queue<std::size_t, std::vector<std::size_t>,
                                      std::greater<>>;
    Ready ready[2];
    const auto add = [&](std::size_t i) {
      ready[cuts(nodes[i]) ? 1 : 0].push(i);
    };
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (waiting[i] == 0)
        add(i);
    }
    std::vector<Node*> order;
    int turn = 0;
    while (!ready[0].empty() || !ready[1].empty()) {
      if (ready[turn].empty()) {
        turn = 1 - turn;
        continue;
      }
      const std::size_t i = ready[turn].top();
      ready[turn].pop();
      order.push_back(nodes[i]);
      for (const std::size_t later : successors[i]) {
        if (--waiting[later] == 0)
          add(later);
      }
    }
    return order;
  }

  // For each node the later ones that must stay behind it. A rule that orders
  // many nodes is a chain, so there are about as many entries as uses.
  std::vector<std::vector<std::size_t>> dependences(
      const std::vector<Node*>& nodes) const {
    std::vector<std::vector<std::size_t>> successors(nodes.size());
    std::unordered_map<const Node*, std::size_t> positions;
    std::unordered_map<const char*, std::size_t> last;
    std::size_t barrier = nodes.size();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      positions[nodes[i]] = i;
      addUses(nodes[i], positions, i, successors);
      const NodeFacts& facts = record_.facts_->nodes.at(nodes[i]);
      if (facts.barrier) {
        const std::size_t first = barrier == nodes.size() ? 0 : barrier;
        for (std::size_t j = first; j < i; ++j)
          successors[j].push_back(i);
        barrier = i;
        continue;
      }
      if (barrier != nodes.size())
        successors[barrier].push_back(i);
      for (const Rule& rule : kRules) {
        if (!(facts.*rule.member))
          continue;
        const auto [known, is_first] = last.emplace(rule.sentence, i);
        if (!is_first) {
          successors[known->second].push_back(i);
          known->second = i;
        }
      }
    }
    return successors;
  }

  void addUses(const Node* node,
               const std::unordered_map<const Node*, std::size_t>& positions,
               std::size_t user,
               std::vector<std::vector<std::size_t>>& successors) const {
    for (const Value* input : node->inputs()) {
      const auto maker = positions.find(input->node());
      if (maker != positions.end() && maker->second != user)
        successors[maker->second].push_back(user);
    }
    for (const Block* block : node->blocks()) {
      for (const Node* inner : block->nodes())
        addUses(inner, positions, user, successors);
      addUses(block->return_node(), positions, user, successors);
    }
  }

  std::size_t countMoved() const {
    std::size_t moved = 0;
    for (const auto& [block, before] : record_.facts_->blocks) {
      const std::vector<Node*> after = nodesOf(block);
      for (std::size_t i = 0; i < after.size(); ++i)
        moved += after[i] != before[i] ? 1 : 0;
    }
    return moved;
  }

  Graph& graph_;
  const PartitionOptions& options_;
  const OrderRecord record_;
  std::unordered_set<const Node*> members_;
  std::unordered_set<const Node*> breaks_;
};

std::size_t reorder(Graph& graph, const PartitionOptions& options) {
  return Reorderer(graph, options).run();
}

}  // namespace pcg
