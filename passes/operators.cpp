#include "passes/operators.h"

#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/library.h>

#include <stdexcept>
#include <utility>

namespace pcg {

using c10::Symbol;

Symbol segmentKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::segment");
  return kind;
}
Symbol runSegmentKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::run_segment");
  return kind;
}
Symbol noteAttributeKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::note_attribute");
  return kind;
}
Symbol keepKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::keep");
  return kind;
}

void keepAlive(torch::jit::Node* node) {
  torch::jit::Node* keep =
      node->owningGraph()->create(keepKind(), {node->outputs()[0]}, 0);
  keep->insertAfter(node);
  keep->copyMetadata(node);
}
Symbol noGraphBeginKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::no_graph_begin");
  return kind;
}
Symbol noGraphEndKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::no_graph_end");
  return kind;
}
Symbol forceNoGraphKind() {
  static const Symbol kind = Symbol::fromQualString("pcg::force_no_graph");
  return kind;
}
Symbol noGraphAttribute() {
  static const Symbol name = Symbol::attr("no_graph");
  return name;
}
Symbol noGraphTagAttribute() {
  static const Symbol name = Symbol::attr("no_graph_tag");
  return name;
}
Symbol mutableStateAttribute() {
  static const Symbol name = Symbol::attr("mutable_state");
  return name;
}
Symbol deferredAttribute() {
  static const Symbol name = Symbol::attr("deferred");
  return name;
}

bool mayRaise(const torch::jit::Node& node) {
  switch (node.kind()) {
    case torch::jit::prim::Constant:
    case torch::jit::prim::DictConstruct:
    case torch::jit::prim::GetAttr:
    case torch::jit::prim::ListConstruct:
    case torch::jit::prim::TupleConstruct:
    case torch::jit::prim::TupleIndex:
    case torch::jit::prim::TupleUnpack:
    case torch::jit::prim::Uninitialized:
    case torch::jit::prim::unchecked_cast:
      return false;
    default:
      return true;
  }
}

std::optional<std::string> attributePath(const torch::jit::Value* object) {
  std::string path;
  const torch::jit::Node* node = object->node();
  for (; node->kind() == torch::jit::prim::GetAttr; node = object->node()) {
    const std::string& name = node->s(torch::jit::attr::name);
    path = path.empty() ? name : name + "." + path;
    object = node->input();
  }
  const auto inputs = object->owningGraph()->inputs();
  if (inputs.empty() || object != inputs[0] ||
      object->type()->kind() != c10::TypeKind::ClassType) {
    return std::nullopt;
  }
  return path;
}

namespace {

thread_local AttributeNotes* collector = nullptr;

}  // namespace

AttributeNotes::AttributeNotes() {
  if (collector == nullptr)
    collector = this;
}

AttributeNotes::~AttributeNotes() {
  if (collector == this)
    collector = nullptr;
}

void noteAttribute(std::string path, c10::IValue value) {
  if (collector != nullptr)
    collector->notes_.push_back({std::move(path), std::move(value)});
}

namespace {

// A body is all that may hold it, and nothing else runs it.
const torch::jit::RegisterOperators kNoteOperator({torch::jit::Operator(
    "pcg::note_attribute(str path, Any value) -> ()",
    [](torch::jit::Stack& stack) {
      c10::IValue value = torch::jit::pop(stack);
      noteAttribute(torch::jit::pop(stack).toStringRef(), std::move(value));
    },
    c10::AliasAnalysisKind::CONSERVATIVE)});

const torch::jit::RegisterOperators kKeepOperator({torch::jit::Operator(
    "pcg::keep(Any value) -> ()",
    [](torch::jit::Stack& stack) { torch::jit::drop(stack, 1); },
    c10::AliasAnalysisKind::CONSERVATIVE)});

// Alias analysis asserts on a node kind without operator. The operation is
// never run: segments are lowered, or run by the sequence, before execution.
const torch::jit::RegisterOperators kSegmentOperator({torch::jit::Operator(
    segmentKind(),
    [](const torch::jit::Node*) -> torch::jit::Operation {
      return [](torch::jit::Stack&) {
        throw std::logic_error(
            "pcg::segment was executed before it was lowered");
      };
    },
    c10::AliasAnalysisKind::CONSERVATIVE)});

void doNothing() {}

TORCH_LIBRARY_FRAGMENT(pcg, library) {
  for (const char* schema : {"no_graph_begin() -> ()", "no_graph_end() -> ()",
                             "force_no_graph() -> ()"}) {
    library.def(torch::schema(schema, c10::AliasAnalysisKind::CONSERVATIVE),
                &doNothing);
  }
}

}  // namespace
}  // namespace pcg
