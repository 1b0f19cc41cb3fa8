#include "passes/capture_safety.h"

#include <utility>

namespace pcg {

const char* toString(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kTagged:
      return "tagged";
    case Reason::kHostRead:
      return "host-read";
    case Reason::kDynamicShape:
      return "dynamic-shape";
    case Reason::kDeviceTransfer:
      return "device-transfer";
    case Reason::kErrorCheck:
      return "error-check";
    case Reason::kHostComputation:
      return "host-computation";
    case Reason::kSideEffect:
      return "side-effect";
    case Reason::kModuleState:
      return "module-state";
    case Reason::kContextManager:
      return "context-manager";
    case Reason::kAsynchronous:
      return "asynchronous";
    case Reason::kOpaqueCall:
      return "opaque-call";
    case Reason::kForeignOperator:
      return "foreign-operator";
    case Reason::kUnknownOperator:
      return "unknown-operator";
    case Reason::kGenerator:
      return "generator";
    case Reason::kTensorControlFlow:
      return "tensor-control-flow";
    case Reason::kContainsBreak:
      return "contains-break";
    case Reason::kLiveScalar:
      return "live-scalar";
    case Reason::kVaryingScalar:
      return "varying-scalar";
    case Reason::kOuterWrite:
      return "outer-write";
    case Reason::kMetadataMutation:
      return "metadata-mutation";
    case Reason::kBoundaryType:
      return "boundary-type";
    case Reason::kSharedContainer:
      return "shared-container";
    case Reason::kAutograd:
      return "autograd";
    case Reason::kStorageLayout:
      return "storage-layout";
    case Reason::kTooSmall:
      return "too-small";
  }
  return "none";
}

const char* toString(CaptureClass kind) {
  switch (kind) {
    case CaptureClass::kSafe:
      return "safe";
    case CaptureClass::kGlue:
      return "glue";
    case CaptureClass::kConditional:
      return "conditional";
    case CaptureClass::kUnsafe:
      return "unsafe";
  }
  return "unsafe";
}

const char* describe(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "can be captured";
    case Reason::kTagged:
      return "is tagged no_graph";
    case Reason::kHostRead:
      return "copies a value to the host and waits for the GPU";
    case Reason::kDynamicShape:
      return "returns a size that depends on tensor data";
    case Reason::kDeviceTransfer:
      return "copies between host and device memory";
    case Reason::kErrorCheck:
      return "reads an error code on the host";
    case Reason::kHostComputation:
      return "computes on tensors in host memory";
    case Reason::kSideEffect:
      return "has a side effect that a replay would not repeat";
    case Reason::kModuleState:
      return "assigns an attribute of the module";
    case Reason::kContextManager:
      return "enters or leaves a with block";
    case Reason::kAsynchronous:
      return "starts asynchronous work or waits for it";
    case Reason::kOpaqueCall:
      return "calls code that could not be inlined";
    case Reason::kForeignOperator:
      return "is an operator outside aten and prim that nobody vouched for";
    case Reason::kUnknownOperator:
      return "matches no registered operator";
    case Reason::kGenerator:
      return "uses an explicit random number generator";
    case Reason::kTensorControlFlow:
      return "chooses its path by tensor data";
    case Reason::kContainsBreak:
      return "holds a node that must stay eager";
    case Reason::kLiveScalar:
      return "uses a host value that was read from tensor data";
    case Reason::kVaryingScalar:
      return "uses a value that changes with each trip of an eager loop";
    case Reason::kOuterWrite:
      return "writes memory that code outside the segment may hold";
    case Reason::kMetadataMutation:
      return "changes a tensor's own sizes or storage";
    case Reason::kBoundaryType:
      return "uses a value that cannot cross the border of a segment";
    case Reason::kSharedContainer:
      return "uses a list or dict that is changed on both sides of a border";
    case Reason::kAutograd:
      return "accumulates gradients or changes a tape";
    case Reason::kStorageLayout:
      return "works on sparse, quantized or nested tensors";
    case Reason::kTooSmall:
      return "belongs to a run that is too short to be worth a graph";
  }
  return "";
}

CaptureSafety unsafeBecause(Reason reason, std::string sentence) {
  if (sentence.empty())
    sentence = describe(reason);
  return {CaptureClass::kUnsafe, reason, std::move(sentence)};
}

}  // namespace pcg
