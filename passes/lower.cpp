#include "passes/lower.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "passes/capture_safety_table.h"
#include "passes/classify.h"
#include "passes/operators.h"
#include "passes/outline.h"
#include "passes/provenance.h"
#include "passes/sequence_state.h"

namespace pcg {
namespace {

using c10::ClassType;
using c10::ClassTypePtr;
using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;
using torch::jit::Block;
using torch::jit::Function;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

// ---- segments ---------------------------------------------------------------

bool isBindableType(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::StringType:
    case TypeKind::NoneType:
      return true;
    case TypeKind::OptionalType:
      return isBindableType(*type.containedType(0));
    default:
      return false;
  }
}

// The attribute path of a value that is read from the method's module, or an
// empty string.
std::string boundPath(const Value* value, const Value* self) {
  if (!isBindableType(*value->type()))
    return "";
  std::string path;
  for (const Node* node = value->node(); node->kind() == prim::GetAttr;
       node = node->input()->node()) {
    if (node->hasAttribute(mutableStateAttribute()))
      return "";
    path = node->s(attr::name) + (path.empty() ? "" : "." + path);
    if (node->input() == self)
      return path;
  }
  return "";
}

IValue valueAt(const Module& module, const std::string& path) {
  IValue value = module._ivalue();
  std::istringstream parts(path);
  std::string name;
  while (std::getline(parts, name, '.')) {
    value = value.toObjectRef().getAttr(name);
  }
  return value;
}

// Whether no use of the value can outlast the call or hand it on unseen:
// operators that declare no alias of it, and other segments.
bool staysInCall(const Value* value, std::unordered_set<const Value*>& seen) {
  if (!seen.insert(value).second)
    return true;
  for (const auto& use : value->uses()) {
    const Node* user = use.user;
    if (user->kind() == segmentKind())
      continue;
    if (user->kind() == prim::Return) {
      const Node* owner = user->owningBlock()->owningNode();
      if (owner == nullptr)
        return false;
      if (owner->kind() == prim::If) {
        if (!staysInCall(owner->outputs()[use.offset], seen))
          return false;
        continue;
      }
      // A loop's condition is its first result.
      if (use.offset == 0)
        continue;
      if (!staysInCall(owner->outputs()[use.offset - 1], seen) ||
          !staysInCall(owner->blocks()[0]->inputs()[use.offset], seen)) {
        return false;
      }
      continue;
    }
    if (user->kind() == prim::Loop && use.offset >= 2) {
      if (!staysInCall(user->outputs()[use.offset - 2], seen) ||
          !staysInCall(user->blocks()[0]->inputs()[use.offset - 1], seen)) {
        return false;
      }
      continue;
    }
    const auto* schema = user->maybeSchema();
    if (schema == nullptr || !user->kind().is_aten() ||
        use.offset >= schema->arguments().size() ||
        schema->arguments()[use.offset].alias_info() != nullptr ||
        liesAboutAliasing(qualifiedName(*user))) {
      return false;
    }
  }
  return true;
}

// What becomes of one `pcg::segment` node.
struct LoweredSegment {
  SegmentState state;
  std::vector<Value*> call_inputs;  // in the method's graph
  std::shared_ptr<Graph> function;
};

// Torch writes a value that is used once into the expression that uses it, and
// both writes and reads expressions by recursion: a long chain would exhaust
// the stack. A value with a name gets a line of its own.
void nameDeepExpressions(Block* block,
                         std::unordered_map<const Value*, int>& depths) {
  constexpr int kMostDepth = 64;
  for (Node* node : block->nodes()) {
    int depth = 0;
    for (const Value* input : node->inputs()) {
      const auto it = depths.find(input);
      if (it != depths.end())
        depth = std::max(depth, it->second);
    }
    for (Block* inner : node->blocks())
      nameDeepExpressions(inner, depths);
    if (node->outputs().size() != 1 || node->output()->hasDebugName() ||
        node->output()->uses().size() != 1) {
      continue;
    }
    if (depth < kMostDepth) {
      depths[node->output()] = depth + 1;
    } else {
      node->output()->setDebugName("t");
    }
  }
}

// A value that was forwarded from an assignment can make a condition constant,
// and torch folds that when it loads the segment: a draw that the other branch
// had a use for has to happen all the same.
void keepDraws(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    ++it;
    for (Block* inner : node->blocks())
      keepDraws(inner);
    if (!node->blocks().empty() || node->outputs().empty() ||
        !drawsRandomNumbers(*node)) {
      continue;
    }
    keepAlive(node);
  }
}

LoweredSegment lowerSegment(Node& segment, const Value* self,
                            const Module& module, const std::string& method) {
  LoweredSegment result;
  result.state.name = method + "." + segment.s(attr::name);
  for (const Value* output : segment.outputs()) {
    std::unordered_set<const Value*> seen;
    result.state.borrowed.push_back(output->type()->kind() ==
                                        TypeKind::TensorType &&
                                    staysInCall(output, seen));
  }
  auto body = segment.g(attr::Subgraph)->copy();
  keepDraws(body->block());
  auto function = std::make_shared<Graph>();
  Value* unused_self = function->addInput("self");

  std::unordered_map<Value*, Value*> inside;
  std::vector<std::size_t> bound;
  for (std::size_t i = 0; i < segment.inputs().size(); ++i) {
    Value* outer = segment.inputs()[i];
    const std::string path = self == nullptr ? "" : boundPath(outer, self);
    if (!path.empty()) {
      result.state.bound.push_back({path, valueAt(module, path)});
      bound.push_back(i);
      continue;
    }
    result.call_inputs.push_back(outer);
    Value* inner = function->addInput();
    inner->copyMetadata(body->inputs()[i]);
    inside[body->inputs()[i]] = inner;
  }
  for (const std::size_t i : bound) {
    Value* inner = function->addInput();
    inner->copyMetadata(body->inputs()[i]);
    inside[body->inputs()[i]] = inner;
  }
  for (Node* node : body->nodes()) {
    // Tensor constants are weights of a frozen module: kept as values, which
    // follow the file's device map, instead of in the segment's text.
    if (node->kind() == prim::Constant &&
        node->output()->type()->kind() == TypeKind::TensorType) {
      Value* inner = function->addInput();
      inner->copyMetadata(node->output());
      inside[node->output()] = inner;
      result.state.bound.push_back({"", *torch::jit::toIValue(node->output())});
      continue;
    }
    Node* copy = function->insertNode(function->createClone(
        node, [&](Value* value) { return inside.at(value); }));
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      copy->outputs()[i]->copyMetadata(node->outputs()[i]);
      inside[node->outputs()[i]] = copy->outputs()[i];
    }
  }
  std::vector<Value*> outputs;
  for (Value* output : body->outputs())
    outputs.push_back(inside.at(output));
  Node* tuple = function->insertNode(function->createTuple(outputs));
  function->registerOutput(tuple->output());
  (void)unused_self;
  std::unordered_map<const Value*, int> depths;
  nameDeepExpressions(function->block(), depths);
  result.function = std::move(function);
  return result;
}

std::string methodName(std::size_t index) {
  return "s" + std::to_string(index);
}

// A module of segment functions, as the text that SequenceState carries.
std::string writeArchive(const std::vector<LoweredSegment>& segments) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  Module holder(c10::QualifiedName("__torch__.pcg.Segments"), unit);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto& graph = segments[i].function;
    graph->inputs()[0]->setType(holder.type());
    Function* function = unit->create_function(
        c10::QualifiedName(*holder.type()->name(), methodName(i)), graph);
    std::vector<c10::Argument> arguments;
    for (std::size_t j = 0; j < graph->inputs().size(); ++j) {
      arguments.emplace_back(j == 0 ? "self" : "v" + std::to_string(j),
                             graph->inputs()[j]->type());
    }
    function->setSchema(
        c10::FunctionSchema(methodName(i), "", std::move(arguments),
                            {c10::Argument("", graph->outputs()[0]->type())}));
    holder.type()->addMethod(function);
  }
  std::ostringstream out;
  holder.save(out);
  return out.str();
}

// ---- methods ----------------------------------------------------------------

void clearMarks(Block* block) {
  for (Node* node : block->nodes()) {
    for (const auto mark : {mutableStateAttribute(), deferredAttribute()}) {
      if (node->hasAttribute(mark))
        node->removeAttribute(mark);
    }
    for (Block* inner : node->blocks())
      clearMarks(inner);
  }
}

// Host reads go through pcg's own operators, which wait less. A read of the
// result of `prim::NumToTensor` and the like takes the same way and ends there
// in the original operator.
void replaceReads(Graph& graph, Block* block) {
  static const std::unordered_map<c10::Symbol, c10::Symbol> kReplacements = {
      {torch::jit::aten::item, c10::Symbol::fromQualString("pcg::item")},
      {torch::jit::aten::Bool, c10::Symbol::fromQualString("pcg::Bool")},
      {torch::jit::aten::Int, c10::Symbol::fromQualString("pcg::Int")},
      {torch::jit::aten::Float, c10::Symbol::fromQualString("pcg::Float")}};
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    ++it;
    for (Block* inner : node->blocks())
      replaceReads(graph, inner);
    const auto found = kReplacements.find(node->kind());
    if (found == kReplacements.end() || node->inputs().size() != 1 ||
        node->input()->type()->kind() != TypeKind::TensorType) {
      continue;
    }
    Node* read = graph.create(found->second, {node->input()});
    read->insertBefore(node);
    read->copyMetadata(node);
    read->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(read->output());
    node->destroy();
  }
}

void callSequence(Graph& graph, Node* segment, Value* sequence, Value* self,
                  const LoweredSegment& lowered) {
  torch::jit::WithInsertPoint here(segment);
  Value* name = graph.insertConstant(IValue(lowered.state.name));
  Node* inputs = graph.insertNode(graph.createTuple(lowered.call_inputs));
  Node* call = graph.insertNode(
      graph.create(runSegmentKind(), {sequence, self, name, inputs->output()}));
  call->output()->setType(c10::AnyType::get());
  for (Node* node : {inputs, call})
    node->copyMetadata(segment);
  if (!segment->outputs().empty()) {
    std::vector<TypePtr> types;
    for (const Value* output : segment->outputs()) {
      types.push_back(output->type());
    }
    Node* typed =
        graph.insertNode(graph.create(prim::unchecked_cast, {call->output()}));
    typed->output()->setType(c10::TupleType::create(types));
    typed->copyMetadata(segment);
    Node* unpack = graph.insertNode(graph.createTupleUnpack(typed->output()));
    unpack->copyMetadata(segment);
    for (std::size_t i = 0; i < segment->outputs().size(); ++i) {
      unpack->outputs()[i]->copyMetadata(segment->outputs()[i]);
      segment->outputs()[i]->replaceAllUsesWith(unpack->outputs()[i]);
    }
  }
  segment->destroy();
}

// ---- the new type -----------------------------------------------------------

class TypeBuilder {
 public:
  TypeBuilder(const Module& module, const ClassTypePtr& sequence_type)
      : old_(module.type()),
        unit_(module._ivalue()->compilation_unit()),
        sequence_type_(sequence_type) {
    for (const char* name : {"__getstate__", "__setstate__"}) {
      if (old_->findMethod(name) != nullptr) {
        throw std::runtime_error(
            "cannot partition a module of type " + old_->annotation_str() +
            ": expected a type without " + name +
            ", whose saved form has no place for a sequence; partition a "
            "module that holds it instead");
      }
    }
    if (old_->hasAttribute(kSequenceAttribute)) {
      throw std::runtime_error(
          "cannot partition a module that has an attribute " +
          std::string(kSequenceAttribute) +
          ": expected a module that was not partitioned before");
    }
    new_ = ClassType::create(unit_->mangle(*old_->name()), unit_,
                             /*is_module=*/true);
    for (std::size_t i = 0; i < old_->numAttributes(); ++i) {
      new_->addAttribute(old_->getAttributeName(i), old_->getAttribute(i),
                         old_->is_parameter(i), old_->is_buffer(i));
    }
    for (std::size_t i = 0; i < old_->numConstants(); ++i) {
      new_->addConstant(old_->getConstantName(i), old_->getConstant(i));
    }
    new_->addAttribute(kSequenceAttribute, sequence_type_);
    unit_->register_type(new_);
  }

  // Takes over every method, those in `graphs` with a new body, and every hook
  // and property.
  void addMethods(
      const std::unordered_map<std::string, std::shared_ptr<Graph>>& graphs) {
    for (Function* method : old_->methods()) {
      const auto it = graphs.find(method->name());
      auto graph = it != graphs.end()
                       ? it->second
                       : torch::jit::toGraphFunction(*method).graph()->copy();
      new_->addMethod(rebuild(*method, graph));
    }
    for (Function* hook : old_->getForwardPreHooks()) {
      new_->addForwardPreHook(
          rebuild(*hook, torch::jit::toGraphFunction(*hook).graph()->copy()));
    }
    for (Function* hook : old_->getForwardHooks()) {
      new_->addForwardHook(
          rebuild(*hook, torch::jit::toGraphFunction(*hook).graph()->copy()));
    }
    for (const auto& property : old_->properties()) {
      new_->addProperty(property.name,
                        new_->findMethod(property.getter->name()),
                        property.setter == nullptr
                            ? nullptr
                            : new_->findMethod(property.setter->name()));
    }
  }

  Module instantiate(const Module& module, const IValue& sequence) const {
    auto object = c10::ivalue::Object::create(c10::StrongTypePtr(unit_, new_),
                                              new_->numAttributes());
    for (std::size_t i = 0; i < old_->numAttributes(); ++i) {
      object->setSlot(i, module._ivalue()->getSlot(i));
    }
    object->setSlot(old_->numAttributes(), sequence);
    return Module(object);
  }

 private:
  TypePtr remap(const TypePtr& type) const {
    const auto as_class = type->cast<ClassType>();
    return as_class && as_class == old_ ? TypePtr(new_) : type;
  }

  Function* rebuild(const Function& method,
                    const std::shared_ptr<Graph>& graph) {
    graph->remapTypes([this](TypePtr type) { return remap(type); });
    Function* function = unit_->create_function(
        c10::QualifiedName(*new_->name(), method.name()), graph);
    const auto& schema = method.getSchema();
    const auto remapArguments = [this](std::vector<c10::Argument> arguments) {
      for (auto& argument : arguments) {
        argument = argument.cloneWithType(remap(argument.type()));
      }
      return arguments;
    };
    function->setSchema(
        schema.cloneWithArguments(remapArguments(schema.arguments()))
            .cloneWithReturns(remapArguments(schema.returns())));
    return function;
  }

  ClassTypePtr old_;
  std::shared_ptr<torch::jit::CompilationUnit> unit_;
  ClassTypePtr sequence_type_;
  ClassTypePtr new_;
};

IValue makeSequence(const ClassTypePtr& type, const SequenceState& state) {
  auto object = c10::ivalue::Object::create(
      c10::StrongTypePtr(std::shared_ptr<torch::jit::CompilationUnit>(), type),
      1);
  type->getMethod("__setstate__")({IValue(object), IValue(pickle(state))});
  return object;
}

}  // namespace

Module lower(const Module& module, const std::vector<OutlinedMethod>& methods,
             const PartitionOptions& options) {
  const ClassTypePtr sequence_type = torch::getCustomClass(kSequenceClass);
  if (!sequence_type) {
    throw std::runtime_error(
        "the class pcg.CUDAGraphSequence is not registered: expected libpcg "
        "to be loaded in this process");
  }
  TypeBuilder builder(module, sequence_type);

  std::vector<LoweredSegment> lowered;
  std::unordered_map<std::string, std::shared_ptr<Graph>> graphs;
  for (const OutlinedMethod& method : methods) {
    Graph& graph = *method.graph;
    const std::vector<Node*> segments = segmentNodes(graph);
    graphs[method.name] = method.graph;
    if (segments.empty()) {
      clearMarks(graph.block());
      continue;
    }
    Value* self = graph.inputs()[0];
    // Not createGetAttr: the old type, which %self still has, lacks it.
    Node* get = graph.create(prim::GetAttr, {self});
    get->s_(attr::name, kSequenceAttribute);
    get->output()->setType(sequence_type);
    graph.prependNode(get);
    replaceReads(graph, graph.block());
    for (Node* segment : segments) {
      lowered.push_back(lowerSegment(*segment, self, module, method.name));
      callSequence(graph, segment, get->output(), self, lowered.back());
    }
    clearMarks(graph.block());
    torch::jit::EliminateDeadCode(graph.block());
  }

  SequenceState state;
  state.archive = writeArchive(lowered);
  for (LoweredSegment& segment : lowered) {
    state.segments.push_back(std::move(segment.state));
  }
  state.backend = options.backend;
  state.min_segment_size = options.min_segment_size;
  state.max_keys_per_segment = options.max_keys_per_segment;
  state.graph_safe_ops = options.graph_safe_ops;

  builder.addMethods(graphs);
  return builder.instantiate(module, makeSequence(sequence_type, state));
}

}  // namespace pcg
