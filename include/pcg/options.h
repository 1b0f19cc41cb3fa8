#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pcg {

/// Which capture back end runs the segments of a module.
///
/// The environment variable PCG_BACKEND (`cuda`, `host` or `off`), read at each
/// sequence's creation, overrides the choice made here.
enum class Backend {
  kAuto,  ///< CUDA graphs for CUDA tensors; CPU tensors run the body eagerly.
  kCuda,  ///< As kAuto; a host without a usable GPU is reported as a reason.
  kHost,  ///< Emulation on CPU tensors, for tests and demonstrations.
  kOff,   ///< Every segment body runs eagerly.
};

/// What a user decides about partitioning. Every field has a usable default.
///
/// Patterns are either an exact qualified operator name (`aten::index_add`) or
/// a name that ends in `*` (`mylib::*`). Scopes are a submodule path
/// (`decoder.layers.0`), a function or method name (`sample`), or both
/// (`decoder.sample`).
struct PartitionOptions {
  /// A run with fewer kernel-launching nodes stays eager: a replay costs about
  /// as much as two or three eager launches.
  std::int64_t min_segment_size = 4;

  /// Operators that must stay eager.
  std::vector<std::string> no_graph_ops;

  /// Scopes whose nodes must stay eager.
  std::vector<std::string> no_graph_scopes;

  /// Operators outside `aten` and `prim` that the user vouches for: their
  /// kernels neither synchronize, nor allocate outside torch's allocator, nor
  /// return sizes that depend on data.
  std::vector<std::string> graph_safe_ops;

  /// Methods to partition; empty means every public method (a name that does
  /// not start with an underscore).
  std::vector<std::string> methods;

  /// Apply the value-preserving rewrites of the `make-capturable` pass.
  bool make_capturable = true;

  /// Move independent breaks next to each other where that leaves fewer
  /// segments (the `reorder` pass). Costs one alias analysis a method.
  bool reorder = false;

  /// Check the invariants after outlining. Costs one alias analysis a method.
  bool verify = true;

  /// Back end recorded in the sequence.
  Backend backend = Backend::kAuto;

  /// Captured graphs kept for one segment. The least recently used one is
  /// released before another is captured.
  std::int64_t max_keys_per_segment = 64;
};

/// Parses `auto`, `cuda`, `host` or `off`. Throws std::invalid_argument that
/// names the accepted words.
Backend parseBackend(const std::string& word);

/// The inverse of parseBackend.
const char* toString(Backend backend);

}  // namespace pcg
