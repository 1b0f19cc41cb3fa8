#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace c10 {
struct Symbol;
}
namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace pcg {

/// Kinds of the nodes that pcg adds to graphs.
///
/// `pcg::segment` holds an outlined run in its `Subgraph` attribute; it is
/// registered with conservative alias analysis, so that torch's passes neither
/// remove it nor move anything across it.
c10::Symbol segmentKind();

/// The node that calls a sequence: `pcg::run_segment`.
c10::Symbol runSegmentKind();

/// Stands in a segment where the method assigned an attribute:
/// `pcg::note_attribute(str path, Any value)`. The assignment itself follows
/// the segment; if the body throws before, the runtime makes up for those that
/// the body had passed.
c10::Symbol noteAttributeKind();

/// Stands in a segment behind a node whose results nothing there may use, and
/// that has to run all the same: it may raise an error in its place, or draw
/// random numbers. `pcg::keep(Any value)` saves the node from torch's
/// elimination of dead code when the segment is loaded, and goes then.
c10::Symbol keepKind();

/// Puts one behind `node`, which has an output.
void keepAlive(torch::jit::Node* node);

/// Collects what `pcg::note_attribute` is told on this thread while it exists,
/// in order. Where one exists already, a further one collects nothing.
class AttributeNotes {
 public:
  struct Note {
    std::string path;  ///< From the method's module: `decoder.state`.
    c10::IValue value;
  };

  AttributeNotes();
  ~AttributeNotes();
  AttributeNotes(const AttributeNotes&) = delete;
  AttributeNotes& operator=(const AttributeNotes&) = delete;

  const std::vector<Note>& notes() const { return notes_; }

 private:
  friend void noteAttribute(std::string path, c10::IValue value);
  std::vector<Note> notes_;
};

/// Marker operators a model may call: `torch.ops.pcg.no_graph_begin()`,
/// `no_graph_end()` and `force_no_graph()`. At run time they do nothing.
c10::Symbol noGraphBeginKind();
c10::Symbol noGraphEndKind();
c10::Symbol forceNoGraphKind();

/// Node attributes of the `annotate` pass.
c10::Symbol noGraphAttribute();       ///< Int: the node must stay eager.
c10::Symbol noGraphTagAttribute();    ///< String: which tag says so.
c10::Symbol mutableStateAttribute();  ///< Int, on GetAttr: may be reassigned.

/// Node attribute of the `outline` pass.
c10::Symbol deferredAttribute();  ///< Int, on SetAttr: moved behind a segment.

/// Whether running a node can raise an error: anything but constructing,
/// unpacking and looking up.
bool mayRaise(const torch::jit::Node& node);

/// The path by which an object is reached from the method's module (the
/// graph's first input), by attributes alone: `decoder.layers.0`; empty for
/// the module itself. None for any other value.
std::optional<std::string> attributePath(const torch::jit::Value* object);

}  // namespace pcg
