#include "runtime/sequence.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "passes/json.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;

Backend chooseBackend(Backend recorded) {
  const char* word = std::getenv("PCG_BACKEND");
  if (word == nullptr || *word == '\0')
    return recorded;
  return parseBackend(word);
}

// A thread's token; its end tells that the thread has ended.
const std::shared_ptr<int>& threadToken() {
  thread_local const std::shared_ptr<int> token = std::make_shared<int>(0);
  return token;
}

std::uint64_t nextId() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

// The stored form of a segment takes the module first and returns one tuple;
// the runtime wants neither.
std::shared_ptr<Graph> bareGraph(const Graph& stored) {
  auto graph = const_cast<Graph&>(stored).copy();
  graph->eraseInput(0);
  Node* tuple = graph->outputs()[0]->node();
  const auto outputs = tuple->inputs().vec();
  graph->eraseOutput(0);
  for (torch::jit::Value* output : outputs)
    graph->registerOutput(output);
  if (!tuple->output()->hasUses())
    tuple->destroy();
  return graph;
}

}  // namespace

struct SegmentSequence::Context {
  Context(
      const SequenceState& state, Backend backend,
      const std::vector<std::shared_ptr<const SegmentDefinition>>& definitions)
      : execution(state, backend), thread(threadToken()) {
    for (const auto& definition : definitions) {
      runners.push_back(std::make_unique<SegmentRunner>(definition, execution));
    }
  }

  // The runner of a segment. A call's name is a constant of its graph, so the
  // string object itself, which is kept alive, is known after the first call.
  SegmentRunner& runner(const IValue& name, const SegmentSequence& sequence) {
    const void* text = &name.toStringRef();
    for (const auto& [known, index] : names) {
      if (known.second == text)
        return *runners[index];
    }
    const std::size_t index = sequence.indexOf(name);
    names.push_back({{name, text}, index});
    return *runners[index];
  }

  ExecutionContext execution;
  std::vector<std::unique_ptr<SegmentRunner>> runners;
  std::vector<std::pair<std::pair<IValue, const void*>, std::size_t>> names;
  std::weak_ptr<int> thread;
};

SegmentSequence::SegmentSequence(SequenceState state)
    : id_(nextId()),
      state_(std::move(state)),
      backend_(chooseBackend(state_.backend)) {
  std::istringstream archive(state_.archive);
  const auto holder = torch::jit::load(archive);
  for (std::size_t i = 0; i < state_.segments.size(); ++i) {
    const SegmentState& segment = state_.segments[i];
    const auto method = holder.get_method("s" + std::to_string(i));
    const auto& stored = torch::jit::toGraphFunction(method.function()).graph();
    definitions_.push_back(defineSegment(segment.name, bareGraph(*stored),
                                         segment.bound, segment.borrowed, {},
                                         planOptions(state_)));
    index_[segment.name] = i;
  }
}

SegmentSequence::~SegmentSequence() = default;

std::shared_ptr<SegmentSequence::Context> SegmentSequence::contextOfThread() {
  // Most threads call one module again and again. What another thread dropped
  // is not found again.
  thread_local struct {
    std::uint64_t sequence = 0;
    std::weak_ptr<Context> context;
  } last;
  if (last.sequence == id_) {
    if (auto context = last.context.lock())
      return context;
  }
  auto context = findContext();
  last.sequence = id_;
  last.context = context;
  return context;
}

std::shared_ptr<SegmentSequence::Context> SegmentSequence::findContext() {
  const auto& token = threadToken();
  std::shared_ptr<Context> dropped;  // goes after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& context : contexts_) {
    if (context->thread.lock() == token)
      return context;
  }
  if (contexts_.size() >= kMostContexts) {
    const auto dead = std::find_if(
        contexts_.begin(), contexts_.end(),
        [](const auto& context) { return context->thread.expired(); });
    if (dead == contexts_.end()) {
      ++calls_without_context_;
      return nullptr;
    }
    dropped = std::move(*dead);
    contexts_.erase(dead);
  }
  contexts_.push_back(
      std::make_shared<Context>(state_, backend_, definitions_));
  return contexts_.back();
}

std::size_t SegmentSequence::indexOf(const IValue& name) const {
  const auto it = index_.find(name.toStringRef());
  if (it == index_.end()) {
    throw std::runtime_error("expected the name of a segment, found '" +
                             name.toStringRef() + "'");
  }
  return it->second;
}

std::vector<IValue> SegmentSequence::run(const IValue& module,
                                         const IValue& name,
                                         std::vector<IValue> inputs) {
  if (const auto context = contextOfThread()) {
    return context->runner(name, *this).run(module, std::move(inputs));
  }
  const SegmentDefinition& definition = *definitions_[indexOf(name)];
  BoundValues bound(definition.bound);
  bound.refresh(module);
  inputs.insert(inputs.end(), bound.values().begin(), bound.values().end());
  return runBody(*definition.program, module, std::move(inputs));
}

std::string SegmentSequence::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  JsonWriter out;
  out.beginObject();
  out.key("backend").value(toString(backend_));
  out.key("contexts").value(static_cast<std::int64_t>(contexts_.size()));
  out.key("calls_without_context").value(calls_without_context_);
  std::size_t bytes = 0;
  for (const auto& context : contexts_)
    bytes += context->execution.poolBytes();
  out.key("pool_bytes").value(static_cast<std::int64_t>(bytes));
  out.key("segments").beginArray();
  for (std::size_t i = 0; i < definitions_.size(); ++i) {
    std::vector<SegmentStatistics> all(1);
    all[0].name = definitions_[i]->name;
    all[0].nodes = definitions_[i]->nodes;
    for (const auto& context : contexts_) {
      context->runners[i]->addStatistics(all);
    }
    for (const SegmentStatistics& segment : all) {
      out.beginObject();
      out.key("name").value(segment.name);
      out.key("nodes").value(segment.nodes);
      out.key("captures").value(segment.captures);
      out.key("replays").value(segment.replays);
      out.key("eager_calls").value(segment.eager_calls);
      out.key("reasons").beginArray();
      for (const std::string& reason : segment.reasons)
        out.value(reason);
      out.endArray();
      out.endObject();
    }
  }
  out.endArray();
  out.endObject();
  return out.take();
}

void SegmentSequence::reset() {
  std::vector<std::shared_ptr<Context>> dropped;  // goes after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(contexts_);
  calls_without_context_ = 0;
}

}  // namespace pcg
