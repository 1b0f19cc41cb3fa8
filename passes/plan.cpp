#include "passes/plan.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "passes/classify.h"
#include "passes/operators.h"
#include "passes/provenance.h"
#include "passes/source_location.h"

namespace pcg {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

// Kernels of a loop body count this often towards the minimum size where the
// trip count is not known.
constexpr std::int64_t kAssumedTripCount = 4;

CaptureSafety glue() {
  return {CaptureClass::kGlue, Reason::kNone, ""};
}

class Planner {
 public:
  Planner(Graph& graph, const PartitionOptions& options)
      : graph_(graph), options_(options), provenance_(graph) {}

  Plan run() {
    // A container that turns out to be mutated on both sides of a border is
    // made eager and the graph is planned again. Each round adds at least one
    // node, and few graphs need a second.
    do {
      plan_ = Plan{};
      number_ = 0;
      varying_.clear();
      retry_ = false;
      ++round_;
      planBlock(graph_.block());
    } while (retry_);
    return std::move(plan_);
  }

  std::vector<PlannedBreak> latentBreaks() {
    for (Node* node : graph_.block()->nodes()) {
      for (Block* block : node->blocks())
        collectLatent(block);
    }
    return std::move(plan_.possible_breaks);
  }

 private:
  void collectLatent(Block* block) {
    for (Node* node : block->nodes()) {
      const CaptureSafety& safety = verdict(node);
      if (safety.kind == CaptureClass::kUnsafe &&
          safety.reason != Reason::kContainsBreak) {
        plan_.possible_breaks.push_back({node, safety});
      }
      for (Block* inner : node->blocks())
        collectLatent(inner);
    }
  }

  // Why a node stays outside, and the round that found it.
  struct KeptEager {
    Reason reason;
    int round;
  };

  // ---- verdicts -------------------------------------------------------------

  // What a node is by itself and by its inputs, wherever it stands. For a
  // branch or loop: whether it can be a member of a run as a whole.
  const CaptureSafety& verdict(Node* node) {
    const auto it = verdicts_.find(node);
    if (it != verdicts_.end())
      return it->second;
    return verdicts_.emplace(node, judge(node)).first->second;
  }

  CaptureSafety judge(Node* node) {
    if (node->hasAttribute(noGraphAttribute()) &&
        node->i(noGraphAttribute()) != 0) {
      std::string tag = node->hasAttribute(noGraphTagAttribute())
                            ? node->s(noGraphTagAttribute())
                            : "attribute";
      return unsafeBecause(Reason::kTagged, "is tagged no_graph (" + tag + ")");
    }
    const auto kept = kept_eager_.find(node);
    if (kept != kept_eager_.end())
      return unsafeBecause(kept->second.reason);
    // In a segment that is planned again, what follows a note must not be
    // replayed without it.
    if (node->kind() == noteAttributeKind())
      return unsafeBecause(Reason::kModuleState);
    if (node->kind() == forceNoGraphKind()) {
      return unsafeBecause(Reason::kTagged, "splits the graph on request");
    }
    if (node->kind() == prim::If || node->kind() == prim::Loop) {
      return judgeControlFlow(node);
    }
    if (node->kind() == prim::GetAttr) {
      return provenance_.isModuleChain(node->input())
                 ? glue()
                 : unsafeBecause(Reason::kBoundaryType);
    }
    if (eager_containers_.count(node) != 0) {
      return unsafeBecause(Reason::kSharedContainer);
    }
    CaptureSafety safety = classifyOperator(*node, options_);
    if (readsHostTensorsOnly(node))
      return glue();
    if (safety.kind == CaptureClass::kUnsafe)
      return safety;
    if (const Value* value = unfitBoundaryInput(node)) {
      return unsafeBecause(Reason::kBoundaryType,
                           "uses %" + value->debugName() + " of type " +
                               value->type()->annotation_str() +
                               ", which cannot enter a segment");
    }
    for (const Value* input : node->inputs()) {
      if (provenance_.isLive(input))
        return unsafeBecause(Reason::kLiveScalar);
    }
    return safety;
  }

  // `NumToTensor` arithmetic of traced graphs runs on the host and is a
  // function of the key.
  bool readsHostTensorsOnly(const Node* node) const {
    bool any = node->kind() == prim::NumToTensor;
    for (const Value* input : node->inputs()) {
      if (!containsTensor(*input->type()))
        continue;
      if (!provenance_.isHostTensor(input))
        return false;
      any = true;
    }
    if (!any)
      return false;
    for (const Value* input : node->inputs()) {
      if (provenance_.isLive(input))
        return false;
    }
    return writtenInputs(*node).empty() && !drawsRandomNumbers(*node) &&
           (node->kind().is_aten() || node->kind() == prim::NumToTensor);
  }

  const Value* unfitBoundaryInput(const Node* node) const {
    for (const Value* input : node->inputs()) {
      if (isBoundaryType(*input->type()))
        continue;
      if (input->node()->kind() == prim::Constant)
        continue;
      // Made by a member of the same run: the value need not cross a border.
      // Whether it does is checked when the run is closed.
      if (input->type()->kind() == c10::TypeKind::TupleType ||
          input->type()->kind() == c10::TypeKind::EnumType) {
        continue;
      }
      return input;
    }
    return nullptr;
  }

  // What of a block is no member of a run.
  struct BlockVerdict {
    CaptureClass kind = CaptureClass::kGlue;
    const Node* first_break = nullptr;
    std::string sentence;
    bool may_be_avoided = true;  // see mayBeAvoided
  };

  // Breaks that a run can take in as long as no call reaches them. What a user
  // tagged is not among them, nor what touches objects, which cannot enter a
  // segment.
  static bool mayBeAvoided(Reason reason) {
    switch (reason) {
      case Reason::kTagged:
      case Reason::kModuleState:
      case Reason::kContextManager:
      case Reason::kAsynchronous:
      case Reason::kOpaqueCall:
      case Reason::kUnknownOperator:
      case Reason::kBoundaryType:
      case Reason::kSharedContainer:
        return false;
      default:
        return true;
    }
  }

  BlockVerdict judgeBlock(Block* block) {
    BlockVerdict result;
    for (Node* member : block->nodes()) {
      const CaptureSafety& safety = verdict(member);
      const bool reads_state = member->kind() == prim::GetAttr &&
                               !provenance_.isBoundAttribute(member);
      if (reads_state || safety.kind == CaptureClass::kUnsafe) {
        if (result.first_break == nullptr) {
          result.first_break = member;
          result.sentence =
              reads_state ? "reads an attribute that is assigned elsewhere"
                          : safety.sentence;
        }
        result.may_be_avoided &= !reads_state && avoidable(member);
      } else if (safety.kind != CaptureClass::kGlue) {
        result.kind = CaptureClass::kSafe;
      }
    }
    return result;
  }

  // A branch or loop in a block that is never reached is looked into: all its
  // breaks must be of a kind that a run can take in.
  bool avoidable(Node* node) {
    const CaptureSafety& safety = verdict(node);
    if (node->blocks().empty()) {
      return safety.kind != CaptureClass::kUnsafe ||
             mayBeAvoided(safety.reason);
    }
    if (safety.reason == Reason::kTagged)
      return false;
    for (Block* block : node->blocks()) {
      for (Node* inner : block->nodes()) {
        if (inner->kind() == prim::GetAttr &&
            !provenance_.isBoundAttribute(inner)) {
          return false;
        }
        if (!avoidable(inner))
          return false;
      }
    }
    return true;
  }

  CaptureSafety judgeControlFlow(Node* node) {
    const auto blocks = node->blocks();
    const bool is_if = node->kind() == prim::If;
    if (is_if ? provenance_.isLive(node->input())
              : provenance_.isLive(node->input(0)) ||
                    provenance_.isLive(node->input(1)) ||
                    provenance_.isLive(blocks[0]->outputs()[0])) {
      return unsafeBecause(Reason::kTensorControlFlow);
    }
    for (const Value* output : node->outputs()) {
      if (provenance_.isLive(output))
        return unsafeBecause(Reason::kLiveScalar);
      if (!isBoundaryType(*output->type()) &&
          output->type()->kind() != c10::TypeKind::TupleType) {
        return unsafeBecause(Reason::kBoundaryType);
      }
    }
    bool launches = false;
    bool clean_block = false;
    bool may_be_avoided = is_if;
    BlockVerdict worst;
    for (Block* block : blocks) {
      BlockVerdict inner = judgeBlock(block);
      launches |= inner.kind != CaptureClass::kGlue;
      clean_block |= inner.first_break == nullptr;
      may_be_avoided &= inner.may_be_avoided;
      if (inner.first_break != nullptr && worst.first_break == nullptr) {
        worst = std::move(inner);
      }
    }
    if (worst.first_break != nullptr) {
      if (clean_block && may_be_avoided) {
        return {CaptureClass::kConditional, Reason::kContainsBreak,
                "holds a break on one of its sides"};
      }
      return unsafeBecause(Reason::kContainsBreak,
                           std::string("holds ") +
                               worst.first_break->kind().toQualString() +
                               ", which " + worst.sentence);
    }
    return launches ? CaptureSafety{CaptureClass::kSafe, Reason::kNone, ""}
                    : glue();
  }

  std::int64_t kernelCount(Node* node) {
    if (node->blocks().empty()) {
      const CaptureSafety& safety = verdict(node);
      return safety.kind == CaptureClass::kSafe ||
                     safety.kind == CaptureClass::kConditional
                 ? 1
                 : 0;
    }
    std::int64_t count = 0;
    for (Block* block : node->blocks()) {
      for (Node* inner : block->nodes())
        count += kernelCount(inner);
    }
    if (node->kind() == prim::Loop) {
      std::int64_t trips = kAssumedTripCount;
      if (const auto known = torch::jit::toIValue(node->input(0))) {
        trips = std::max<std::int64_t>(
            0, std::min<std::int64_t>(known->toInt(), 1 << 16));
      }
      count *= trips;
    }
    return count;
  }

  // ---- runs -----------------------------------------------------------------

  struct Run {
    std::vector<Node*> members;
    std::unordered_set<const Node*> member_set;
    std::unordered_set<std::string> assigned;  // attributes, by name
    bool writes_outside = false;
    bool draws = false;

    bool empty() const { return members.empty(); }
  };

  static const Node* ancestorIn(const Block* block, const Node* node) {
    while (node != nullptr && node->owningBlock() != block) {
      node = node->owningBlock()->owningNode();
    }
    return node;
  }

  bool definedIn(const Run& run, const Block* block, const Value* value) const {
    const Node* top = ancestorIn(block, value->node());
    return top != nullptr && run.member_set.count(top) != 0;
  }

  // A varying scalar is a host value that changes with each trip of a loop
  // that stays eager; as part of a key it would make one capture a trip.
  bool usesVarying(const Node* node) const {
    if (varying_.empty())
      return false;
    for (const Value* input : node->inputs()) {
      if (varying_.count(input) != 0)
        return true;
    }
    for (const Block* block : node->blocks()) {
      for (const Node* inner : block->nodes()) {
        if (usesVarying(inner))
          return true;
      }
      for (const Value* output : block->outputs()) {
        if (varying_.count(output) != 0)
          return true;
      }
    }
    return false;
  }

  // Whether all that the node writes (blocks included) may be written in the
  // run, and whether some of it lies outside.
  struct WriteCheck {
    bool allowed = true;
    bool outside = false;
  };
  void checkWrites(const Run& run, const Block* block, const Node* top,
                   const Node* node, WriteCheck& check) const {
    for (const std::size_t position : writtenInputs(*node)) {
      const Value* target = node->input(position);
      const bool container = isMutableContainer(*target->type());
      const Origin& origin = provenance_.originOf(target);
      if (origin.unknown || origin.places.empty()) {
        check.allowed = false;
        return;
      }
      for (const Origin::Place& place : origin.places) {
        if (place.kind == Origin::Kind::kNode) {
          const Node* maker = ancestorIn(block, place.value->node());
          if (maker != nullptr &&
              (maker == top || run.member_set.count(maker) != 0)) {
            continue;
          }
          // Memory of an earlier segment stays where it is; that of an eager
          // node moves with every call.
          check.outside = true;
          if (container || segment_values_.count(place.value) == 0) {
            check.allowed = false;
          }
        } else {
          check.outside = true;
          if (container)
            check.allowed = false;
        }
      }
    }
    for (const Block* inner_block : node->blocks()) {
      for (const Node* inner : inner_block->nodes()) {
        checkWrites(run, block, top, inner, check);
      }
    }
  }

  // Glue that may be moved in front of the run that it stands in.
  bool canHoist(const Run& run, Node* node) {
    if (!node->blocks().empty() || !writtenInputs(*node).empty() ||
        hasSideEffectsDeep(*node)) {
      return false;
    }
    // An exception must not overtake what others can see: a write, a draw, an
    // assignment.
    if (mayRaise(*node) &&
        (run.writes_outside || run.draws || !run.assigned.empty())) {
      return false;
    }
    const Block* block = node->owningBlock();
    return std::none_of(
        node->inputs().begin(), node->inputs().end(),
        [&](const Value* input) { return definedIn(run, block, input); });
  }

  bool isGlueByItself(const Node* node) const {
    if (eager_containers_.count(node) != 0)
      return true;
    return node->blocks().empty() &&
           classifyOperator(*node, options_).kind == CaptureClass::kGlue;
  }

  void markVaryingOutputs(const Node* node) {
    for (const Value* output : node->outputs()) {
      if (isHostType(*output->type()))
        varying_.insert(output);
    }
  }

  // Whether an assignment may be made after the run that it stands in: what it
  // assigns can leave a segment, and nothing in the run reads it.
  bool canDefer(Node* node) const {
    if (node->kind() != prim::SetAttr || !attributePath(node->input(0)) ||
        kept_eager_.count(node) != 0) {
      return false;
    }
    if (node->hasAttribute(noGraphAttribute()) &&
        node->i(noGraphAttribute()) != 0) {
      return false;
    }
    const Value* value = node->input(1);
    return isBoundaryType(*value->type()) && !provenance_.isLive(value) &&
           varying_.count(value) == 0;
  }

  void planBlock(Block* block) {
    Run run;
    for (Node* node : block->nodes()) {
      if (node->kind() == prim::Constant)
        continue;
      if (provenance_.isBoundAttribute(node))
        continue;
      if (canDefer(node)) {
        // Cuts nothing: it follows the segment.
        if (run.empty())
          continue;
        run.members.push_back(node);
        run.member_set.insert(node);
        run.assigned.insert(node->s(attr::name));
        continue;
      }
      if (node->kind() == prim::GetAttr &&
          run.assigned.count(node->s(attr::name)) != 0) {
        closeRun(block, run);
      }
      CaptureSafety safety = verdict(node);
      if (safety.kind != CaptureClass::kUnsafe && usesVarying(node)) {
        safety = unsafeBecause(Reason::kVaryingScalar);
        if (node->kind() != prim::If && node->kind() != prim::Loop) {
          markVaryingOutputs(node);
        }
      }
      WriteCheck writes;
      if (safety.kind != CaptureClass::kUnsafe) {
        checkWrites(run, block, node, node, writes);
        if (!writes.allowed)
          safety = unsafeBecause(Reason::kOuterWrite);
      }
      if (safety.kind != CaptureClass::kUnsafe) {
        // Reading an attribute that may be reassigned happens outside.
        if (node->kind() == prim::GetAttr)
          continue;
        for (Block* inner : node->blocks())
          collectLatent(inner);
        run.members.push_back(node);
        run.member_set.insert(node);
        run.writes_outside |= writes.outside;
        run.draws |= drawsRandomNumbers(*node);
        continue;
      }
      const bool tagged = safety.reason == Reason::kTagged;
      if (!tagged && isGlueByItself(node)) {
        // Eager glue between runs costs nothing, and within one it stands in
        // front of the segment, which takes the place of the last member.
        if (run.empty() || canHoist(run, node))
          continue;
      }
      closeRun(block, run);
      recordBreak(node, std::move(safety));
    }
    closeRun(block, run);
  }

  void recordBreak(Node* node, CaptureSafety why) {
    if (!node->blocks().empty()) {
      if (node->kind() == prim::Loop) {
        // Facts flow forward; a value carried around may be varying only from
        // the second trip on, so all carried host values count.
        Block* body = node->blocks()[0];
        varying_.insert(body->inputs()[0]);
        for (std::size_t i = 1; i < body->inputs().size(); ++i) {
          if (isHostType(*body->inputs()[i]->type())) {
            varying_.insert(body->inputs()[i]);
          }
        }
      }
      // A branch or loop that only holds a break is no break of its own.
      if (why.reason != Reason::kContainsBreak) {
        plan_.breaks.push_back({node, std::move(why)});
      }
      for (Block* inner : node->blocks())
        planBlock(inner);
      if (node->kind() == prim::If && !varying_.empty() && usesVarying(node)) {
        markVaryingOutputs(node);
      }
      return;
    }
    if (why.reason == Reason::kContainsBreak)
      return;
    const CaptureClass own = classifyOperator(*node, options_).kind;
    if (own == CaptureClass::kSafe || own == CaptureClass::kConditional) {
      ++plan_.eager_kernels;
    }
    plan_.breaks.push_back({node, std::move(why)});
  }

  bool usedOutside(const Node* node, const Block* block,
                   const std::unordered_set<const Node*>& inside) const {
    for (const Value* output : node->outputs()) {
      for (const auto& use : output->uses()) {
        const Node* user = ancestorIn(block, use.user);
        if (user == nullptr || inside.count(user) == 0 ||
            user->kind() == prim::SetAttr) {
          return true;
        }
      }
    }
    return false;
  }

  // Glue that is kept in the segment though no kernel follows: what ends a
  // tape must lie on the tape's side of the border, and a container's last
  // mutation on the side of the others.
  static bool staysBehindKernel(const Node* node) {
    return node->kind() == torch::jit::aten::detach ||
           !writtenInputs(*node).empty();
  }

  void closeRun(Block* block, Run& run) {
    Run finished;
    std::swap(finished, run);
    auto& members = finished.members;
    std::int64_t kernels = 0;
    std::size_t first = members.size();
    std::size_t last = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::int64_t count = kernelCount(members[i]);
      kernels += count;
      if (count > 0)
        first = std::min(first, i);
      if (count > 0 || staysBehindKernel(members[i]))
        last = i;
    }
    if (kernels == 0)
      return;
    if (kernels < options_.min_segment_size) {
      plan_.eager_kernels += kernels;
      return;
    }
    // Glue behind the last kernel stays on the caller's side.
    members.resize(last + 1);
    std::unordered_set<const Node*> inside(members.begin(), members.end());
    // So does glue in front of the first, unless only the segment uses it: then
    // keeping it inside costs nothing a call. Backwards, so that whatever feeds
    // glue that leaves is seen as used outside.
    bool shared = false;
    for (std::size_t i = first; i-- > 0;) {
      if (!usedOutside(members[i], block, inside))
        continue;
      const Mutation mutation = mutationOf(members[i], block, inside);
      if (mutation == Mutation::kOutside) {
        shareContainer(members[i]);
        shared = true;
      }
      if (mutation == Mutation::kNone)
        inside.erase(members[i]);
    }
    if (shared)
      return;
    members.erase(std::remove_if(members.begin(), members.end(),
                                 [&](const Node* node) {
                                   return inside.count(node) == 0;
                                 }),
                  members.end());

    PlannedSegment segment;
    segment.kernel_count = kernels;
    for (const Node* node : members)
      segment.node_count += countNodes(*node);
    segment.nodes = members;
    if (!findBoundary(block, inside, segment))
      return;
    segment.name = "segment_" + std::to_string(number_++);
    for (const Node* node : members) {
      for (const Value* output : node->outputs()) {
        segment_values_.insert(output);
      }
    }
    plan_.segments.push_back(std::move(segment));
  }

  // ---- borders --------------------------------------------------------------

  bool isPureView(const Node* node) const {
    if (!node->blocks().empty() || !writtenInputs(*node).empty())
      return false;
    switch (node->kind()) {
      case prim::TupleConstruct:
      case prim::TupleIndex:
      case prim::TupleUnpack:
      case prim::ListConstruct:
      case prim::DictConstruct:
      case prim::ListUnpack:
      case prim::unchecked_cast:
        return true;
      case torch::jit::aten::detach:
        return false;  // Outside, it would hold on to the tape.
      default:
        break;
    }
    return classifyOperator(*node, options_).kind == CaptureClass::kGlue &&
           node->kind().is_aten() && node->outputs().size() == 1 &&
           (containsTensor(*node->output()->type()) ||
            isMutableContainer(*node->output()->type()));
  }

  enum class Mutation { kNone, kInside, kOutside };

  // Whether a list or dict is mutated after its construction, and whether some
  // mutation lies outside a segment.
  Mutation mutationOf(const Value* container, const Block* block,
                      const std::unordered_set<const Node*>& inside) {
    if (!mutations_known_) {
      collectMutations(graph_.block());
      mutations_known_ = true;
    }
    Mutation result = Mutation::kNone;
    const auto consider = [&](const std::vector<const Node*>& mutations) {
      for (const Node* mutation : mutations) {
        const Node* top = ancestorIn(block, mutation);
        if (top == nullptr || inside.count(top) == 0) {
          result = Mutation::kOutside;
          return;
        }
        result = std::max(result, Mutation::kInside);
      }
    };
    const Origin& origin = provenance_.originOf(container);
    if (origin.unknown) {
      consider(all_mutations_);
      return result;
    }
    // What is changed through an unknown name is none that only its own name
    // reaches.
    if (isStored(container))
      consider(unknown_mutations_);
    for (const Origin::Place& place : origin.places) {
      const auto it = mutations_.find(place.value);
      if (it != mutations_.end())
        consider(it->second);
    }
    return result;
  }

  // Whether a container can be reached by another name than its value's: from
  // another container, an attribute, or a branch's or loop's result.
  static bool isStored(const Value* container) {
    for (const auto& use : container->uses()) {
      if (use.user->kind() == prim::ListUnpack)
        continue;
      const auto* schema = use.user->maybeSchema();
      if (schema == nullptr || use.offset >= schema->arguments().size() ||
          !use.user->kind().is_aten()) {
        return true;
      }
      const auto* alias = schema->arguments()[use.offset].alias_info();
      if (alias != nullptr && alias->isWildcardAfter())
        return true;
    }
    return false;
  }

  void collectMutations(const Block* block) {
    for (const Node* node : block->nodes()) {
      for (const std::size_t position : writtenInputs(*node)) {
        const Value* target = node->input(position);
        if (!isMutableContainer(*target->type()))
          continue;
        const Origin& origin = provenance_.originOf(target);
        all_mutations_.push_back(node);
        if (origin.unknown)
          unknown_mutations_.push_back(node);
        for (const auto& place : origin.places)
          mutations_[place.value].push_back(node);
      }
      for (const Block* inner : node->blocks())
        collectMutations(inner);
    }
  }

  Mutation mutationOf(const Node* maker, const Block* block,
                      const std::unordered_set<const Node*>& inside) {
    Mutation result = Mutation::kNone;
    for (const Value* output : maker->outputs()) {
      if (!isMutableContainer(*output->type()))
        continue;
      result = std::max(result, mutationOf(output, block, inside));
    }
    return result;
  }

  // Finds inputs, outputs and the glue to compute a second time outside.
  // Returns false, and asks for another round, where a container is shared. All
  // that are found are shared at once: a round plans the whole graph.
  bool findBoundary(Block* block, const std::unordered_set<const Node*>& inside,
                    PlannedSegment& segment) {
    // Outputs. Walking backwards, a view or packing that is used outside moves
    // its demand to what it is made of.
    std::unordered_set<const Value*> demanded;
    for (const Node* node : segment.nodes) {
      for (const Value* output : node->outputs()) {
        for (const auto& use : output->uses()) {
          const Node* user = ancestorIn(block, use.user);
          if (user == nullptr || inside.count(user) == 0 ||
              user->kind() == prim::SetAttr) {
            demanded.insert(output);
            break;
          }
        }
      }
    }
    bool fits = true;
    std::unordered_set<const Node*> recomputed;
    for (auto it = segment.nodes.rbegin(); it != segment.nodes.rend(); ++it) {
      Node* node = *it;
      const bool wanted = std::any_of(
          node->outputs().begin(), node->outputs().end(),
          [&](const Value* output) { return demanded.count(output) != 0; });
      if (!wanted)
        continue;
      const Mutation mutation = mutationOf(node, block, inside);
      if (mutation == Mutation::kOutside)
        fits = shareContainer(node);
      if (mutation == Mutation::kNone && isPureView(node)) {
        recomputed.insert(node);
        for (const Value* output : node->outputs())
          demanded.erase(output);
        for (const Value* input : node->inputs()) {
          const Node* maker = ancestorIn(block, input->node());
          if (maker != nullptr && inside.count(maker) != 0 &&
              input->node()->kind() != prim::Constant) {
            demanded.insert(input);
          }
        }
      }
    }
    if (!fits)
      return false;
    for (Node* node : segment.nodes) {
      if (recomputed.count(node) != 0)
        segment.recomputed.push_back(node);
      for (Value* output : node->outputs()) {
        if (demanded.count(output) == 0)
          continue;
        if (!isBoundaryType(*output->type()))
          fits = keepEager(node);
        segment.outputs.push_back(output);
      }
    }
    if (!fits)
      return false;
    // Inputs, in order of first use.
    std::unordered_set<const Value*> seen;
    for (Node* node : segment.nodes) {
      fits &= collectInputs(node, block, inside, seen, segment);
    }
    return fits;
  }

  bool collectInputs(Node* node, const Block* block,
                     const std::unordered_set<const Node*>& inside,
                     std::unordered_set<const Value*>& seen,
                     PlannedSegment& segment) {
    const auto consider = [&](Value* value) {
      const Node* maker = ancestorIn(block, value->node());
      if (maker != nullptr && inside.count(maker) != 0)
        return true;
      // Parameters of blocks inside a member belong to it.
      if (maker == nullptr) {
        const Node* owner = value->node()->owningBlock()->owningNode();
        for (; owner != nullptr; owner = owner->owningBlock()->owningNode()) {
          if (inside.count(owner) != 0)
            return true;
        }
      }
      if (value->node()->kind() == prim::Constant)
        return true;
      if (!seen.insert(value).second)
        return true;
      if (!isBoundaryType(*value->type()))
        return false;
      segment.inputs.push_back(value);
      return true;
    };
    for (Value* input : node->inputs()) {
      // The object stays outside; the body notes the path to it.
      if (node->kind() == prim::SetAttr && input == node->input(0))
        continue;
      if (!consider(input))
        return keepEager(node);
    }
    for (Block* inner : node->blocks()) {
      for (Node* member : inner->nodes()) {
        if (!collectInputs(member, block, inside, seen, segment))
          return false;
      }
      for (Value* output : inner->outputs()) {
        if (!consider(output))
          return keepEager(node);
      }
    }
    return true;
  }

  // Makes the container eager that the member's output stands for. Where its
  // maker is eager already, the member itself goes.
  bool shareContainer(Node* member) {
    bool progress = false;
    for (const Value* output : member->outputs()) {
      if (!isMutableContainer(*output->type()))
        continue;
      for (const auto& place : provenance_.originOf(output).places) {
        const Node* maker = place.value->node();
        progress |= eager_containers_.insert(maker).second;
        forget(maker);
      }
    }
    if (!progress)
      return keepEager(member, Reason::kSharedContainer);
    retry_ = true;
    return false;
  }

  // A member whose value cannot cross the border stays outside.
  bool keepEager(Node* node, Reason reason = Reason::kBoundaryType) {
    const auto [kept, inserted] =
        kept_eager_.emplace(node, KeptEager{reason, round_});
    TORCH_INTERNAL_ASSERT(
        inserted || kept->second.round == round_,
        "planned again what is eager already: ", describeNode(*node));
    forget(node);
    retry_ = true;
    return false;
  }

  // Drops cached verdicts of a node and of what contains it.
  void forget(const Node* node) {
    for (; node != nullptr; node = node->owningBlock()->owningNode()) {
      verdicts_.erase(node);
    }
  }

  Graph& graph_;
  const PartitionOptions& options_;
  Provenance provenance_;
  std::int64_t number_ = 0;
  Plan plan_;
  bool retry_ = false;
  int round_ = 0;
  std::unordered_map<const Node*, CaptureSafety> verdicts_;
  std::unordered_set<const Node*> eager_containers_;
  std::unordered_map<const Node*, KeptEager> kept_eager_;
  std::unordered_set<const Value*> varying_;
  std::unordered_set<const Value*> segment_values_;
  // Nodes that change a list or dict, in program order: all of them, those
  // where it is not known which, and the others by the value it was made as.
  std::vector<const Node*> all_mutations_;
  std::vector<const Node*> unknown_mutations_;
  std::unordered_map<const Value*, std::vector<const Node*>> mutations_;
  bool mutations_known_ = false;
};

}  // namespace

Plan plan(Graph& graph, const PartitionOptions& options) {
  return Planner(graph, options).run();
}

std::vector<PlannedBreak> latentBreaks(Graph& graph,
                                       const PartitionOptions& options) {
  return Planner(graph, options).latentBreaks();
}

void addToReport(const Plan& plan, const std::string& method,
                 PartitionReport& report) {
  for (const PlannedSegment& segment : plan.segments) {
    report.segments.push_back({method + "." + segment.name, method,
                               segment.node_count, segment.kernel_count});
  }
  const auto add = [&](const std::vector<PlannedBreak>& planned,
                       std::vector<BreakReport>& breaks) {
    for (const PlannedBreak& item : planned) {
      breaks.push_back({method, item.node->kind().toQualString(),
                        toString(item.why.reason), item.why.sentence,
                        sourceLocation(*item.node), modulePath(*item.node)});
    }
  };
  add(plan.breaks, report.breaks);
  add(plan.possible_breaks, report.possible_breaks);
  report.eager_kernels += plan.eager_kernels;
}

}  // namespace pcg
