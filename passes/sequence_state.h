#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <pcg/options.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace pcg {

/// A module attribute or constant that a segment reads. Resolved at a segment's
/// first call through `path` on the calling module; `value` serves where the
/// path is gone (frozen modules) and for constants, whose path is empty.
struct BoundValue {
  std::string path;   ///< `layer1.0.weight`
  c10::IValue value;  ///< Tensor, int, float, bool, str or None.
};

/// What a sequence needs to know of one segment besides its graph.
struct SegmentState {
  std::string name;               ///< `forward.segment_0`
  std::vector<BoundValue> bound;  ///< In the order of the last graph inputs.
  /// For each output: whether it stays within the method's call, so that a
  /// replay may hand out its slot instead of a fresh tensor.
  std::vector<bool> borrowed;
};

/// All that a CUDAGraphSequence keeps across save and load. Graphs are text in
/// a nested TorchScript archive, one method `s0`, `s1`, ... a segment, taking
/// the module (unused), the call's inputs, and the bound values, and returning
/// a tuple; so neither captures nor pointers are ever stored.
struct SequenceState {
  std::string archive;
  std::vector<SegmentState> segments;
  Backend backend = Backend::kAuto;
  std::int64_t min_segment_size = 0;
  std::int64_t max_keys_per_segment = 0;
  std::vector<std::string> graph_safe_ops;
};

/// The form that is pickled, kept to types that every TorchScript reader knows:
/// the archive as bytes, the bound tensors by identity, and tables of words
/// (`version`, `segments`, `bound_counts`, `borrowed`, `paths`, `tensors`,
/// `literals`, `options`).
using PickledSequence =
    std::tuple<at::Tensor, std::vector<at::Tensor>,
               c10::Dict<std::string, std::vector<std::string>>>;

PickledSequence pickle(const SequenceState& state);

/// Throws std::runtime_error for a version or a literal it does not know.
SequenceState unpickle(const PickledSequence& pickled);

}  // namespace pcg
