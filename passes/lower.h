#pragma once

#include <ATen/core/ivalue.h>
#include <pcg/options.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

namespace pcg {

/// Name of the attribute that holds a module's sequence.
inline constexpr const char* kSequenceAttribute = "pcg_sequence";

/// Qualified name of the torchbind class, without the library prefix.
inline constexpr const char* kSequenceClass =
    "__torch__.torch.classes.pcg.CUDAGraphSequence";

/// A method's outlined graph.
struct OutlinedMethod {
  std::string name;
  std::shared_ptr<torch::jit::Graph> graph;
};

/// Builds the module that runs `methods` through a sequence.
///
///     %y : Tensor = pcg::segment[name="forward.segment_0", ..](%x, %w)
///   →
///     %seq = prim::GetAttr[name="pcg_sequence"](%self)
///     %name : str = prim::Constant[value="forward.segment_0"]()
///     %in : (Tensor) = prim::TupleConstruct(%x)
///     %out : Any = pcg::run_segment(%seq, %self, %name, %in)
///     %typed : (Tensor) = prim::unchecked_cast(%out)
///     %y : Tensor = prim::TupleUnpack(%typed)
///
/// Module attributes that a segment reads (%w above) are bound by path and are
/// no inputs of the call; tensor constants become bound values too, so that a
/// segment's text holds no weights. The result has a new type and shares every
/// slot value with `module`. Methods not listed are taken over as they are.
///
/// Throws std::runtime_error where the type cannot be rebuilt (for instance one
/// with `__getstate__`) or libpcg is not loaded.
torch::jit::Module lower(const torch::jit::Module& module,
                         const std::vector<OutlinedMethod>& methods,
                         const PartitionOptions& options);

}  // namespace pcg
