#pragma once

#include <string>

namespace pcg {

/// What may be done with a node when a CUDA graph is captured around it.
enum class CaptureClass {
  kSafe,         ///< Launches work a graph can hold.
  kGlue,         ///< Launches nothing: constants, views, sizes, packing.
  kConditional,  ///< Safe or not depending on what only a call shows.
  kUnsafe,       ///< Must stay eager.
};

/// Why a node is not simply safe. `toString` gives the stable identifier that
/// reports and tests use.
enum class Reason {
  kNone,
  kTagged,             ///< The user asked for it.
  kHostRead,           ///< Copies tensor data to the host and waits.
  kDynamicShape,       ///< Output size depends on tensor data.
  kDeviceTransfer,     ///< Copies between host and device memory.
  kErrorCheck,         ///< Reads an error code on the host (linalg).
  kHostComputation,    ///< Computes on CPU tensors.
  kSideEffect,         ///< Prints, warns, waits, or changes global state.
  kModuleState,        ///< Assigns an attribute.
  kContextManager,     ///< Enters or leaves a `with` block.
  kAsynchronous,       ///< fork, wait, futures, remote calls.
  kOpaqueCall,         ///< A call that could not be inlined.
  kForeignOperator,    ///< Outside aten and prim; nobody vouched for it.
  kUnknownOperator,    ///< No operator is registered for the node.
  kGenerator,          ///< Uses an explicit random number generator.
  kTensorControlFlow,  ///< A branch or loop decided by tensor data.
  kContainsBreak,      ///< A branch or loop with a break in a block.
  kLiveScalar,         ///< Consumes a host value read from tensor data.
  kVaryingScalar,      ///< Consumes a counter of a loop that stays eager.
  kOuterWrite,         ///< Writes memory that other code may hold.
  kMetadataMutation,   ///< Changes a tensor's own sizes or storage.
  kBoundaryType,       ///< A value that cannot cross a segment boundary.
  kSharedContainer,    ///< A list or dict mutated on both sides of a border.
  kAutograd,           ///< Accumulates gradients or changes a tape.
  kStorageLayout,      ///< Sparse, quantized or nested tensors.
  kTooSmall,           ///< A run below the minimum segment size.
};

/// A verdict with the sentence that explains it to a user.
struct CaptureSafety {
  CaptureClass kind = CaptureClass::kSafe;
  Reason reason = Reason::kNone;
  std::string sentence;
};

/// The verdict for a node that must stay eager; without a sentence of its own
/// it gets the reason's.
CaptureSafety unsafeBecause(Reason reason, std::string sentence = "");

/// `host-read`, `dynamic-shape`, ...
const char* toString(Reason reason);

/// `safe`, `glue`, `conditional`, `unsafe`.
const char* toString(CaptureClass kind);

/// The general sentence for a reason, used where no more precise one is known.
const char* describe(Reason reason);

}  // namespace pcg
