#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace pcg {

/// Told which node a Program is about to run, and that it has returned. The
/// node stays valid as long as the program.
class NodeListener {
 public:
  virtual ~NodeListener() = default;
  virtual void before(const torch::jit::Node& node) = 0;
  virtual void after(const torch::jit::Node& node) = 0;
};

/// Keeps results of nodes from one run for another. Asked only about nodes
/// without blocks.
class NodeResults {
 public:
  virtual ~NodeResults() = default;

  /// True where the node need not run, its results being in `results`.
  virtual bool recall(const torch::jit::Node& node,
                      std::vector<c10::IValue>& results) = 0;

  /// Told what the node returned.
  virtual void keep(const torch::jit::Node& node,
                    const std::vector<c10::IValue>& results) = 0;
};

/// A graph made ready to be run node by node, each by its own registered
/// operation: nothing is fused, specialized or compiled, so results are those
/// of the same operators run eagerly. A value is released after its last use.
///
/// Handles every node that may stand in a segment or around one in a replanned
/// segment, `prim::If` and `prim::Loop` included. Functions and methods that
/// were not inlined run in torch's interpreter.
/// Thread safety: run() may be called from several threads at once.
class Program {
 public:
  /// Runs a node of kind `pcg::segment`: gets the node and its inputs, returns
  /// its outputs.
  using SegmentHandler = std::function<std::vector<c10::IValue>(
      const torch::jit::Node&, std::vector<c10::IValue>)>;

  /// Keeps `graph` alive. Throws std::runtime_error that names the node where
  /// one has no operation.
  explicit Program(std::shared_ptr<torch::jit::Graph> graph);
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  const std::shared_ptr<torch::jit::Graph>& graph() const;

  /// Runs the graph. `inputs` holds one value per graph input. `listener`,
  /// `segments` and `results` may be null where not needed. Exceptions of nodes
  /// pass through unchanged, after `with` blocks have been left. Throws
  /// std::invalid_argument where an input or a needed handler is missing.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs,
                               NodeListener* listener = nullptr,
                               const SegmentHandler* segments = nullptr,
                               NodeResults* results = nullptr) const;

  /// The flat form; only the implementation knows it.
  struct Code;

 private:
  std::unique_ptr<Code> code_;
};

}  // namespace pcg
