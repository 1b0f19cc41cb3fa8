#include "tools/pcg-opt/pipeline.h"

#include <algorithm>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/suggest.h"

namespace pcg::opt {
namespace {

PassInfo ours(std::string name, std::string summary,
              std::vector<PassOptionInfo> options = {}) {
  PassInfo info;
  info.name = std::move(name);
  info.summary = std::move(summary);
  info.options = std::move(options);
  return info;
}

PassInfo torchs(std::string name, std::string summary) {
  PassInfo info = ours(std::move(name), std::move(summary));
  info.from_torch = true;
  return info;
}

std::vector<PassInfo> makePassInfos() {
  const PassOptionInfo graph_safe = {
      "graph-safe", "PATTERN", "an operator outside aten and prim to trust"};
  std::vector<PassInfo> infos = {
      ours("prepare",
           "inline calls, resolve autocast, fold constants, drop dead code"),
      ours("annotate", "resolve every way of tagging a node no_graph",
           {{"no-graph", "PATTERN", "an operator or a scope to keep eager"}}),
      ours("classify",
           "one remark for each node: whether a CUDA graph can hold it",
           {graph_safe}),
      ours("make-capturable",
           "rewrite operators that cannot be captured to equals that can"),
      ours("reorder", "move independent breaks next to each other",
           {{"min-segment-size", "N", "kernels a segment has at least"},
            graph_safe}),
      ours("plan", "decide what becomes a segment; changes nothing",
           {{"min-segment-size", "N", "kernels a segment has at least"},
            graph_safe}),
      ours("outline", "move each planned segment into a subgraph"),
      ours("verify", "check the invariants of every segment"),
      ours("lower", "turn segments into calls of the module's sequence",
           {{"backend", "WORD", "auto, cuda, host or off"},
            {"max-keys-per-segment", "N", "captured graphs kept"}}),
      torchs("freeze", "turn parameters and attributes into constants"),
      torchs("inline", "inline calls of methods and functions"),
      torchs("constant-propagation", "compute what constants determine"),
      torchs("constant-pooling", "keep one of equal constants"),
      torchs("dce", "drop nodes without use and effect"),
      torchs("cse", "compute equal expressions once"),
      torchs("peephole", "simplify nodes that do nothing"),
      torchs("lower-tuples", "remove tuples that are packed and unpacked"),
      torchs("inline-fork-wait", "run forked code where it is forked"),
      torchs("remove-tensor-mutation", "write new tensors where that is safe"),
      torchs("canonicalize", "number values in program order, drop names"),
  };
  for (PassInfo& info : infos) {
    info.needs_module = info.name == "lower" || info.name == "freeze";
  }
  return infos;
}

std::vector<std::string> passNames() {
  std::vector<std::string> names = {kPartition};
  for (const PassInfo& info : passInfos())
    names.push_back(info.name);
  return names;
}

// Options that some pass of the default pipeline takes.
std::vector<PassOptionInfo> partitionOptions() {
  std::vector<PassOptionInfo> options;
  PartitionPipelineOptions all;
  all.lower = true;
  for (const PassInstance& instance : partitionPipeline(all)) {
    for (const PassOptionInfo& option : instance.pass->options) {
      options.push_back(option);
    }
  }
  return options;
}

class PipelineParser {
 public:
  explicit PipelineParser(const std::string& text) : text_(text) {}

  Pipeline parse() {
    Pipeline pipeline;
    skipBlanks();
    if (at_ == text_.size())
      fail("expected the name of a pass");
    for (;;) {
      pipeline.push_back(parseInstance());
      skipBlanks();
      if (at_ == text_.size())
        return pipeline;
      if (text_[at_] != ',') {
        fail(std::string("expected ',' or the end, found '") + text_[at_] +
             "'");
      }
      ++at_;
      skipBlanks();
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw ToolError(kBadUsage, "pass pipeline, column " +
                                   std::to_string(at_ + 1) + ": " + message);
  }

  void skipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  std::string takeUntil(const char* stops) {
    const std::size_t end =
        std::min(text_.find_first_of(stops, at_), text_.size());
    std::string word = text_.substr(at_, end - at_);
    at_ = end;
    return word;
  }

  PassInstance parseInstance() {
    const std::size_t start = at_;
    const std::string name = takeUntil(", \t\n{}=");
    PassInstance instance;
    instance.pass = findPass(name);
    if (instance.pass == nullptr && name != kPartition) {
      at_ = start;
      if (name.empty())
        fail("expected the name of a pass");
      fail("unknown pass '" + name + "'" + didYouMean(name, passNames()));
    }
    if (at_ < text_.size() && text_[at_] == '{') {
      ++at_;
      parseOptions(instance, name);
    }
    return instance;
  }

  void parseOptions(PassInstance& instance, const std::string& name) {
    const std::vector<PassOptionInfo> known =
        instance.pass == nullptr ? partitionOptions() : instance.pass->options;
    for (;;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == ',')) {
        ++at_;
      }
      if (at_ == text_.size())
        fail("expected '}'");
      if (text_[at_] == '}') {
        ++at_;
        return;
      }
      const std::size_t start = at_;
      const std::string key = takeUntil("=, {}");
      const bool exists =
          std::any_of(known.begin(), known.end(),
                      [&](const auto& option) { return option.name == key; });
      if (!exists) {
        at_ = start;
        std::vector<std::string> names;
        for (const auto& option : known)
          names.push_back(option.name);
        fail("pass '" + name + "' has no option '" + key + "'" +
             didYouMean(key, names));
      }
      if (at_ == text_.size() || text_[at_] != '=') {
        fail("expected '=' and a value after '" + key + "'");
      }
      ++at_;
      instance.options.emplace_back(key, takeUntil(", {}"));
    }
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

const std::vector<PassInfo>& passInfos() {
  static const std::vector<PassInfo> infos = makePassInfos();
  return infos;
}

const PassInfo* findPass(const std::string& name) {
  for (const PassInfo& info : passInfos()) {
    if (info.name == name)
      return &info;
  }
  return nullptr;
}

Pipeline partitionPipeline(const PartitionPipelineOptions& options) {
  Pipeline pipeline;
  const auto add = [&](const char* name) {
    pipeline.push_back({findPass(name), {}});
  };
  add("prepare");
  add("annotate");
  if (options.make_capturable)
    add("make-capturable");
  if (options.reorder)
    add("reorder");
  add("plan");
  add("outline");
  if (options.verify)
    add("verify");
  if (options.lower)
    add("lower");
  return pipeline;
}

Pipeline parsePipeline(const std::string& text) {
  return PipelineParser(text).parse();
}

std::string toString(const Pipeline& pipeline) {
  std::string text;
  for (const PassInstance& instance : pipeline) {
    if (!text.empty())
      text += ',';
    text += instance.pass == nullptr ? kPartition : instance.pass->name;
    if (instance.options.empty())
      continue;
    std::string options;
    for (const auto& [key, value] : instance.options) {
      options += (options.empty() ? "" : " ") + key + "=" + value;
    }
    text += "{" + options + "}";
  }
  return text;
}

}  // namespace pcg::opt
