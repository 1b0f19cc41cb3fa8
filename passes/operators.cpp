#include "passes/operators.h"

#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/library.h>

#include <stdexcept>

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

namespace {

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
