#include "runtime/sequence.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "passes/json.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;

const char* const kWithoutContext =
    "runs eagerly: more calls are under way at once than the sequence keeps "
    "captures for";

Backend chooseBackend(Backend recorded) {
  const char* word = std::getenv("PCG_BACKEND");
  if (word == nullptr || *word == '\0')
    return recorded;
  return parseBackend(word);
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
      const SequenceState& state, Backend backend, Log& log,
      const std::vector<std::shared_ptr<const SegmentDefinition>>& definitions)
      : execution(state, backend, log) {
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

  // For the calling thread alone, until release().
  bool tryTake() { return !taken.exchange(true, std::memory_order_acquire); }
  void release() { taken.store(false, std::memory_order_release); }

  // Whether a call is under way that some of the slots belong to. To be asked
  // by the thread that has taken the context.
  bool isHeld() const {
    return std::any_of(runners.begin(), runners.end(),
                       [](const auto& runner) { return runner->isHeld(); });
  }

  std::atomic<bool> taken{true};  // by the thread that makes it
  std::thread::id owner = std::this_thread::get_id();
  ExecutionContext execution;
  std::vector<std::unique_ptr<SegmentRunner>> runners;
  std::vector<std::pair<std::pair<IValue, const void*>, std::size_t>> names;
};

// A context that one segment runs in, or none.
class SegmentSequence::Lease {
 public:
  Lease(SegmentSequence& sequence, std::shared_ptr<Context> context)
      : sequence_(sequence), context_(std::move(context)) {}
  ~Lease() {
    if (context_)
      sequence_.giveBack(*context_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Context* get() const { return context_.get(); }

 private:
  SegmentSequence& sequence_;
  std::shared_ptr<Context> context_;
};

SegmentSequence::SegmentSequence(SequenceState state)
    : id_(nextId()),
      state_(std::move(state)),
      backend_(chooseBackend(state_.backend)),
      log_(logLevelOfEnvironment()) {
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

SegmentSequence::Lease SegmentSequence::lease() {
  // Most threads call one module again and again. What another thread dropped
  // is not found again.
  thread_local struct {
    std::uint64_t sequence = 0;
    std::weak_ptr<Context> context;
  } last;
  if (last.sequence == id_) {
    auto context = last.context.lock();
    if (context && context->tryTake()) {
      if (context->owner == std::this_thread::get_id())
        return {*this, std::move(context)};
      context->release();
    }
  }
  auto context = takeContext();
  last.sequence = id_;
  last.context = context;
  return {*this, std::move(context)};
}

std::shared_ptr<SegmentSequence::Context> SegmentSequence::takeContext() {
  const std::thread::id self = std::this_thread::get_id();
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto moveBehind = [&](std::size_t index) {
    std::rotate(contexts_.begin() + index, contexts_.begin() + index + 1,
                contexts_.end());
    return contexts_.back();
  };
  const auto own = [&](const auto& context) { return context->owner == self; };
  while (true) {
    const auto mine = std::find_if(contexts_.begin(), contexts_.end(), own);
    if (mine != contexts_.end() && (*mine)->tryTake()) {
      // It may have been in use only for the question whether it is held.
      return moveBehind(static_cast<std::size_t>(mine - contexts_.begin()));
    }
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      Context& context = *contexts_[i];
      if (!context.tryTake())
        continue;
      if (context.isHeld()) {
        context.release();
        continue;
      }
      context.owner = self;
      return moveBehind(i);
    }
    if (contexts_.size() < kMostContexts) {
      contexts_.push_back(
          std::make_shared<Context>(state_, backend_, log_, definitions_));
      return contexts_.back();
    }
    // Slots come free without a word, so it looks again from time to time.
    if (std::chrono::steady_clock::now() >= deadline) {
      ++calls_without_context_;
      return nullptr;
    }
    waiting_.fetch_add(1);
    given_back_.wait_for(lock, std::chrono::microseconds(200));
    waiting_.fetch_sub(1);
  }
}

void SegmentSequence::giveBack(Context& context) {
  context.release();
  if (waiting_.load() > 0)
    given_back_.notify_one();
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
  const Lease lease = this->lease();
  if (Context* context = lease.get())
    return context->runner(name, *this).run(module, std::move(inputs));
  const SegmentDefinition& definition = *definitions_[indexOf(name)];
  log_.writeOnce(LogLevel::kWarning, definition.name, kWithoutContext);
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
