#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace c10 {
struct Type;
}
namespace torch::jit {
struct Block;
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace pcg {

/// Where a tensor's or container's memory may come from: up to four places, or
/// unknown. A view comes from where its base comes from.
struct Origin {
  enum class Kind { kNode, kModuleState, kMethodInput };
  struct Place {
    Kind kind;
    const torch::jit::Value* value;  ///< First output, attribute or input.
    bool operator==(const Place& other) const {
      return kind == other.kind && value == other.value;
    }
  };
  bool unknown = false;
  std::vector<Place> places;

  void join(const Origin& other);
  bool operator==(const Origin& other) const {
    return unknown == other.unknown && places == other.places;
  }
};

/// Facts about the values of one prepared graph, computed once. Pure.
///
/// *Live*: a host value (int, float, bool, ..., or a list of them) that was
/// read from tensor data. Sizes, constants, method arguments and attributes
/// are host values that are not live: they are functions of a segment's key.
/// *Host tensor*: a CPU 0-dim tensor that only wraps a host value, as traced
/// shape arithmetic makes them (`prim::NumToTensor`); reading it costs no
/// synchronization.
class Provenance {
 public:
  explicit Provenance(torch::jit::Graph& graph);

  bool isLive(const torch::jit::Value* value) const;
  bool isHostTensor(const torch::jit::Value* value) const;
  const Origin& originOf(const torch::jit::Value* value) const;

  /// True for `prim::GetAttr` of an attribute that no SetAttr assigns, reached
  /// from the method's module by attributes alone.
  bool isBoundAttribute(const torch::jit::Node* node) const;

  /// True for a module or object reached from the method's module by
  /// attributes alone, and for that module itself.
  bool isModuleChain(const torch::jit::Value* value) const;

 private:
  bool visitBlock(torch::jit::Block* block);
  bool visitNode(torch::jit::Node* node);
  bool markLive(const torch::jit::Value* value);
  bool joinOrigin(const torch::jit::Value* value, const Origin& origin);

  std::unordered_set<const torch::jit::Value*> live_;
  // Containers that a live value was stored in, by where they were made.
  std::unordered_set<const torch::jit::Value*> live_places_;
  std::unordered_set<const torch::jit::Value*> host_tensors_;
  std::unordered_set<const torch::jit::Value*> module_chain_;
  std::unordered_map<const torch::jit::Value*, Origin> origins_;
};

/// True for types that hold host values only: no tensor, no object, no future.
bool isHostType(const c10::Type& type);

/// True for types that may cross a segment's border: tensors, host scalars and
/// lists, tuples, dicts and optionals of them.
bool isBoundaryType(const c10::Type& type);

/// True for lists and dicts, and for optionals and tuples that hold one.
bool isMutableContainer(const c10::Type& type);

/// True for tensors and containers of tensors.
bool containsTensor(const c10::Type& type);

/// Like Node::hasSideEffects, but looks into blocks. A raised exception counts.
bool hasSideEffectsDeep(const torch::jit::Node& node);

/// True if the node, or one in its blocks, draws from a default generator.
bool drawsRandomNumbers(const torch::jit::Node& node);
bool drawsRandomNumbers(const torch::jit::Block& block);

/// The node itself and all nodes in its blocks.
std::int64_t countNodes(const torch::jit::Node& node);

/// All nodes of a block, those of nested blocks included.
std::int64_t countNodes(const torch::jit::Block& block);

/// Input positions that the node's schema declares as written.
std::vector<std::size_t> writtenInputs(const torch::jit::Node& node);

}  // namespace pcg
