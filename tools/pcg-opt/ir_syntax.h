#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/source_text.h"

/// The syntax of TorchScript IR text, as `Graph::toString` prints it and people
/// write it, without any meaning. Line breaks and indentation do not matter;
/// `#` starts a comment. Offsets are bytes of the SourceText.
///
///     graph(%x : Tensor, %n : int):
///       %y : Tensor = pcg::segment_0[name="segment_0"](%x)
///       %p : bool = aten::Bool(%y)
///       %z : Tensor = prim::If(%p)
///         block0():
///           -> (%x)
///         block1():
///           -> (%y)
///       return (%z)
///     with pcg::segment_0 = graph(%x : Tensor):
///       %y : Tensor = aten::relu(%x)
///       return (%y)
namespace pcg::opt {

/// `Tensor`, `Float(2, 3, strides=[3, 1], device=cuda:0)`, `int[]`, `Tensor?`,
/// `(int, Tensor)`, `Dict(str, Tensor)`, `Future[Tensor]`, `__torch__.M`, ...
struct TypeSyntax {
  enum class Kind {
    kName,        ///< `name`
    kClass,       ///< `name`, with dots
    kTensor,      ///< `name` is Tensor, Float, FloatTensor, ...
    kTuple,       ///< `arguments`
    kNamedTuple,  ///< `arguments` and `fields`
    kList,        ///< `arguments[0]`
    kOptional,    ///< `arguments[0]`
    kGeneric,     ///< `name` of `arguments`
  };
  Kind kind = Kind::kName;
  std::size_t offset = 0;
  std::string name;
  std::vector<TypeSyntax> arguments;
  std::vector<std::string> fields;
  std::size_t depth = 0;  ///< How deep `arguments` nest.

  // Details of kTensor. A size of nullopt was written `*`.
  std::optional<std::vector<std::optional<std::int64_t>>> sizes;
  std::optional<std::vector<std::int64_t>> strides;
  std::optional<bool> requires_grad;
  std::string device;
  bool undefined = false;
};

/// The value of an attribute.
struct LiteralSyntax {
  enum class Kind {
    kInt,
    kFloat,
    kComplex,  ///< `f` is the real part, `imaginary` the other
    kBool,     ///< True, False
    kNone,
    kString,
    kType,
    kList,           ///< `items`
    kTuple,          ///< `items`
    kDict,           ///< `items`: key, value, key, value, ...
    kTensor,         ///< `<Tensor>`: contents unknown
    kScalarTensor,   ///< `{1}`: `items[0]`
    kPrintedTensor,  ///< ` 1  2 [ CPULongType{2} ]`: `items`, `sizes`, `s`
  };
  Kind kind = Kind::kNone;
  std::size_t offset = 0;
  std::int64_t i = 0;  ///< Of kBool and kInt.
  double f = 0;
  double imaginary = 0;
  std::string s;  ///< Of kString; the scalar type of kPrintedTensor.
  TypeSyntax type;
  std::vector<LiteralSyntax> items;
  std::vector<std::int64_t> sizes;
};

/// `%x : Tensor`, where a value is defined.
struct ValueSyntax {
  std::size_t offset = 0;
  std::string name;
  std::optional<TypeSyntax> type;
};

/// `%x`, where it is used.
struct UseSyntax {
  std::size_t offset = 0;
  std::string name;
};

struct AttributeSyntax {
  std::size_t offset = 0;
  std::string name;
  LiteralSyntax value;
};

struct BlockSyntax;

/// One node.
struct NodeSyntax {
  std::size_t offset = 0;  ///< Of the kind.
  std::size_t end = 0;     ///< Behind the closing bracket of the inputs.
  std::string kind;        ///< `aten::relu`
  std::vector<ValueSyntax> outputs;
  std::vector<AttributeSyntax> attributes;
  std::vector<UseSyntax> inputs;
  std::vector<BlockSyntax> blocks;
  /// Index into FileSyntax::graphs of the `with` part that is this node's
  /// subgraph.
  std::optional<std::size_t> subgraph;
};

struct BlockSyntax {
  std::size_t offset = 0;
  std::vector<ValueSyntax> inputs;
  std::vector<NodeSyntax> nodes;
  std::vector<UseSyntax> outputs;
  std::size_t outputs_offset = 0;  ///< Of `->` or `return`.
};

/// A graph or a `with` part.
struct GraphSyntax {
  std::size_t offset = 0;
  std::string label;  ///< `pcg::segment_0`; empty for the graph itself.
  BlockSyntax body;
};

/// A text's graph, followed by its subgraphs in the order of the text.
struct FileSyntax {
  std::vector<GraphSyntax> graphs;
};

/// Parses a text. Reports what is wrong and returns nothing, or returns the
/// graphs with every `with` part attached to its node.
std::optional<FileSyntax> parseIrSyntax(const SourceText& source,
                                        Diagnostics& diagnostics);

}  // namespace pcg::opt
