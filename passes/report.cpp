#include <pcg/options.h>
#include <pcg/report.h>

#include <cstdio>
#include <locale>
#include <sstream>
#include <stdexcept>

#include "passes/json.h"

namespace pcg {

Backend parseBackend(const std::string& word) {
  for (const Backend backend :
       {Backend::kAuto, Backend::kCuda, Backend::kHost, Backend::kOff}) {
    if (word == toString(backend))
      return backend;
  }
  throw std::invalid_argument(
      "expected a back end: auto, cuda, host or off; found '" + word + "'");
}

const char* toString(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kCuda:
      return "cuda";
    case Backend::kHost:
      return "host";
    case Backend::kOff:
      return "off";
  }
  return "auto";
}

double PartitionReport::coverage() const {
  std::int64_t inside = 0;
  for (const SegmentReport& segment : segments)
    inside += segment.kernels;
  const std::int64_t all = inside + eager_kernels;
  return all == 0
             ? 100.0
             : 100.0 * static_cast<double>(inside) / static_cast<double>(all);
}

namespace {

void writeBreaks(const char* word, const std::vector<BreakReport>& breaks,
                 std::ostream& out) {
  for (const BreakReport& item : breaks) {
    out << "  " << word << ' ' << item.node << " [" << item.reason << "] "
        << item.sentence;
    if (!item.source.empty())
      out << "\n    at " << item.source;
    if (!item.module_path.empty()) {
      out << (item.source.empty() ? "\n    in " : ", in ") << item.module_path;
    }
    out << '\n';
  }
}

}  // namespace

std::string PartitionReport::text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << segments.size()
      << (segments.size() == 1 ? " segment, " : " segments, ") << breaks.size()
      << (breaks.size() == 1 ? " break, " : " breaks, ");
  char percent[16];
  std::snprintf(percent, sizeof(percent), "%.1f", coverage());
  out << percent << " % of the work-launching nodes in segments\n";
  for (const SegmentReport& segment : segments) {
    out << "  segment " << segment.name << ": " << segment.kernels
        << " work-launching nodes of " << segment.nodes << '\n';
  }
  writeBreaks("break", breaks, out);
  writeBreaks("possible break", possible_breaks, out);
  for (const std::string& rewrite : rewrites) {
    out << "  rewritten: " << rewrite << '\n';
  }
  for (const std::string& warning : warnings) {
    out << "  warning: " << warning << '\n';
  }
  return out.str();
}

std::string PartitionReport::json() const {
  JsonWriter out;
  out.beginObject();
  out.key("segments").beginArray();
  for (const SegmentReport& segment : segments) {
    out.beginObject();
    out.key("name").value(segment.name);
    out.key("method").value(segment.method);
    out.key("nodes").value(segment.nodes);
    out.key("kernels").value(segment.kernels);
    out.endObject();
  }
  out.endArray();
  for (const auto& [name, list] :
       {std::pair{"breaks", &breaks},
        std::pair{"possible_breaks", &possible_breaks}}) {
    out.key(name).beginArray();
    for (const BreakReport& item : *list) {
      out.beginObject();
      out.key("method").value(item.method);
      out.key("node").value(item.node);
      out.key("reason").value(item.reason);
      out.key("sentence").value(item.sentence);
      out.key("source").value(item.source);
      out.key("module_path").value(item.module_path);
      out.endObject();
    }
    out.endArray();
  }
  for (const auto& [name, lines] :
       {std::pair{"rewrites", &rewrites}, std::pair{"warnings", &warnings}}) {
    out.key(name).beginArray();
    for (const std::string& line : *lines)
      out.value(line);
    out.endArray();
  }
  out.key("eager_kernels").value(eager_kernels);
  out.key("coverage").value(coverage());
  out.endObject();
  return out.take();
}

}  // namespace pcg
