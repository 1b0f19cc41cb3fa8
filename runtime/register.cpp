#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

#include "runtime/host_read.h"
#include "runtime/sequence.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Stack;

TORCH_LIBRARY_FRAGMENT(pcg, library) {
  library.class_<SegmentSequence>("CUDAGraphSequence")
      .def("report", &SegmentSequence::report)
      .def("reset", &SegmentSequence::reset)
      .def_pickle(
          [](const c10::intrusive_ptr<SegmentSequence>& sequence)
              -> PickledSequence { return pickle(sequence->state()); },
          [](PickledSequence pickled) {
            return c10::make_intrusive<SegmentSequence>(unpickle(pickled));
          });
}

void runSegment(Stack& stack) {
  std::vector<IValue> inputs;
  {
    IValue tuple = torch::jit::pop(stack);
    const auto& elements = tuple.toTupleRef().elements();
    inputs.assign(elements.begin(), elements.end());
  }
  const IValue name = torch::jit::pop(stack);
  const IValue module = torch::jit::pop(stack);
  const auto sequence = torch::jit::pop(stack).toCustomClass<SegmentSequence>();
  torch::jit::push(stack, c10::ivalue::Tuple::create(
                              sequence->run(module, name, std::move(inputs))));
}

// `item()` and the conversions that read a tensor, by readScalar. They declare
// what the operators they stand for declare.
void itemOperator(Stack& stack) {
  const at::Tensor tensor = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, readScalar(tensor));
}
void boolOperator(Stack& stack) {
  const at::Tensor tensor = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, readScalar(tensor).toBool());
}
void intOperator(Stack& stack) {
  const at::Tensor tensor = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, readScalar(tensor).toLong());
}
void floatOperator(Stack& stack) {
  const at::Tensor tensor = torch::jit::pop(stack).toTensor();
  torch::jit::push(stack, readScalar(tensor).toDouble());
}

const torch::jit::RegisterOperators kReads(
    {torch::jit::Operator("pcg::item(Tensor value) -> Scalar", itemOperator,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("pcg::Bool(Tensor value) -> bool", boolOperator,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("pcg::Int(Tensor value) -> int", intOperator,
                          c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator("pcg::Float(Tensor value) -> float", floatOperator,
                          c10::AliasAnalysisKind::FROM_SCHEMA)});

// A plain TorchScript operator: the dispatcher could only add time.
const torch::jit::RegisterOperators kRunSegment({torch::jit::Operator(
    "pcg::run_segment(__torch__.torch.classes.pcg.CUDAGraphSequence sequence, "
    "Any module, str name, Any inputs) -> Any",
    runSegment, c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace
}  // namespace pcg
