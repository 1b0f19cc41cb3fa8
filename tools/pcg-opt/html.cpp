#include "tools/pcg-opt/html.h"

#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "passes/classify.h"
#include "tools/pcg-opt/destinations.h"
#include "tools/pcg-opt/source_text.h"

namespace pcg::opt {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::SourceRange;
namespace prim = torch::jit::prim;

// Longer lines and lists are cut.
constexpr std::size_t kLongestLine = 400;
constexpr std::size_t kMostLabels = 4;

// Segments beyond take the colours again from the first on.
constexpr std::size_t kColours = 6;

// Contrast of all texts with what is behind them is at least 4.5 to 1.
constexpr const char* kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de;
  --link: #0550ae; --break: #a40e26; --break-fill: #ffebe9;
  --s0: #ddf4ff; --s1: #dafbe1; --s2: #fff1c2; --s3: #f3e3ff;
  --s4: #ffe7d6; --s5: #d5f5f1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --text: #e6edf3; --quiet: #9aa4af; --line: #3d444d;
    --link: #79c0ff; --break: #ffa198; --break-fill: #491b1f;
    --s0: #10314f; --s1: #12351f; --s2: #3d3000; --s3: #35204f;
    --s4: #47260f; --s5: #0b3a38;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 75rem; padding: 1rem; line-height: 1.5;
  font-family: system-ui, sans-serif; background: var(--page);
  color: var(--text);
}
h1, h2, h3 { line-height: 1.25; overflow-wrap: anywhere; }
a { color: var(--link); }
a:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid var(--link); outline-offset: 2px;
}
.skip { position: absolute; left: -100rem; }
.skip:focus { position: static; }
code, .source { font-family: ui-monospace, monospace; font-size: 0.875rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: 0.25rem 0.5rem; color: var(--quiet); }
th, td { padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
.list th, .list td { border-bottom: 1px solid var(--line); }
.number { text-align: right; }
.source th, .source td { padding: 0 0.5rem; }
.source thead th { border-bottom: 1px solid var(--line); }
.source tbody th {
  font-weight: normal; text-align: right; color: var(--quiet);
  user-select: none; width: 1%;
}
.source .where { width: 1%; white-space: nowrap; }
.source .text { white-space: pre; tab-size: 4; }
.source tr:target th { outline: 2px solid var(--link); }
.label {
  display: inline-block; padding: 0 0.4rem; border-radius: 0.25rem;
  border: 1px solid var(--line); color: var(--text);
}
.break { color: var(--break); background: var(--break-fill); }
.why { white-space: normal; font-family: system-ui, sans-serif; }
.quiet { color: var(--quiet); }
.s0 { background: var(--s0); } .s1 { background: var(--s1); }
.s2 { background: var(--s2); } .s3 { background: var(--s3); }
.s4 { background: var(--s4); } .s5 { background: var(--s5); }
.legend { padding: 0; list-style: none; }
.legend li { margin: 0.25rem 0; }
@media print { .scroll { overflow: visible; } .text { white-space: pre-wrap; } }
)css";

// ---- text -------------------------------------------------------------------

std::string escaped(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n')
      c = '?';
  }
  while (const auto invalid = findInvalidUtf8(text))
    text[*invalid] = '?';
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string shortened(std::string text) {
  if (text.size() <= kLongestLine)
    return text;
  std::size_t end = kLongestLine;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U)
    --end;
  return text.substr(0, end) + " ...";
}

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string baseName(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string percent(double value) {
  char text[16];  // NOLINT(modernize-avoid-c-arrays)
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

template <typename Item>
void addOnce(std::vector<Item>& items, const Item& item) {
  if (std::find(items.begin(), items.end(), item) == items.end())
    items.push_back(item);
}

// ---- what is known of each line ---------------------------------------------

struct LineBreak {
  std::string node;
  std::string reason;
  std::string sentence;
  bool possible = false;

  bool operator==(const LineBreak& other) const {
    return node == other.node && reason == other.reason &&
           sentence == other.sentence && possible == other.possible;
  }
};

struct Line {
  std::optional<std::string> text;  // Unset: not known.
  std::vector<std::string> segments;
  std::vector<std::string> called;  // Segments of what this line calls.
  std::vector<LineBreak> breaks;
  std::vector<std::string> operators;
  bool eager = false;  // Something besides glue is in no segment.
};

struct File {
  std::string name;
  std::map<std::size_t, Line> lines;
  bool has_text = false;
};

// Where tracing made a node, the "source" is the stack of Python calls:
// `model.py(12): forward` and so on.
bool isCallStack(const SourceRange& range) {
  if (range.start() != 0 || range.end() == 0 ||
      range.end() != range.source()->size()) {
    return false;
  }
  std::istringstream lines(range.source()->text_str().str());
  for (std::string line; std::getline(lines, line);) {
    const std::size_t close = line.find("): ");
    const std::size_t open = line.rfind('(', close);
    if (close == std::string::npos || open == std::string::npos ||
        open + 1 == close ||
        !std::all_of(line.begin() + static_cast<std::ptrdiff_t>(open) + 1,
                     line.begin() + static_cast<std::ptrdiff_t>(close),
                     [](char c) { return c >= '0' && c <= '9'; })) {
      return false;
    }
  }
  return true;
}

class Annotations {
 public:
  void addMethod(const MethodState& method, bool name_method,
                 const PartitionOptions& options) {
    const Destinations destinations(*method.plan);
    prefix_ = name_method ? method.name + "." : "";
    addBlock(method.graph->block(), destinations, options);
  }

  const std::vector<File>& files() const { return files_; }
  std::size_t nodesWithoutLine() const { return without_line_; }

  // `file-3-17`, or empty where the page does not show the line.
  std::string anchorOf(const std::string& source) const {
    const std::size_t colon = source.rfind(':');
    if (colon == std::string::npos)
      return "";
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i].name == source.substr(0, colon))
        return "file-" + std::to_string(i) + "-" + source.substr(colon + 1);
    }
    return "";
  }

 private:
  void addBlock(const Block* block, const Destinations& destinations,
                const PartitionOptions& options) {
    for (const Node* node : block->nodes()) {
      if (node->kind() != prim::Constant && node->kind() != prim::GetAttr)
        addNode(*node, destinations, options);
      for (const Block* inner : node->blocks())
        addBlock(inner, destinations, options);
    }
  }

  void addNode(const Node& node, const Destinations& destinations,
               const PartitionOptions& options) {
    std::string segment = destinations.segmentOf(&node);
    if (!segment.empty())
      segment = prefix_ + segment;
    // Outermost call first, so that files stand in the order of the program.
    Line* line = nullptr;
    if (node.callstack()) {
      for (const auto& entry : (*node.callstack())->vec()) {
        Line* caller = lineOf(std::get<1>(entry));
        if (caller != nullptr && !segment.empty())
          addOnce(caller->called, segment);
        if (caller != nullptr)
          line = caller;
      }
    }
    if (Line* own = lineOf(node.sourceRange()))
      line = own;
    if (line == nullptr) {
      ++without_line_;
      return;
    }
    addOnce(line->operators, std::string(node.kind().toQualString()));
    if (!segment.empty())
      addOnce(line->segments, segment);
    const PlannedBreak* item = destinations.breakAt(&node);
    const PlannedBreak* possible = destinations.possibleBreakAt(&node);
    for (const PlannedBreak* found : {item, possible}) {
      if (found != nullptr) {
        addOnce(line->breaks, {qualifiedName(node), toString(found->why.reason),
                               found->why.sentence, found == possible});
      }
    }
    if (segment.empty() && item == nullptr &&
        classifyOperator(node, options).kind != CaptureClass::kGlue) {
      line->eager = true;
    }
  }

  Line* lineOf(const SourceRange& range) {
    if (range.source() == nullptr)
      return nullptr;
    const auto original = range.findSourceRangeThatGenerated();
    const SourceRange& best = original ? *original : range;
    const auto position = best.file_line_col();
    if (!position)
      return nullptr;
    File& file = fileNamed(std::get<0>(*position));
    if (!isCallStack(best))
      addText(file, *best.source());
    return &file.lines[std::get<1>(*position)];
  }

  File& fileNamed(const std::string& name) {
    for (File& file : files_) {
      if (file.name == name)
        return file;
    }
    files_.push_back({name, {}, false});
    return files_.back();
  }

  // A source is one function or class of a file, or all of it.
  void addText(File& file, const torch::jit::Source& source) {
    const auto key = std::pair(file.name, source.starting_line_no());
    if (!texts_.emplace(key, source.size()).second)
      return;
    file.has_text = true;
    for (std::size_t i = 0; i < source.num_lines(); ++i) {
      std::string text = source.get_line(i).str();
      while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
        text.pop_back();
      if (i + 1 == source.num_lines() && text.empty())
        break;
      Line& line = file.lines[source.lineno_to_source_lineno(i)];
      if (!line.text)
        line.text = shortened(std::move(text));
    }
  }

  std::string prefix_;
  std::vector<File> files_;
  // Texts by file and first line.
  std::map<std::pair<std::string, std::size_t>, std::size_t> texts_;
  std::size_t without_line_ = 0;
};

// ---- the page ---------------------------------------------------------------

class Page {
 public:
  Page(const std::string& input_name, const std::vector<MethodState>& methods,
       const PartitionReport& report, const PartitionOptions& options)
      : title_("Plan of " + baseName(input_name)),
        methods_(methods),
        report_(report) {
    for (const MethodState& method : methods) {
      annotations_.addMethod(method, methods.size() > 1, options);
      const std::string prefix = methods.size() > 1 ? method.name + "." : "";
      for (const PlannedSegment& segment : method.plan->segments) {
        const std::size_t number = colours_.size();
        colours_.emplace(prefix + segment.name, number % kColours);
      }
    }
  }

  std::string print() {
    out_ << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
         << "<meta charset=\"utf-8\">\n"
         << "<meta name=\"viewport\" content=\"width=device-width, "
            "initial-scale=1\">\n"
         << "<title>" << escaped(title_) << "</title>\n"
         << "<style>" << kStyle << "</style>\n</head>\n<body>\n"
         << "<a class=\"skip\" href=\"#source\">Skip to the source</a>\n"
         << "<header>\n<h1>" << escaped(title_) << "</h1>\n<p>"
         << counted(report_.segments.size(), "segment") << ", "
         << counted(report_.breaks.size(), "break") << "; "
         << percent(report_.coverage())
         << " % of the kernel-launching nodes are in segments.</p>\n"
         << "</header>\n<main>\n";
    printSegments();
    printBreaks();
    printLines("Rewritten by make-capturable", report_.rewrites);
    printLines("Warnings", report_.warnings);
    printSource();
    out_ << "</main>\n</body>\n</html>\n";
    return out_.str();
  }

 private:
  std::string label(const std::string& segment) const {
    const auto colour = colours_.find(segment);
    const std::string kind =
        colour == colours_.end() ? "" : " s" + std::to_string(colour->second);
    return "<span class=\"label" + kind + "\">" + escaped(segment) + "</span>";
  }

  void printSegments() {
    out_ << "<section aria-labelledby=\"segments\">\n"
         << "<h2 id=\"segments\">Segments</h2>\n";
    if (report_.segments.empty()) {
      out_ << "<p>There is none: everything runs eagerly.</p>\n</section>\n";
      return;
    }
    out_ << "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
            "aria-labelledby=\"segments\">\n<table class=\"list\">\n"
         << "<thead><tr><th scope=\"col\">Segment</th>"
         << "<th scope=\"col\" class=\"number\">Nodes that launch kernels</th>"
         << "<th scope=\"col\" class=\"number\">Nodes</th></tr></thead>\n"
         << "<tbody>\n";
    for (const SegmentReport& segment : report_.segments) {
      // Reports put the method first; labels do so where there are several.
      const std::string name =
          methods_.size() > 1 ? segment.name
                              : segment.name.substr(segment.name.find('.') + 1);
      out_ << "<tr><th scope=\"row\">" << label(name)
           << "</th><td class=\"number\">" << segment.kernels
           << "</td><td class=\"number\">" << segment.nodes << "</td></tr>\n";
    }
    out_ << "</tbody>\n</table>\n</div>\n</section>\n";
  }

  void printBreaks() {
    out_ << "<section aria-labelledby=\"breaks\">\n"
         << "<h2 id=\"breaks\">Breaks</h2>\n";
    if (report_.breaks.empty() && report_.possible_breaks.empty()) {
      out_ << "<p>There is none.</p>\n</section>\n";
      return;
    }
    out_ << "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
            "aria-labelledby=\"breaks\">\n<table class=\"list\">\n"
         << "<thead><tr><th scope=\"col\">Node</th>"
         << "<th scope=\"col\">Reason</th><th scope=\"col\">Why</th>"
         << "<th scope=\"col\">Where</th></tr></thead>\n<tbody>\n";
    for (const BreakReport& item : report_.breaks)
      printBreak(item, "");
    for (const BreakReport& item : report_.possible_breaks)
      printBreak(item, "If a call gets here: ");
    out_ << "</tbody>\n</table>\n</div>\n</section>\n";
  }

  void printBreak(const BreakReport& item, const char* condition) {
    out_ << "<tr><th scope=\"row\"><code>" << escaped(item.node)
         << "</code></th><td><span class=\"label break\">"
         << escaped(item.reason) << "</span></td><td>" << condition
         << escaped(item.sentence) << "</td><td>";
    const std::string anchor = annotations_.anchorOf(item.source);
    const std::string place = escaped(baseName(item.source));
    if (anchor.empty()) {
      out_ << (place.empty() ? "not known" : place);
    } else {
      out_ << "<a href=\"#" << anchor << "\">" << place << "</a>";
    }
    if (!item.module_path.empty())
      out_ << " in <code>" << escaped(item.module_path) << "</code>";
    out_ << "</td></tr>\n";
  }

  void printLines(const char* title, const std::vector<std::string>& lines) {
    if (lines.empty())
      return;
    out_ << "<section>\n<h2>" << title << "</h2>\n<ul>\n";
    for (const std::string& line : lines)
      out_ << "<li>" << escaped(line) << "</li>\n";
    out_ << "</ul>\n</section>\n";
  }

  void printSource() {
    out_ << "<section aria-labelledby=\"source\">\n"
         << "<h2 id=\"source\">Source</h2>\n<ul class=\"legend\">\n"
         << "<li><span class=\"label s0\">segment_0</span> runs in that "
            "segment; &#8594; marks a line that calls what does</li>\n"
         << "<li><span class=\"label break\">reason</span> a break: stays "
            "eager, and why</li>\n"
         << "<li><span class=\"label\">eager</span> stays eager without "
            "cutting anything</li>\n</ul>\n";
    const auto& files = annotations_.files();
    for (std::size_t i = 0; i < files.size(); ++i)
      printFile(files[i], "file-" + std::to_string(i));
    if (annotations_.nodesWithoutLine() > 0) {
      out_ << "<p>" << counted(annotations_.nodesWithoutLine(), "node")
           << " without a known line.</p>\n";
    }
    out_ << "</section>\n";
  }

  void printFile(const File& file, const std::string& id) {
    out_ << "<h3 id=\"" << id << "\">" << escaped(file.name) << "</h3>\n";
    if (!file.has_text) {
      out_ << "<p>The model does not hold this source, only numbers of its "
              "lines; what runs there stands in for it.</p>\n";
    }
    out_ << "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
            "aria-labelledby=\""
         << id << "\">\n<table class=\"source\">\n"
         << "<thead><tr><th scope=\"col\">Line</th>"
         << "<th scope=\"col\">Runs</th><th scope=\"col\">Source</th></tr>"
         << "</thead>\n<tbody>\n";
    std::size_t next = 0;
    for (const auto& [number, line] : file.lines) {
      if (next != 0 && number != next) {
        out_ << "<tr><th scope=\"row\"><span aria-label=\"lines left out\">"
                "&#8942;</span></th><td></td><td></td></tr>\n";
      }
      next = number + 1;
      printLine(line, number, id);
    }
    out_ << "</tbody>\n</table>\n</div>\n";
  }

  void printLine(const Line& line, std::size_t number, const std::string& id) {
    out_ << "<tr id=\"" << id << "-" << number << "\"" << rowClass(line)
         << "><th scope=\"row\">" << number << "</th><td class=\"where\">"
         << labels(line) << "</td><td class=\"text\">";
    if (line.text) {
      out_ << escaped(*line.text);
    } else {
      out_ << "<span class=\"quiet\">"
           << escaped(listed(line.operators, kMostLabels)) << "</span>";
    }
    out_ << "</td></tr>\n";
    for (const LineBreak& item : line.breaks) {
      out_ << "<tr class=\"break\"><td></td><td></td><td class=\"why\">"
           << (item.possible ? "Break if a call gets here: " : "Break: ")
           << "<code>" << escaped(item.node) << "</code> "
           << escaped(item.sentence) << " [" << escaped(item.reason)
           << "]</td></tr>\n";
    }
  }

  std::string rowClass(const Line& line) const {
    const bool is_break =
        std::any_of(line.breaks.begin(), line.breaks.end(),
                    [](const LineBreak& item) { return !item.possible; });
    if (is_break)
      return " class=\"break\"";
    const auto& shown = line.segments.empty() ? line.called : line.segments;
    if (shown.size() != 1)
      return "";
    return " class=\"s" + std::to_string(colours_.at(shown[0])) + "\"";
  }

  std::string labels(const Line& line) const {
    std::string text;
    const auto add = [&](const std::string& item) {
      text += (text.empty() ? "" : " ") + item;
    };
    const auto addSegments = [&](const std::vector<std::string>& segments,
                                 const std::string& before) {
      for (std::size_t i = 0; i < segments.size(); ++i) {
        if (i == kMostLabels) {
          add("and " + std::to_string(segments.size() - i) + " more");
          return;
        }
        add(before + label(segments[i]));
      }
    };
    addSegments(line.segments, "");
    std::vector<std::string> called;
    for (const std::string& segment : line.called) {
      if (std::find(line.segments.begin(), line.segments.end(), segment) ==
          line.segments.end()) {
        called.push_back(segment);
      }
    }
    addSegments(called, "<span aria-label=\"calls\">&#8594;</span> ");
    std::vector<std::string> reasons;
    for (const LineBreak& item : line.breaks) {
      if (!item.possible)
        addOnce(reasons, item.reason);
    }
    for (const std::string& reason : reasons) {
      add("<span class=\"label break\">" + escaped(reason) + "</span>");
    }
    if (line.eager)
      add("<span class=\"label\">eager</span>");
    return text;
  }

  static std::string listed(const std::vector<std::string>& items,
                            std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i == most)
        return text + ", ...";
      text += (text.empty() ? "" : ", ") + items[i];
    }
    return text;
  }

  const std::string title_;
  const std::vector<MethodState>& methods_;
  const PartitionReport& report_;
  Annotations annotations_;
  std::map<std::string, std::size_t> colours_;
  std::ostringstream out_;
};

}  // namespace

std::string planHtml(const std::string& input_name,
                     const std::vector<MethodState>& methods,
                     const PartitionReport& report,
                     const PartitionOptions& options) {
  return Page(input_name, methods, report, options).print();
}

}  // namespace pcg::opt
