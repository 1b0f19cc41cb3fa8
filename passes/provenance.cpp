#include "passes/provenance.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "passes/capture_safety_table.h"
#include "passes/classify.h"
#include "passes/operators.h"

namespace pcg {

using c10::Type;
using c10::TypeKind;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace aten = torch::jit::aten;
namespace attr = torch::jit::attr;

// ---- types ------------------------------------------------------------------

bool isHostType(const Type& type) {
  switch (type.kind()) {
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::ComplexType:
    case TypeKind::NumberType:
    case TypeKind::StringType:
    case TypeKind::NoneType:
    case TypeKind::DeviceObjType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::EnumType:
      return true;
    case TypeKind::ListType:
    case TypeKind::OptionalType:
    case TypeKind::TupleType:
    case TypeKind::DictType: {
      const auto contained = type.containedTypes();
      return std::all_of(contained.begin(), contained.end(),
                         [](const auto& inner) { return isHostType(*inner); });
    }
    default:
      return false;
  }
}

bool isBoundaryType(const Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
      return true;
    case TypeKind::EnumType:
      return false;  // Its class would be a different one behind the border.
    case TypeKind::TupleType:
      if (type.cast<c10::TupleType>()->schema())
        return false;  // NamedTuple
      [[fallthrough]];
    case TypeKind::ListType:
    case TypeKind::OptionalType:
    case TypeKind::DictType: {
      const auto contained = type.containedTypes();
      return std::all_of(
          contained.begin(), contained.end(),
          [](const auto& inner) { return isBoundaryType(*inner); });
    }
    default:
      return isHostType(type);
  }
}

bool isMutableContainer(const Type& type) {
  switch (type.kind()) {
    case TypeKind::ListType:
    case TypeKind::DictType:
      return true;
    case TypeKind::OptionalType:
    case TypeKind::TupleType: {
      const auto contained = type.containedTypes();
      return std::any_of(
          contained.begin(), contained.end(),
          [](const auto& inner) { return isMutableContainer(*inner); });
    }
    default:
      return false;
  }
}

bool containsTensor(const Type& type) {
  if (type.kind() == TypeKind::TensorType)
    return true;
  const auto contained = type.containedTypes();
  return std::any_of(contained.begin(), contained.end(),
                     [](const auto& inner) { return containsTensor(*inner); });
}

// ---- nodes ------------------------------------------------------------------

bool hasSideEffectsDeep(const Node& node) {
  if (node.kind() == prim::SetAttr || node.hasSideEffects())
    return true;
  for (const Block* block : node.blocks()) {
    for (const Node* inner : block->nodes()) {
      if (hasSideEffectsDeep(*inner))
        return true;
    }
  }
  return false;
}

bool drawsRandomNumbers(const Block& block) {
  return std::any_of(
      block.nodes().begin(), block.nodes().end(),
      [](const Node* node) { return drawsRandomNumbers(*node); });
}

bool drawsRandomNumbers(const Node& node) {
  if (node.isNondeterministic())
    return true;
  if (const auto* op = node.maybeOperator()) {
    for (const auto tag : op->getTags()) {
      if (tag == at::Tag::nondeterministic_seeded)
        return true;
    }
  }
  return std::any_of(
      node.blocks().begin(), node.blocks().end(),
      [](const Block* block) { return drawsRandomNumbers(*block); });
}

std::int64_t countNodes(const Node& node) {
  std::int64_t count = 1;
  for (const Block* block : node.blocks())
    count += countNodes(*block);
  return count;
}

std::int64_t countNodes(const Block& block) {
  std::int64_t count = 0;
  for (const Node* node : block.nodes())
    count += countNodes(*node);
  return count;
}

std::vector<std::size_t> writtenInputs(const Node& node) {
  std::vector<std::size_t> written;
  const auto* schema = node.maybeSchema();
  if (schema == nullptr)
    return written;
  const auto& arguments = schema->arguments();
  for (std::size_t i = 0; i < arguments.size() && i < node.inputs().size();
       ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite())
      written.push_back(i);
  }
  return written;
}

namespace {

// Declared fresh or not: nodes that hand on (part of) an input unchanged.
bool passesInputOn(const Node& node) {
  switch (node.kind()) {
    case prim::unchecked_cast:
    case prim::unchecked_unwrap_optional:
    case aten::_unwrap_optional:
      return true;
    default:
      return false;
  }
}

bool readsHostTensor(const Node& node) {
  switch (node.kind()) {
    case aten::Int:
    case aten::Float:
    case aten::Bool:
    case aten::item:
    case aten::IntImplicit:
    case aten::FloatImplicit:
    case aten::ScalarImplicit:
    case aten::ComplexImplicit:
      return true;
    default:
      return false;
  }
}

// Results are parts of an input, or come from code that is not seen.
bool takesApart(const Node& node) {
  switch (node.kind()) {
    case prim::TupleUnpack:
    case prim::TupleIndex:
    case prim::TupleSlice:
    case prim::ListUnpack:
    case prim::CallMethod:
    case prim::CallFunction:
    case prim::GetAttr:
      return true;
    default:
      return false;
  }
}

// For the unpacking of a list of views that only it uses: the node that made
// the views. Each of them lies in the memory of that node's first input.
const Node* unpackedViews(const Node& node) {
  if (node.kind() != prim::ListUnpack)
    return nullptr;
  const Value* list = node.input();
  switch (list->node()->kind()) {
    case aten::chunk:
    case aten::split:
    case aten::split_with_sizes:
    case aten::unbind:
      return list->uses().size() == 1 ? list->node() : nullptr;
    default:
      return nullptr;
  }
}

// A size, device, dtype or length: says nothing of a tensor's data.
bool isMetadataRead(const Node& node) {
  return classifyOperator(node, PartitionOptions{}).kind == CaptureClass::kGlue;
}

}  // namespace

void Origin::join(const Origin& other) {
  unknown |= other.unknown;
  for (const Place& place : other.places) {
    if (std::find(places.begin(), places.end(), place) == places.end()) {
      places.push_back(place);
    }
  }
  constexpr std::size_t kMostPlaces = 4;
  if (places.size() > kMostPlaces)
    unknown = true;
  if (unknown)
    places.clear();
}

Provenance::Provenance(Graph& graph) {
  for (const Value* input : graph.inputs()) {
    if (input->type()->kind() == TypeKind::ClassType) {
      module_chain_.insert(input);
    }
    joinOrigin(input, {false, {{Origin::Kind::kMethodInput, input}}});
  }
  visitBlock(graph.block());
}

bool Provenance::isLive(const Value* value) const {
  if (live_.count(value) != 0)
    return true;
  if (live_places_.empty() || !isMutableContainer(*value->type()))
    return false;
  const Origin& origin = originOf(value);
  return std::any_of(origin.places.begin(), origin.places.end(),
                     [this](const Origin::Place& place) {
                       return live_places_.count(place.value) != 0;
                     });
}

bool Provenance::isHostTensor(const Value* value) const {
  return host_tensors_.count(value) != 0;
}

const Origin& Provenance::originOf(const Value* value) const {
  static const Origin kUnknown{true, {}};
  const auto it = origins_.find(value);
  return it == origins_.end() ? kUnknown : it->second;
}

bool Provenance::isModuleChain(const Value* value) const {
  return module_chain_.count(value) != 0;
}

bool Provenance::isBoundAttribute(const Node* node) const {
  return node->kind() == prim::GetAttr && isModuleChain(node->input()) &&
         !node->hasAttribute(mutableStateAttribute());
}

bool Provenance::markLive(const Value* value) {
  return live_.insert(value).second;
}

bool Provenance::joinOrigin(const Value* value, const Origin& origin) {
  auto [it, inserted] = origins_.try_emplace(value, origin);
  if (inserted)
    return true;
  Origin before = it->second;
  it->second.join(origin);
  return !(before == it->second);
}

bool Provenance::visitBlock(Block* block) {
  bool changed = false;
  for (Node* node : block->nodes())
    changed |= visitNode(node);
  return changed;
}

// Returns whether a fact changed; loops are visited until none does. Facts only
// grow, so this ends.
bool Provenance::visitNode(Node* node) {
  bool changed = false;
  if (node->kind() == prim::If) {
    for (Block* block : node->blocks())
      changed |= visitBlock(block);
    const bool live_predicate = isLive(node->input());
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      Value* output = node->output(i);
      for (Block* block : node->blocks()) {
        Value* result = block->outputs()[i];
        changed |= joinOrigin(output, originOf(result));
        if (isLive(result))
          changed |= markLive(output);
      }
      if (live_predicate && isHostType(*output->type())) {
        changed |= markLive(output);
      }
    }
    return changed;
  }
  if (node->kind() == prim::Loop) {
    Block* body = node->blocks()[0];
    bool again = true;
    while (again) {
      again = false;
      bool live_path = isLive(node->input(0)) || isLive(node->input(1)) ||
                       isLive(body->outputs()[0]);
      for (std::size_t i = 0; i < node->outputs().size(); ++i) {
        Value* carried = body->inputs()[i + 1];
        Value* initial = node->input(i + 2);
        Value* next = body->outputs()[i + 1];
        again |= joinOrigin(carried, originOf(initial));
        again |= joinOrigin(carried, originOf(next));
        if (isLive(initial) || isLive(next))
          again |= markLive(carried);
        Value* output = node->output(i);
        again |= joinOrigin(output, originOf(carried));
        if (isLive(carried) || (live_path && isHostType(*output->type()))) {
          again |= markLive(output);
        }
      }
      if (live_path)
        again |= markLive(body->inputs()[0]);
      again |= visitBlock(body);
      changed |= again;
    }
    return changed;
  }

  // Module chains and bound attributes.
  if (node->kind() == prim::GetAttr && isModuleChain(node->input())) {
    Value* output = node->output();
    if (node->hasAttribute(mutableStateAttribute())) {
      changed |= joinOrigin(output, {true, {}});
    } else {
      if (output->type()->kind() == TypeKind::ClassType) {
        changed |= module_chain_.insert(output).second;
      }
      changed |=
          joinOrigin(output, {false, {{Origin::Kind::kModuleState, output}}});
    }
    return changed;
  }
  if (node->kind() == prim::Constant) {
    Value* output = node->output();
    return joinOrigin(output, {false, {{Origin::Kind::kModuleState, output}}});
  }

  // Host tensors: wrapped host values and pointwise arithmetic on them.
  bool any_live = false;
  bool any_tensor = false;
  bool only_host_tensors = true;
  for (const Value* input : node->inputs()) {
    any_live |= isLive(input);
    if (containsTensor(*input->type())) {
      any_tensor = true;
      only_host_tensors &= isHostTensor(input);
    }
  }
  const bool wraps_scalar = node->kind() == prim::NumToTensor;
  if (wraps_scalar || (any_tensor && only_host_tensors &&
                       node->kind().is_aten() && node->outputs().size() == 1 &&
                       node->output()->type()->kind() == TypeKind::TensorType &&
                       writtenInputs(*node).empty())) {
    changed |= host_tensors_.insert(node->output()).second;
    if (any_live)
      changed |= markLive(node->output());
  }

  // A container that takes up a live value is live under all its names.
  if (any_live) {
    for (const std::size_t position : writtenInputs(*node)) {
      const Value* target = node->input(position);
      if (!isMutableContainer(*target->type()))
        continue;
      for (const Origin::Place& place : originOf(target).places) {
        changed |= live_places_.insert(place.value).second;
      }
    }
  }

  // Liveness of host results.
  for (const Value* output : node->outputs()) {
    if (!isHostType(*output->type()))
      continue;
    bool live = any_live;
    if (any_tensor && !live) {
      live =
          readsHostTensor(*node) ? !only_host_tensors : !isMetadataRead(*node);
    }
    if (live)
      changed |= markLive(output);
  }

  // Origins by the schema's alias sets.
  const auto* schema = node->maybeSchema();
  for (std::size_t i = 0; i < node->outputs().size(); ++i) {
    Value* output = node->output(i);
    if (!containsTensor(*output->type()) &&
        !isMutableContainer(*output->type())) {
      continue;
    }
    Origin origin;
    const c10::AliasInfo* alias = nullptr;
    if (schema != nullptr && i < schema->returns().size()) {
      alias = schema->returns()[i].alias_info();
    }
    if (passesInputOn(*node)) {
      origin = originOf(node->input(0));
    } else if (const Node* views = unpackedViews(*node)) {
      origin = originOf(views->input(0));
    } else if (alias != nullptr && alias->beforeSets().empty() &&
               !alias->isWildcardAfter()) {
      // A fresh list of views, as `split` returns it.
      origin.places.push_back({Origin::Kind::kNode, node->output(0)});
    } else if (alias != nullptr) {
      if (alias->isWildcardAfter()) {
        origin.unknown = true;
      } else {
        const auto& arguments = schema->arguments();
        for (std::size_t j = 0;
             j < arguments.size() && j < node->inputs().size(); ++j) {
          const auto* other = arguments[j].alias_info();
          if (other == nullptr)
            continue;
          for (const auto& set : alias->beforeSets()) {
            if (other->beforeSets().count(set) != 0) {
              // Elements handed out of a container are not the container.
              if (isMutableContainer(*node->input(j)->type()) !=
                  isMutableContainer(*output->type())) {
                origin.unknown = true;
              } else {
                origin.join(originOf(node->input(j)));
              }
            }
          }
        }
        if (origin.places.empty())
          origin.unknown = true;
      }
    } else if (takesApart(*node)) {
      origin.unknown = true;
    } else {
      origin.places.push_back({Origin::Kind::kNode, node->output(0)});
      if (liesAboutAliasing(qualifiedName(*node)) && !node->inputs().empty()) {
        if (node->input(0)->type()->kind() == TypeKind::TensorType) {
          origin.join(originOf(node->input(0)));
        } else {
          origin.unknown = true;
          origin.places.clear();
        }
      }
    }
    changed |= joinOrigin(output, origin);
  }
  return changed;
}

}  // namespace pcg
