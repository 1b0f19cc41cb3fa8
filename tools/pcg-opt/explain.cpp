#include "tools/pcg-opt/explain.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "passes/classify.h"
#include "tools/pcg-opt/destinations.h"
#include "tools/pcg-opt/ir_printer.h"

namespace pcg::opt {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// ---- text -------------------------------------------------------------------

class PlanPrinter {
 public:
  PlanPrinter(const Graph& graph, const Plan& plan)
      : graph_(graph), destinations_(plan) {
    for (const PlannedSegment& segment : plan.segments) {
      width_ = std::max(width_, segment.name.size());
    }
    for (const PlannedBreak& item : plan.breaks) {
      width_ = std::max(width_, std::string(toString(item.why.reason)).size());
    }
  }

  std::string print() {
    line("", "graph(" + values(graph_.inputs(), true) + "):");
    printNodes(graph_.block(), 1);
    line("", "  return (" + values(graph_.outputs(), false) + ")");
    return out_.str();
  }

 private:
  void line(const std::string& label, const std::string& text) {
    out_ << label << std::string(width_ - label.size(), ' ') << " | " << text
         << '\n';
  }

  static std::string values(c10::ArrayRef<const Value*> values, bool types) {
    std::string text;
    for (const Value* value : values) {
      if (!text.empty())
        text += ", ";
      text += types ? printValue(*value) : "%" + value->debugName();
    }
    return text;
  }

  void printNodes(const Block* block, std::size_t level) {
    for (const Node* node : block->nodes())
      printNode(node, level);
  }

  void printNode(const Node* node, std::size_t level) {
    const std::string indent(2 * level, ' ');
    line(destinations_.labelOf(node), indent + opt::printNode(*node));
    const PlannedBreak* item = destinations_.breakAt(node);
    const char* prefix = "# ";
    if (item == nullptr) {
      item = destinations_.possibleBreakAt(node);
      prefix = "# if a call gets here: ";
    }
    if (item != nullptr) {
      const Location where = locate(*node);
      std::string note =
          prefix + qualifiedName(*node) + " " + item->why.sentence;
      if (where.line != 0) {
        note += " (" + where.file + ":" + std::to_string(where.line) + ")";
      }
      line("", indent + note);
    }
    for (std::size_t i = 0; i < node->blocks().size(); ++i) {
      const Block* block = node->blocks()[i];
      line("", indent + "  block" + std::to_string(i) + "(" +
                   values(block->inputs(), true) + "):");
      printNodes(block, level + 2);
      line("", indent + "    -> (" + values(block->outputs(), false) + ")");
    }
  }

  const Graph& graph_;
  Destinations destinations_;
  std::size_t width_ = 0;
  std::ostringstream out_;
};

// ---- Graphviz ---------------------------------------------------------------

std::string dotString(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + "\"";
}

class DotPrinter {
 public:
  DotPrinter(const MethodState& method)
      : method_(method), destinations_(*method.plan) {}

  std::string print() {
    out_ << "digraph " << dotString(method_.name) << " {\n"
         << "  label=" << dotString(method_.name) << ";\n"
         << "  node [shape=box, fontname=\"monospace\"];\n";
    for (const Value* input : method_.graph->inputs()) {
      out_ << "  " << dotString("%" + input->debugName())
           << " [shape=ellipse];\n";
    }
    printBlock(method_.graph->block(), 1);
    out_ << "  return [shape=ellipse];\n";
    for (const Value* output : method_.graph->outputs()) {
      edge(output, "return");
    }
    for (const std::string& line : edges_)
      out_ << "  " << line << '\n';
    out_ << "}\n";
    return out_.str();
  }

 private:
  // Constants and attributes would hide the rest.
  static bool isShown(const Node* node) {
    return node->kind() != prim::Constant && node->kind() != prim::GetAttr;
  }

  std::string idOf(const Node* node) {
    const auto found = ids_.emplace(node, ids_.size());
    return "n" + std::to_string(found.first->second);
  }

  void edge(const Value* value, const std::string& to) {
    const Node* from = value->node();
    if (from->kind() == prim::Param) {
      if (from->owningBlock() != method_.graph->block())
        return;
      edges_.push_back(dotString("%" + value->debugName()) + " -> " + to + ";");
      return;
    }
    if (!isShown(from))
      return;
    edges_.push_back(idOf(from) + " -> " + to +
                     " [label=" + dotString("%" + value->debugName()) + "];");
  }

  void printBlock(const Block* block, std::size_t level) {
    std::string open;
    for (const Node* node : block->nodes()) {
      if (!isShown(node))
        continue;
      const bool is_break = destinations_.breakAt(node) != nullptr;
      std::string segment = is_break ? "" : destinations_.labelOf(node);
      if (segment == enclosing_)
        segment.clear();
      if (segment != open) {
        if (!open.empty())
          close(level);
        if (!segment.empty())
          openCluster(segment, level);
        open = segment;
      }
      printNode(node, level + (open.empty() ? 0 : 1), open);
    }
    if (!open.empty())
      close(level);
  }

  void openCluster(const std::string& label, std::size_t level) {
    out_ << std::string(2 * level, ' ') << "subgraph cluster_" << clusters_++
         << " {\n"
         << std::string(2 * level + 2, ' ') << "label=" << dotString(label)
         << "; style=filled; color=\"#d5e8d4\";\n";
  }
  void close(std::size_t level) {
    out_ << std::string(2 * level, ' ') << "}\n";
  }

  void printNode(const Node* node, std::size_t level,
                 const std::string& segment) {
    const std::string indent(2 * level, ' ');
    const PlannedBreak* item = destinations_.breakAt(node);
    std::string label = node->kind().toQualString();
    if (item != nullptr) {
      label += std::string("\n") + toString(item->why.reason);
    }
    out_ << indent << idOf(node) << " [label=" << dotString(label);
    if (item != nullptr)
      out_ << ", style=filled, fillcolor=\"#f8cecc\"";
    out_ << "];\n";
    for (const Value* input : node->inputs())
      edge(input, idOf(node));
    const std::string outer =
        std::exchange(enclosing_, segment.empty() ? enclosing_ : segment);
    for (std::size_t i = 0; i < node->blocks().size(); ++i) {
      out_ << indent << "subgraph cluster_" << clusters_++ << " {\n"
           << indent << "  label="
           << dotString(label.substr(0, label.find('\n')) + " block" +
                        std::to_string(i))
           << "; style=dashed; color=black;\n";
      printBlock(node->blocks()[i], level + 1);
      out_ << indent << "}\n";
    }
    enclosing_ = outer;
  }

  const MethodState& method_;
  Destinations destinations_;
  std::ostringstream out_;
  std::unordered_map<const Node*, std::size_t> ids_;
  std::vector<std::string> edges_;
  std::size_t clusters_ = 0;
  std::string enclosing_;  // Segment of the node whose block is printed.
};

std::string percent(double value) {
  char text[16];  // NOLINT(modernize-avoid-c-arrays)
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

}  // namespace

std::string planText(const MethodState& method) {
  return "# plan of " + method.name + ": " +
         counted(method.plan->segments.size(), "segment") + ", " +
         counted(method.plan->breaks.size(), "break") + "\n" +
         PlanPrinter(*method.graph, *method.plan).print();
}

std::string planDot(const MethodState& method) {
  return DotPrinter(method).print();
}

void makeRemarks(const WorkState& state, const Remarks& which,
                 Diagnostics& diagnostics) {
  for (const MethodState& method : state.methods) {
    if (!method.plan)
      continue;
    if (which.missed) {
      const auto remark = [&](const char* what, const PlannedBreak& item) {
        diagnostics.remark(locate(*item.node),
                           what + qualifiedName(*item.node) + " " +
                               item.why.sentence + " [" +
                               toString(item.why.reason) + "]");
      };
      for (const PlannedBreak& item : method.plan->breaks) {
        remark("break: ", item);
      }
      for (const PlannedBreak& item : method.plan->possible_breaks) {
        remark("break if a call gets here: ", item);
      }
    }
    if (which.passed) {
      for (const PlannedSegment& segment : method.plan->segments) {
        diagnostics.remark(
            locate(*segment.nodes.front()),
            "segment: " + method.name + "." + segment.name +
                " starts here, with " +
                counted(static_cast<std::size_t>(segment.kernel_count),
                        "kernel-launching node") +
                " of " + std::to_string(segment.node_count));
      }
    }
  }
  if (which.passed) {
    for (const std::string& change : state.report.rewrites) {
      diagnostics.remark({}, "rewritten: " + change);
    }
  }
}

std::string statistics(const PartitionReport& report) {
  std::int64_t kernels = 0;
  std::int64_t nodes = 0;
  std::int64_t largest = 0;
  for (const SegmentReport& segment : report.segments) {
    kernels += segment.kernels;
    nodes += segment.nodes;
    largest = std::max(largest, segment.kernels);
  }
  std::map<std::string, std::size_t> reasons;
  for (const BreakReport& item : report.breaks)
    ++reasons[item.reason];

  std::ostringstream out;
  const auto row = [&](const std::string& value, const std::string& what) {
    out << std::string(value.size() < 8 ? 8 - value.size() : 0, ' ') << value
        << "  " << what << '\n';
  };
  out << "statistics:\n";
  row(std::to_string(report.segments.size()), "segments");
  row(std::to_string(nodes), "nodes in segments");
  row(std::to_string(kernels), "kernel-launching nodes in segments");
  row(std::to_string(largest), "kernel-launching nodes in the largest segment");
  row(std::to_string(report.eager_kernels),
      "kernel-launching nodes left eager");
  row(percent(report.coverage()),
      "% of the kernel-launching nodes in segments");
  row(std::to_string(report.rewrites.size()), "rewrites by make-capturable");
  row(std::to_string(report.breaks.size()), "breaks");
  row(std::to_string(report.possible_breaks.size()),
      "breaks if a call gets there");
  for (const auto& [reason, count] : reasons) {
    row(std::to_string(count), "breaks: " + reason);
  }
  return out.str();
}

}  // namespace pcg::opt
