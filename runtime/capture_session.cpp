#include "runtime/capture_session.h"

#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cxxabi.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "runtime/thread_modes.h"

namespace pcg {
namespace {

thread_local CaptureSession* current_session = nullptr;

}  // namespace

// Breaks in a backward pass have to be met by the thread that captures. And a
// cast that autocast's cache hands on, from one graph to another or between a
// graph and eager code, would be none that each replay makes anew.
class CaptureSession::ThreadSettings {
 public:
  explicit ThreadSettings(c10::Device device)
      : device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
        autograd_threads_(
            c10::AutogradState::get_tls_state().get_multithreading_enabled()),
        cast_cache_(at::autocast::is_autocast_cache_enabled()) {
    set(false, false);
  }
  // A stream guard that was left by an exception may have put back the stream
  // of the capture, which has ended by then.
  ~ThreadSettings() {
    set(autograd_threads_, cast_cache_);
    c10::impl::VirtualGuardImpl(device_.type()).exchangeStream(stream_);
  }
  ThreadSettings(const ThreadSettings&) = delete;
  ThreadSettings& operator=(const ThreadSettings&) = delete;

  bool autogradThreads() const { return autograd_threads_; }

 private:
  static void set(bool autograd_threads, bool cast_cache) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(
        autograd_threads);
    at::autocast::set_autocast_cache_enabled(cast_cache);
  }
  const c10::Device device_;
  const c10::Stream stream_;
  const bool autograd_threads_;
  const bool cast_cache_;
};

CaptureSession::CaptureSession(CUDAGraphSequence::Steps& sequence,
                               PiecewiseGraphOptions options)
    : sequence_(sequence),
      options_(std::move(options)),
      use_(std::in_place, sequence, CUDAGraphSequence::Steps::Use::kCapture),
      backend_(sequence.backend()) {
  if (current_session != nullptr) {
    throw std::logic_error(
        "expected a thread that does not capture, found one with a "
        "PiecewiseGraph under way; finish that first");
  }
  // Once, so that an input is there, whatever stream it comes from.
  backend_.synchronize();
  settings_ = std::make_unique<ThreadSettings>(backend_.device());
  watch_ =
      std::make_unique<OperatorWatch>(used_, [this] { open_->noteOperator(); });
  begin();
  current_session = this;
}

CaptureSession::~CaptureSession() {
  drop();
}

CaptureSession* CaptureSession::current() {
  return current_session;
}

// What has not been added to the sequence, and the claim on both.
void CaptureSession::drop() noexcept {
  if (current_session == this) {
    current_session = nullptr;
    watch_->pause();
  }
  open_.reset();
  list_ = StepList();
  use_.reset();
}

template <typename Work>
void CaptureSession::allOrNothing(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    end_ = std::string("has failed with: ") + error.what();
    sequence_.noteError(error.what());
    drop();
    throw;
  } catch (...) {
    end_ = "has failed with an exception of an unknown type";
    sequence_.noteError("an exception of an unknown type");
    drop();
    throw;
  }
}

void CaptureSession::begin() {
  CaptureHints hints;
  hints.any_input = true;
  hints.host_work_allowed = true;
  hints.draws_random = options_.draws_random;
  hints.error_mode = options_.capture_error_mode;
  hints.stream = options_.stream;
  open_ = backend_.beginCapture(hints);
  watch_->resume();
}

// Replays what has been captured, which makes its results real.
void CaptureSession::endGraph() {
  watch_->pause();
  auto graph = open_->finish();
  open_.reset();
  if (graph->isEmpty())
    return;
  backend_.enterStream();
  graph->replay();
  Step& step = list_.steps.emplace_back();
  step.range = "graph";
  step.graph = std::move(graph);
}

void CaptureSession::split() {
  allOrNothing([&] {
    endGraph();
    begin();
  });
}

void CaptureSession::recordBreak(detail::Break call) {
  allOrNothing([&] {
    endGraph();
    if (options_.barrier)
      options_.barrier();
    ThreadModes modes = ThreadModes::current();
    modes.setAutogradThreads(settings_->autogradThreads());
    Step step;
    step.name = call.name;
    step.range = call.name;
    step.eager = std::make_unique<EagerStep>(std::move(call), modes, backend_);
    step.eager->capture([this](const at::Tensor& result) {
      return used_.contains(result.storage());
    });
    list_.steps.push_back(std::move(step));
    begin();
  });
}

void CaptureSession::finish() {
  if (!end_.empty())
    throw std::logic_error("the capture " + end_);
  if (std::this_thread::get_id() != thread_) {
    throw std::logic_error(
        "a capture has to be finished by the thread that began it");
  }
  if (open_ == nullptr)
    throw std::logic_error("a capture cannot be finished inside a break");
  allOrNothing([&] {
    endGraph();
    list_.kept = used_.takeOutside();
    sequence_.append(std::move(list_));
  });
  end_ = "has been finished already";
  drop();
  watch_.reset();
  settings_.reset();
}

// ---- the public face --------------------------------------------------------

PiecewiseGraph::PiecewiseGraph(CUDAGraphSequence& sequence,
                               PiecewiseGraphOptions options)
    : session_(std::make_unique<CaptureSession>(*sequence.steps_,
                                                std::move(options))) {}

PiecewiseGraph::~PiecewiseGraph() = default;

void PiecewiseGraph::finish() {
  session_->finish();
}

bool is_in_piecewise_graph() {
  return CaptureSession::current() != nullptr;
}

void force_no_graph() {
  if (detail::isRecording())
    CaptureSession::current()->split();
}

namespace detail {

bool isRecording() {
  const CaptureSession* session = CaptureSession::current();
  return session != nullptr && session->isRecording();
}

void recordBreak(Break step) {
  CaptureSession::current()->recordBreak(std::move(step));
}

void refuseFrozenRead() {
  if (!isRecording())
    return;
  throw CaptureError(
      "captured code read the host value of a break, which may be another one "
      "at each replay; pass the HostValue to no_graph, read it after the "
      "capture, or use frozen() to keep the capture's value for all replays");
}

void PlainTensors::refuse(const std::string& what) {
  throw std::logic_error("a call outside a capture returned " + what);
}

std::string nameOf(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

}  // namespace detail

}  // namespace pcg
