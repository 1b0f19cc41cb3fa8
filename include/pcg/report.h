#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pcg {

/// One outlined segment, as planned.
struct SegmentReport {
  std::string name;          ///< Unique within the module: `forward.segment_0`.
  std::string method;        ///< Method it was cut from.
  std::int64_t nodes = 0;    ///< All nodes, those of nested blocks included.
  std::int64_t kernels = 0;  ///< Nodes that launch work, glue excluded.
};

/// One node that stays eager and cuts a run, or would if a call reached it.
struct BreakReport {
  std::string method;       ///< Method it belongs to.
  std::string node;         ///< Node kind, e.g. `aten::item`.
  std::string reason;       ///< Stable identifier, e.g. `host-read`.
  std::string sentence;     ///< The same for people.
  std::string source;       ///< `file:line`, or empty where unknown.
  std::string module_path;  ///< Submodule path, e.g. `decoder.layers.0`.
};

/// What partitioning did to a module. Plain data; copies freely.
struct PartitionReport {
  std::vector<SegmentReport> segments;
  std::vector<BreakReport> breaks;
  /// Breaks in branches that are chosen on the host: a segment holds such a
  /// branch until a call takes it, and is then split there.
  std::vector<BreakReport> possible_breaks;
  std::vector<std::string> rewrites;  ///< Changes made by make-capturable.
  std::vector<std::string> warnings;  ///< E.g. a pattern that matched nothing.
  std::int64_t eager_kernels = 0;     ///< Work-launching nodes left eager.

  /// Share of the work-launching nodes that lie in segments, in percent; 100
  /// where there is no such node.
  double coverage() const;

  /// One line a segment and a break, for people.
  std::string text() const;

  /// The same as one JSON object with the keys `segments`, `breaks`,
  /// `rewrites`, `warnings` and `coverage`.
  std::string json() const;
};

}  // namespace pcg
