#include "runtime/sequence_steps.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <utility>

#include "passes/json.h"
#include "runtime/first_line.h"
#include "runtime/slots.h"
#include "runtime/trace.h"

namespace pcg {
namespace {

// The name under which the log speaks of all hand-written sequences.
const char* const kLogName = "sequence";

bool isDebugging() {
  const char* word = std::getenv("PCG_DEBUG");
  return word != nullptr && std::string(word) == "1";
}

const char* describe(CUDAGraphSequence::Steps::Use use) {
  switch (use) {
    case CUDAGraphSequence::Steps::Use::kCapture:
      return "captured into";
    case CUDAGraphSequence::Steps::Use::kReplay:
      return "replayed";
    case CUDAGraphSequence::Steps::Use::kReset:
      return "reset";
    case CUDAGraphSequence::Steps::Use::kNone:
      break;
  }
  return "idle";
}

}  // namespace

EagerStep::EagerStep(detail::Break call, ThreadModes modes,
                     CaptureBackend& backend)
    : call(std::move(call)),
      modes(std::move(modes)),
      results(this->call.name, backend) {}

void EagerStep::capture(const std::function<bool(const at::Tensor&)>& stays) {
  const ThreadModes::Scope scope(modes);
  results.keepFrom([&](const at::Tensor& result) {
    return stays(result) ||
           std::any_of(call.arguments.begin(), call.arguments.end(),
                       [&](const at::Tensor& argument) {
                         return argument.has_storage() &&
                                sharesStorage(argument, result);
                       });
  });
  results.refuseTapesFrom(at::sequence_number::peek());
  call.capture(results);
  for (const at::Tensor& argument : call.arguments)
    results.refuseTape(argument, "changed");
  results.keepDone();
  call.capture = nullptr;  // It may refer to what only the capture has.
}

void EagerStep::replay() {
  const ThreadModes::Scope scope(modes);
  results.updateFrom();
  call.replay(results);
  results.updateDone();
}

void StepList::append(StepList more) {
  for (Step& step : more.steps)
    steps.push_back(std::move(step));
  for (c10::Storage& storage : more.kept)
    kept.push_back(std::move(storage));
}

CUDAGraphSequence::Steps::Steps(std::optional<c10::MempoolId_t> pool,
                                Backend backend)
    : choice_(backend),
      debug_(isDebugging()),
      log_(debug_ ? LogLevel::kDebug : logLevelOfEnvironment()),
      pool_(pool) {
  if (backend == Backend::kOff) {
    throw std::invalid_argument(
        "expected a back end that captures, found 'off': a sequence of "
        "hand-written code has nothing to run without captures");
  }
}

CUDAGraphSequence::Steps::~Steps() {
  waitForReplays();
}

CUDAGraphSequence::Steps::InUse::InUse(Steps& steps, Use use) : steps_(steps) {
  Use found = Use::kNone;
  if (steps.use_.compare_exchange_strong(found, use))
    return;
  throw std::logic_error(std::string("the sequence cannot be ") +
                         describe(use) + " while it is being " +
                         describe(found) +
                         ": use it on one thread, one call at a time");
}

CUDAGraphSequence::Steps::InUse::~InUse() {
  steps_.use_.store(Use::kNone);
}

CaptureBackend& CUDAGraphSequence::Steps::backend() {
  const std::lock_guard<std::mutex> lock(mutex_);
  c10::Device device(c10::kCPU);
  if (choice_ != Backend::kHost)
    device = c10::Device(c10::kCUDA, c10::cuda::device_count() == 0
                                         ? 0
                                         : c10::cuda::current_device());
  if (backend_) {
    if (backend_->device() != device) {
      throw std::logic_error(
          "the sequence belongs to " + backend_->device().str() + ", but " +
          device.str() + " is current; use a sequence for each device");
    }
    return *backend_;
  }
  if (!pool_)
    pool_ = newPoolId();
  backend_ = choice_ == Backend::kHost ? makeHostBackend()
                                       : makeCudaBackend(device, pool_);
  return *backend_;
}

c10::MempoolId_t CUDAGraphSequence::Steps::pool() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!pool_)
    pool_ = newPoolId();
  return *pool_;
}

void CUDAGraphSequence::Steps::append(StepList more) {
  const std::lock_guard<std::mutex> lock(mutex_);
  list_.append(std::move(more));
}

void CUDAGraphSequence::Steps::noteError(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = firstLine(text);
}

void CUDAGraphSequence::Steps::replay() {
  const InUse use(*this, Use::kReplay);
  if (list_.steps.empty()) {
    throw std::logic_error(
        "expected a sequence with steps, found an empty one: capture into it "
        "with PiecewiseGraph first");
  }
  const c10::DeviceGuard guard(backend_->device());
  backend_->enterStream();
  for (std::size_t i = 0; i < list_.steps.size(); ++i) {
    try {
      run(list_.steps[i]);
    } catch (const std::exception& error) {
      noteError("step " + std::to_string(i) + ": " + error.what());
      throw;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ++replays_;
}

void CUDAGraphSequence::Steps::run(const Step& step) {
  const TraceRange range(step.range.c_str());
  if (step.graph) {
    step.graph->replay();
  } else {
    step.eager->replay();
  }
  if (!debug_)
    return;
  try {
    backend_->synchronize();
  } catch (const std::exception& error) {
    throw std::runtime_error(step.range + ": " + error.what());
  }
}

// Memory from outside goes back to the stream that it was allocated on, of
// which replays on another one know nothing.
void CUDAGraphSequence::Steps::waitForReplays() noexcept {
  if (list_.steps.empty())
    return;
  try {
    backend_->waitForReplays();
  } catch (const std::exception& error) {
    log_.writeOnce(LogLevel::kWarning, kLogName, firstLine(error.what()));
  }
}

void CUDAGraphSequence::Steps::reset() {
  const InUse use(*this, Use::kReset);
  waitForReplays();
  StepList dropped;  // goes after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(dropped, list_);
  replays_ = 0;
  last_error_.clear();
}

SequenceReport CUDAGraphSequence::Steps::report() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  SequenceReport report;
  for (const Step& step : list_.steps) {
    StepReport& entry = report.steps.emplace_back();
    entry.kind =
        step.graph ? StepReport::Kind::kGraph : StepReport::Kind::kEager;
    entry.name = step.name;
    entry.kernels = step.graph ? step.graph->size() : 0;
  }
  report.replays = replays_;
  report.pool_bytes = backend_ ? backend_->poolBytes() : 0;
  report.last_error = last_error_;
  return report;
}

// ---- the public face --------------------------------------------------------

std::string SequenceReport::text() const {
  std::string text = std::to_string(steps.size()) + " steps, " +
                     std::to_string(replays) + " replays, " +
                     std::to_string(pool_bytes) + " bytes in the pool\n";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepReport& step = steps[i];
    text += "step " + std::to_string(i) + ": ";
    text += step.kind == StepReport::Kind::kGraph
                ? "graph, " + std::to_string(step.kernels) + " kernels"
                : "eager, " + step.name;
    text += '\n';
  }
  if (!last_error.empty())
    text += "last error: " + last_error + '\n';
  return text;
}

std::string SequenceReport::json() const {
  JsonWriter out;
  out.beginObject();
  out.key("steps").beginArray();
  for (const StepReport& step : steps) {
    out.beginObject();
    const bool graph = step.kind == StepReport::Kind::kGraph;
    out.key("kind").value(graph ? "graph" : "eager");
    out.key("name").value(step.name);
    out.key("kernels").value(step.kernels);
    out.endObject();
  }
  out.endArray();
  out.key("replays").value(replays);
  out.key("pool_bytes").value(static_cast<std::int64_t>(pool_bytes));
  out.key("last_error").value(last_error);
  out.endObject();
  return out.take();
}

CUDAGraphSequence::CUDAGraphSequence(std::optional<c10::MempoolId_t> pool,
                                     Backend backend)
    : steps_(std::make_unique<Steps>(pool, backend)) {}

CUDAGraphSequence::~CUDAGraphSequence() = default;

void CUDAGraphSequence::replay() {
  if (detail::isRecording()) {
    throw std::logic_error(
        "a sequence cannot be replayed by captured code; call replay() through "
        "no_graph");
  }
  steps_->replay();
}

void CUDAGraphSequence::reset() {
  if (detail::isRecording()) {
    throw std::logic_error(
        "a sequence cannot be reset by captured code; call reset() through "
        "no_graph");
  }
  steps_->reset();
}

c10::MempoolId_t CUDAGraphSequence::pool() {
  return steps_->pool();
}

SequenceReport CUDAGraphSequence::report() const {
  return steps_->report();
}

}  // namespace pcg
