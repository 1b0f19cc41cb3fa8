#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "passes/sequence_state.h"
#include "runtime/key_constants.h"
#include "runtime/observer.h"
#include "runtime/program.h"

namespace pcg {

/// What all contexts share of one segment. Immutable.
struct SegmentDefinition {
  std::string name;
  /// What profilers show: the name and what is done.
  struct {
    std::string warm_up;
    std::string capture;
    std::string replay;
    std::string eager;
  } ranges;
  /// Inputs: those of the call, then the bound values. Outputs: the segment's.
  std::shared_ptr<const Program> program;
  std::size_t call_inputs = 0;
  std::vector<BoundValue> bound;
  std::vector<bool> borrowed;           ///< Outputs that do not leave the call.
  std::vector<bool> maybe_written;      ///< Inputs, by alias analysis.
  bool writes_inputs = false;           ///< Any of them.
  std::vector<bool> read_by_placement;  ///< Inputs: see passes/placement.h.
  std::vector<bool> weights;            ///< Call inputs bound by a parent.
  WarmUpObserver::LatentBreaks latent_breaks;
  KeyConstants::Candidates key_constants;
  std::int64_t nodes = 0;
  bool draws_random = false;
};

/// The options that a segment of a saved sequence is planned again with.
PartitionOptions planOptions(const SequenceState& state);

/// Makes a definition from a graph whose last inputs are `bound`.
std::shared_ptr<const SegmentDefinition> defineSegment(
    std::string name, std::shared_ptr<torch::jit::Graph> graph,
    std::vector<BoundValue> bound, std::vector<bool> borrowed,
    std::vector<bool> weights, const PartitionOptions& options);

/// Runs a segment's body outside a capture. Where it throws, the module has
/// been assigned the attributes that the body had passed (see
/// pcg::note_attribute): the method's own assignments are not reached any more.
std::vector<c10::IValue> runBody(
    const Program& program, const c10::IValue& module,
    std::vector<c10::IValue> inputs, NodeListener* listener = nullptr,
    const Program::SegmentHandler* segments = nullptr,
    NodeResults* results = nullptr);

}  // namespace pcg
