#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

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

// A plain TorchScript operator: the dispatcher could only add time.
const torch::jit::RegisterOperators kRunSegment({torch::jit::Operator(
    "pcg::run_segment(__torch__.torch.classes.pcg.CUDAGraphSequence sequence, "
    "Any module, str name, Any inputs) -> Any",
    runSegment, c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace
}  // namespace pcg
