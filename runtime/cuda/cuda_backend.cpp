#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "runtime/backend.h"
#include "runtime/cuda/batched_copy.h"
#include "runtime/fault_injection.h"
#include "runtime/first_line.h"

namespace pcg {
namespace {

using c10::cuda::CUDAStream;
namespace allocator = c10::cuda::CUDACachingAllocator;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) {
    return;
  }
  (void)cudaGetLastError();
  const std::string text = std::string(what) + ": " + cudaGetErrorString(error);
  TORCH_CHECK_WITH(OutOfMemoryError, error != cudaErrorMemoryAllocation, text);
  throw std::runtime_error(text);
}

template <typename Step>
void ignoringErrors(const Step& step) noexcept {
  try {
    step();
  } catch (...) {
  }
}

// ---- streams and their order ------------------------------------------------

class Event {
 public:
  Event() = default;
  ~Event() {
    if (event_ != nullptr) {
      (void)cudaEventDestroy(event_);
    }
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(CUDAStream stream) {
    if (event_ == nullptr) {
      check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
            "cannot create an event");
    }
    check(cudaEventRecord(event_, stream.stream()), "cannot record an event");
  }

  void wait() {
    check(cudaEventSynchronize(event_), "cannot wait for an event");
  }

  void holdBack(CUDAStream stream) {
    check(cudaStreamWaitEvent(stream.stream(), event_, 0),
          "cannot wait for an event");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Streams that torch did not create may be destroyed at any time, and a new one
// may get the same handle. Torch uses the handle as their id.
bool isForeign(CUDAStream stream) {
  return stream.stream() != nullptr &&
         reinterpret_cast<c10::StreamId>(stream.stream()) == stream.id();
}

// Keeps work in order that moves from stream to stream. The current device has
// to be the streams' device.
class StreamOrder {
 public:
  // Orders what `stream` gets next after all work so far.
  void enter(CUDAStream stream) {
    if (last_ && (recorded_ || *last_ != stream)) {
      if (!recorded_) {
        event_.record(*last_);
      }
      event_.holdBack(stream);
    }
    if (!isForeign(stream)) {
      last_ = stream;
      recorded_ = false;
    }
  }

  // To be called after each piece of work. A stream that is there to stay
  // costs nothing: its event is recorded once another stream needs it.
  void leave(CUDAStream stream) {
    last_ = stream;
    recorded_ = isForeign(stream);
    if (recorded_) {
      event_.record(stream);
    }
  }

  // Until all work so far is done.
  void wait() {
    if (!last_ && !recorded_)
      return;
    if (!recorded_)
      event_.record(*last_);
    recorded_ = true;
    event_.wait();
  }

 private:
  std::optional<CUDAStream> last_;
  bool recorded_ = false;  // event_ stands for the last work
  Event event_;
};

// A stream for the captures of one owner at a time. Torch's pool would hand
// the same stream to several, and workspaces are found by stream. Streams are
// passed on and never destroyed: the allocator keeps free memory for each.
class OwnStream {
 public:
  explicit OwnStream(c10::DeviceIndex device) : device_(device) {
    const std::lock_guard<std::mutex> lock(unused().mutex);
    auto& streams = unused().streams;
    const auto it = std::find_if(
        streams.begin(), streams.end(),
        [&](const auto& unused) { return unused.first == device; });
    if (it != streams.end()) {
      stream_ = it->second;
      streams.erase(it);
      return;
    }
    // Non-blocking: a capture must not involve the legacy stream.
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
          "cannot create a stream");
  }
  ~OwnStream() {
    const std::lock_guard<std::mutex> lock(unused().mutex);
    ignoringErrors([&] { unused().streams.emplace_back(device_, stream_); });
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  CUDAStream get() const {
    return c10::cuda::getStreamFromExternal(stream_, device_);
  }

 private:
  struct Unused {
    std::mutex mutex;
    std::vector<std::pair<c10::DeviceIndex, cudaStream_t>> streams;
  };
  static Unused& unused() {
    static auto* unused = new Unused;  // Owners may outlive static objects.
    return *unused;
  }

  c10::DeviceIndex device_;
  cudaStream_t stream_ = nullptr;
};

// What all backends of one device share: torch's default generator. Torch
// guards neither its list of graphs nor the seed and offset in device memory,
// which the beginning of each capture and each replay that draws overwrite.
struct SharedGenerator {
  // Recursive: the body of a capture may destroy a graph.
  std::recursive_mutex mutex;
  StreamOrder order;  // of the work that uses the device memory
};

SharedGenerator& sharedGenerator(c10::DeviceIndex device) {
  static auto* generators =
      new std::array<SharedGenerator, C10_COMPILE_TIME_MAX_GPUS>;
  return generators->at(static_cast<std::size_t>(device));
}

// ---- memory -----------------------------------------------------------------

// A memory pool for device memory and one for pinned host memory, of one name.
// Torch refuses a pool whose last graph is gone; this keeps it for the next.
class Pool {
 public:
  Pool(c10::DeviceIndex device, c10::MempoolId_t id)
      : device_(device), id_(id) {
    allocator::get()->createOrIncrefPool(device_, id_);
    auto* host = at::getHostAllocator(at::kCUDA);
    host->begin_allocate_to_pool(id_, [](c10::Stream) { return false; });
    host->end_allocate_to_pool(id_);
  }
  ~Pool() {
    ignoringErrors([&] { allocator::get()->releasePool(device_, id_); });
    ignoringErrors([&] { at::getHostAllocator(at::kCUDA)->release_pool(id_); });
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  c10::MempoolId_t id() const { return id_; }

  std::size_t bytes() const {
    std::size_t bytes = 0;
    const auto snapshot = allocator::snapshot(id_, /*include_traces=*/false);
    for (const auto& segment : snapshot.segments) {
      if (segment.device == device_ && segment.owner_private_pool_id == id_) {
        bytes += segment.total_size;
      }
    }
    return bytes;
  }

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
};

// The cuBLAS workspaces that captures on one stream use, kept for as long as
// graphs may use them.
//
// Torch keeps workspaces in maps by handle and stream. One that a capture makes
// lies in the capture's pool, and `clearCublasWorkspaces` would free it: memory
// that a later capture can hand out, and that earlier graphs still write to.
// One that eager work made is none for a graph that is replayed on another
// stream. So each capture finds the workspaces of earlier ones in the maps, and
// eager work finds its own again afterwards.
// (Seen in torch 2.11; to be dropped when torch ties workspaces to graphs.)
class Workspaces {
 public:
  explicit Workspaces(CUDAStream stream) : stream_(stream) {}
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;

  CUDAStream stream() const { return stream_; }

  void beginCapture() {
    for (Kind& kind : kinds_) {
      const std::unique_lock<std::shared_mutex> lock(kind.all->mutex);
      kind.eager = takeEntries(*kind.all);
      for (const auto& [key, memory] : kind.captured)
        kind.all->map[key] = at::DataPtr(memory.get(), memory.device());
    }
  }

  // Whatever thread made an entry.
  void endCapture() {
    for (Kind& kind : kinds_) {
      const std::unique_lock<std::shared_mutex> lock(kind.all->mutex);
      for (auto& [key, memory] : takeEntries(*kind.all)) {
        if (memory.get_context() != nullptr)
          kind.captured.emplace_back(key, std::move(memory));
      }
      for (auto& [key, memory] : kind.eager)
        kind.all->map[key] = std::move(memory);
      kind.eager.clear();
    }
  }

 private:
  using All = std::remove_reference_t<
      decltype(at::cuda::cublas_handle_stream_to_workspace())>;
  using Key = decltype(All::map)::key_type;
  using Entries = std::vector<std::pair<Key, at::DataPtr>>;
  struct Kind {
    All* all;
    Entries captured;
    Entries eager;  // while a capture lasts
  };

  Entries takeEntries(All& all) const {
    Entries taken;
    for (auto it = all.map.begin(); it != all.map.end();) {
      if (std::get<1>(it->first) == stream_.stream()) {
        taken.emplace_back(it->first, std::move(it->second));
        it = all.map.erase(it);
      } else {
        ++it;
      }
    }
    return taken;
  }

  CUDAStream stream_;
  std::array<Kind, 2> kinds_{
      {{&at::cuda::cublas_handle_stream_to_workspace(), {}, {}},
       {&at::cuda::cublaslt_handle_stream_to_workspace(), {}, {}}}};
};

// ---- graphs -----------------------------------------------------------------

class WarningsOff : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Torch's graph, with the access that rolling back a failed capture needs.
class Graph final : public at::cuda::CUDAGraph {
 public:
  Graph() : CUDAGraph(/*keep_graph=*/true) {}

  bool drawsRandomNumbers() const {
    for (const auto& [state, increment] : captured_generator_states_) {
      if (increment != 0) {
        return true;
      }
    }
    return false;
  }

  // Torch refuses eager random numbers, on any thread, while the generator is
  // marked as capturing. Unmarked, it refuses them inside the capture instead.
  void leaveGeneratorsAlone() {
    for (const auto& item : captured_generator_states_) {
      item.first->capturing_ = false;
    }
  }

  // Undoes capture_begin after a failure. `capture_end` throws before it does
  // any of this; what it leaves would fail every later capture in the pool and
  // every later eager random number.
  void rollBack(cudaStream_t stream) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone) {
      cudaGraph_t partial = nullptr;
      (void)cudaStreamEndCapture(stream, &partial);
      if (partial != nullptr) {
        (void)cudaGraphDestroy(partial);
      }
    }
    (void)cudaGetLastError();
    for (const auto& item : captured_generator_states_) {
      item.first->capturing_ = false;
      item.first->offset_intragraph_ = 0;
    }
    if (capture_ended_ || capture_dev_ == UNDEFINED_DEVICE) {
      return;  // The destructor releases the pools, or they were not entered.
    }
    // Each step may find that the failure came before or after it was due.
    auto* host = at::getHostAllocator(at::kCUDA);
    ignoringErrors(
        [&] { allocator::endAllocateToPool(capture_dev_, mempool_id_); });
    ignoringErrors([&] { host->end_allocate_to_pool(mempool_id_); });
    ignoringErrors(
        [&] { allocator::get()->releasePool(capture_dev_, mempool_id_); });
    ignoringErrors([&] { host->release_pool(mempool_id_); });
  }
};

// "" for device memory.
std::string kindOfHostMemory(const void* pointer) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return "unknown";
  }
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
      return "";
    case cudaMemoryTypeHost:
      return "pinned host";
    default:
      return "pageable host";
  }
}

// Nobody keeps host memory until the replay, and its contents would be those of
// the capture or newer ones, at random.
void refuseHostMemory(const void* pointer, const char* action) {
  if (pointer == nullptr) {
    return;
  }
  const std::string kind = kindOfHostMemory(pointer);
  if (!kind.empty()) {
    throw CaptureError("the capture contains " + std::string(action) + " " +
                       kind + " memory");
  }
}

struct Contents {
  std::int64_t work = 0;  // kernels, copies and fills
  bool needs_launch = false;
};

// Looks through a graph and throws CaptureError where it holds what a replay
// must not do. Nobody but the caller can answer for work on the host.
Contents inspect(cudaGraph_t graph, bool host_work_allowed) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cannot read a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count != 0) {  // An error otherwise.
    check(cudaGraphGetNodes(graph, nodes.data(), &count),
          "cannot read a graph");
  }
  Contents contents;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "cannot read a graph node");
    contents.needs_launch |= type != cudaGraphNodeTypeEmpty;
    switch (type) {
      case cudaGraphNodeTypeKernel:
        ++contents.work;
        break;
      case cudaGraphNodeTypeMemset: {
        ++contents.work;
        cudaMemsetParams fill{};
        check(cudaGraphMemsetNodeGetParams(node, &fill), "cannot read a fill");
        if (!host_work_allowed)
          refuseHostMemory(fill.dst, "a fill of");
        break;
      }
      case cudaGraphNodeTypeMemcpy: {
        ++contents.work;
        cudaMemcpy3DParms copy{};
        check(cudaGraphMemcpyNodeGetParams(node, &copy), "cannot read a copy");
        if (!host_work_allowed) {
          refuseHostMemory(copy.srcPtr.ptr, "a copy from");
          refuseHostMemory(copy.dstPtr.ptr, "a copy to");
        }
        break;
      }
      case cudaGraphNodeTypeGraph: {
        cudaGraph_t child = nullptr;
        check(cudaGraphChildGraphNodeGetGraph(node, &child),
              "cannot read a child graph");
        const Contents inner = inspect(child, host_work_allowed);
        contents.work += inner.work;
        break;
      }
      case cudaGraphNodeTypeHost:
        if (!host_work_allowed)
          throw CaptureError("the capture contains a call of a host function");
        break;
      default:
        break;
    }
  }
  return contents;
}

// The streams that one backend's work has run on.
// Thread safety: any thread; memory may be released on another one.
class StreamsUsed {
 public:
  void add(CUDAStream stream) {
    if (last_ && *last_ == stream)
      return;
    last_ = stream;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::find(all_.begin(), all_.end(), stream) == all_.end())
      all_.push_back(stream);
  }

  // Keeps the memory, once it is freed, from others until all are done.
  void recordOn(const at::DataPtr& memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const CUDAStream stream : all_)
      allocator::recordStream(memory, stream);
  }

 private:
  std::optional<CUDAStream> last_;  // only for the backend's own thread
  std::mutex mutex_;
  std::vector<CUDAStream> all_;
};

// Slot memory on its way back to the allocator.
struct SlotMemory {
  at::DataPtr memory;
  std::shared_ptr<StreamsUsed> streams;

  static void release(void* context) {
    const std::unique_ptr<SlotMemory> slot(static_cast<SlotMemory*>(context));
    ignoringErrors([&] { slot->streams->recordOn(slot->memory); });
  }
};

// What the backend's graphs need for as long as one of them lives.
struct Resources {
  explicit Resources(c10::Device where)
      : device(where), stream(where.index()) {}
  ~Resources() {
    // Replays may be under way; the stream's next owner comes after them.
    ignoringErrors([&] {
      const c10::cuda::CUDAGuard guard(device);
      order.enter(stream.get());
    });
  }
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  Workspaces& workspacesOf(CUDAStream capturing) {
    for (const auto& known : workspaces) {
      if (known->stream() == capturing)
        return *known;
    }
    workspaces.push_back(std::make_unique<Workspaces>(capturing));
    return *workspaces.back();
  }

  c10::Device device;
  OwnStream stream;
  std::vector<std::unique_ptr<Workspaces>> workspaces;  // by capturing stream
  StreamOrder order;                                    // of replays and copies
  std::shared_ptr<StreamsUsed> streams = std::make_shared<StreamsUsed>();
};

class CudaGraph final : public CapturedGraph {
 public:
  CudaGraph(std::unique_ptr<Graph> graph, Contents contents,
            std::shared_ptr<Pool> pool, std::shared_ptr<Resources> resources)
      : resources_(std::move(resources)),
        pool_(std::move(pool)),
        graph_(std::move(graph)),
        size_(contents.work),
        exec_(contents.needs_launch ? graph_->raw_cuda_graph_exec() : nullptr),
        draws_(graph_->drawsRandomNumbers()) {}

  ~CudaGraph() override {
    const std::lock_guard<std::recursive_mutex> lock(shared().mutex);
    graph_.reset();
  }

  void replay() override {
    if (exec_ == nullptr) {
      return;
    }
    const c10::cuda::CUDAGuard guard(resources_->device);
    const auto stream =
        c10::cuda::getCurrentCUDAStream(resources_->device.index());
    if (draws_) {
      replayDrawing(stream);
    } else {
      check(cudaGraphLaunch(exec_, stream.stream()), "cannot launch a graph");
    }
    resources_->order.leave(stream);
  }

  std::int64_t size() const override { return size_; }
  bool isEmpty() const override { return exec_ == nullptr; }

 private:
  // Torch's replay first sets seed and offset on the current stream.
  void replayDrawing(CUDAStream stream) {
    const std::lock_guard<std::recursive_mutex> lock(shared().mutex);
    shared().order.enter(stream);
    {
      auto generator =
          at::cuda::detail::getDefaultCUDAGenerator(stream.device_index());
      const std::lock_guard<std::mutex> no_draws(generator.mutex());
      graph_->replay();
    }
    shared().order.leave(stream);
  }

  SharedGenerator& shared() const {
    return sharedGenerator(resources_->device.index());
  }

  std::shared_ptr<Resources> resources_;  // outlives graph_
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Graph> graph_;
  std::int64_t size_;
  cudaGraphExec_t exec_;
  bool draws_;
};

// ---- what a failure means ---------------------------------------------------

bool isCaptured(cudaStream_t stream, cudaStreamCaptureStatus status) {
  cudaStreamCaptureStatus actual = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &actual) == cudaSuccess &&
         actual == status;
}

// Whether an exception of a body says that captures cannot hold what it did.
bool isRefusal(const std::exception& error) {
  if (const auto* cuda = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    return cuda->get_error_code() >= cudaErrorStreamCaptureUnsupported &&
           cuda->get_error_code() <= cudaErrorStreamCaptureWrongThread;
  }
  // Torch refuses some calls before CUDA sees them.
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  if (torch_error == nullptr) {
    return false;
  }
  const std::string text = torch_error->what_without_backtrace();
  return text.find("graph capture") != std::string::npos ||
         text.find("is capturing") != std::string::npos ||
         text.find("capture mode") != std::string::npos;
}

// ---- streams of a capture ---------------------------------------------------

// What the next work on a capturing stream would come after.
struct CaptureFront {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  std::vector<cudaGraphNode_t> nodes;

  static CaptureFront of(CUDAStream stream) {
    CaptureFront front;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    if (cudaStreamGetCaptureInfo(stream.stream(), &front.status, &front.id,
                                 nullptr, &nodes, &edges,
                                 &count) != cudaSuccess) {
      (void)cudaGetLastError();
      return {};
    }
    if (front.status == cudaStreamCaptureStatusActive)
      front.nodes.assign(nodes, nodes + count);
    return front;
  }
};

// All nodes that must have run before one of `nodes` may, and these.
std::unordered_set<cudaGraphNode_t> withAncestors(
    std::vector<cudaGraphNode_t> nodes) {
  std::unordered_set<cudaGraphNode_t> found;
  while (!nodes.empty()) {
    cudaGraphNode_t node = nodes.back();
    nodes.pop_back();
    if (!found.insert(node).second)
      continue;
    std::size_t count = 0;
    check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count),
          "cannot read a graph");
    std::vector<cudaGraphNode_t> before(count);
    std::vector<cudaGraphEdgeData> edges(count);
    if (count != 0) {
      check(cudaGraphNodeGetDependencies(node, before.data(), edges.data(),
                                         &count),
            "cannot read a graph");
    }
    nodes.insert(nodes.end(), before.begin(), before.end());
  }
  return found;
}

// Those of `streams` that were forked off the capture on `origin` and have work
// that nothing on `origin` waits for.
std::vector<CUDAStream> findUnjoined(CUDAStream origin,
                                     const std::vector<CUDAStream>& streams) {
  std::vector<CUDAStream> unjoined;
  const CaptureFront front = CaptureFront::of(origin);
  if (front.status != cudaStreamCaptureStatusActive)
    return unjoined;
  const auto joined = withAncestors(front.nodes);
  for (const CUDAStream stream : streams) {
    const CaptureFront other = CaptureFront::of(stream);
    if (other.status != cudaStreamCaptureStatusActive || other.id != front.id)
      continue;
    const bool waited_for =
        std::all_of(other.nodes.begin(), other.nodes.end(),
                    [&](auto node) { return joined.count(node) != 0; });
    if (!waited_for)
      unjoined.push_back(stream);
  }
  return unjoined;
}

std::string describeUnjoined(const std::vector<CUDAStream>& streams) {
  std::string text =
      "work on a side stream was forked off the capture and not joined again";
  if (!streams.empty()) {
    text += streams.size() == 1 ? ": stream " : ": streams ";
    for (std::size_t i = 0; i < streams.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(streams[i].id());
    }
  }
  return text +
         "; record an event there and make the capturing stream wait for it "
         "before the capture, or the part of it up to a break, ends";
}

// Whether the driver, not torch's allocator, found no memory.
bool isOutOfMemory(const std::exception& error) {
  const auto* cuda = dynamic_cast<const c10::AcceleratorError*>(&error);
  return cuda != nullptr && cuda->get_error_code() == cudaErrorMemoryAllocation;
}

// ---- the backend ------------------------------------------------------------

// A copy that is worth the driver's own method. Up to here its call takes the
// host longer than a launch (5.8 us against 4.6 us on an H200).
constexpr std::size_t kLongCopy = 1 << 20;

class CudaBackend final : public CaptureBackend {
 public:
  CudaBackend(c10::Device device, std::optional<c10::MempoolId_t> pool)
      : device_(device), named_pool_(pool.has_value()) {
    const c10::cuda::CUDAGuard guard(device);
    resources_ = std::make_shared<Resources>(device);
    pool_ = std::make_shared<Pool>(device.index(), pool ? *pool : newPoolId());
  }

  c10::Device device() const override { return device_; }

  // On the caller's stream, since the results live on there: memory belongs to
  // the stream it was allocated on. What operators make at first use (handles,
  // plans, modules) they keep by thread or by device; only workspaces go by
  // stream, and those a capture may make.
  void warmUp(const std::function<void()>& body) override {
    const c10::cuda::CUDAGuard guard(device_);
    body();
  }

  std::unique_ptr<OpenCapture> beginCapture(const CaptureHints& hints) override;

  // A device-wide wait would invalidate another thread's capture.
  void synchronize() override {
    const std::lock_guard<std::recursive_mutex> turn(
        sharedGenerator(device_.index()).mutex);
    const c10::cuda::CUDAGuard guard(device_);
    check(cudaDeviceSynchronize(), "work on the device has failed");
  }

  void waitForReplays() override {
    const c10::cuda::CUDAGuard guard(device_);
    resources_->order.wait();
  }

  void copy(const std::vector<CopyOperation>& operations) override {
    if (operations.empty()) {
      return;
    }
    const c10::cuda::CUDAGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    const CopyOperation& only = operations.front();
    if (operations.size() == 1 && only.bytes >= kLongCopy) {
      check(cudaMemcpyAsync(only.destination, only.source, only.bytes,
                            cudaMemcpyDeviceToDevice, stream.stream()),
            "cannot copy a tensor");
    } else {
      std::array<BatchedCopy, kMostBatchedCopies> batch;
      std::size_t next = 0;
      while (next < operations.size()) {
        const std::size_t count =
            std::min(batch.size(), operations.size() - next);
        for (std::size_t i = 0; i < count; ++i, ++next) {
          const CopyOperation& operation = operations[next];
          batch[i] = {operation.destination, operation.source, operation.bytes};
        }
        check(launchBatchedCopy(batch.data(), static_cast<int>(count),
                                stream.stream()),
              "cannot copy tensors");
      }
    }
    resources_->order.leave(stream);
  }

  at::DataPtr allocate(std::size_t bytes) override {
    faultPoint(FaultKind::kAllocation);
    const c10::cuda::CUDAGuard guard(device_);
    return allocator::get()->allocate(bytes);
  }

  at::DataPtr allocateSlot(std::size_t bytes) override {
    auto slot = std::make_unique<SlotMemory>();
    slot->memory = allocate(bytes);
    slot->streams = resources_->streams;
    void* data = slot->memory.get();
    return {data, slot.release(), &SlotMemory::release, device_};
  }

  void enterStream() override {
    const c10::cuda::CUDAGuard guard(device_);
    const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
    resources_->streams->add(stream);
    resources_->order.enter(stream);
  }

  // The allocator takes memory back from no pool that is in use, so a pool is
  // left to the graphs that it has.
  void releaseUnused() override {
    ignoringErrors([&] {
      const c10::cuda::CUDAGuard guard(device_);
      abandonPool();
      allocator::emptyCache();
    });
  }

  std::size_t poolBytes() const override {
    std::size_t bytes = pool_->bytes();
    for (const std::weak_ptr<Pool>& abandoned : abandoned_) {
      if (const auto pool = abandoned.lock()) {
        bytes += pool->bytes();
      }
    }
    return bytes;
  }

 private:
  friend class CudaCapture;

  // The pool of a failed capture is not used again, unless it has a name that
  // others use. Older graphs keep it.
  void abandonPool() {
    if (!named_pool_)
      replacePool();
  }

  void replacePool() {
    auto pool = std::make_shared<Pool>(device_.index(), newPoolId());
    abandoned_.erase(
        std::remove_if(abandoned_.begin(), abandoned_.end(),
                       [](const auto& pool) { return pool.expired(); }),
        abandoned_.end());
    abandoned_.push_back(pool_);
    pool_ = std::move(pool);
  }

  c10::Device device_;
  bool named_pool_;
  std::shared_ptr<Resources> resources_;
  std::shared_ptr<Pool> pool_;
  std::vector<std::weak_ptr<Pool>> abandoned_;
  Event boundary_;  // between the caller's stream and the captures'
};

cudaStreamCaptureMode toCuda(CaptureErrorMode mode) {
  switch (mode) {
    case CaptureErrorMode::kGlobal:
      return cudaStreamCaptureModeGlobal;
    case CaptureErrorMode::kRelaxed:
      return cudaStreamCaptureModeRelaxed;
    case CaptureErrorMode::kThreadLocal:
      break;
  }
  return cudaStreamCaptureModeThreadLocal;
}

// No device-wide synchronization comes first. It would keep the capture from
// disturbing work under way, or the reverse; but nothing shares the stream, in
// thread-local mode other threads are neither restricted nor able to break the
// capture by allocating, and the events below order the little work that
// surrounds it.
class CudaCapture final : public OpenCapture {
 public:
  CudaCapture(CudaBackend& backend, const CaptureHints& hints)
      : backend_(backend),
        host_work_allowed_(hints.host_work_allowed),
        device_guard_(backend.device_),
        caller_(c10::cuda::getCurrentCUDAStream(backend.device_.index())),
        stream_(hints.stream ? CUDAStream(*hints.stream)
                             : backend.resources_->stream.get()),
        workspaces_(backend.resources_->workspacesOf(stream_)) {
    if (isCapturing(backend_.device_))
      throw CaptureError("the caller's stream is being captured already");
    if (stream_.device() != backend_.device_) {
      throw CaptureError("the stream to capture on belongs to " +
                         stream_.device().str() + ", the capture to " +
                         backend_.device_.str());
    }
    backend_.enterStream();
    turn_ = std::unique_lock<std::recursive_mutex>(shared().mutex);
    if (!isCaptured(stream_.stream(), cudaStreamCaptureStatusNone)) {
      throw CaptureError("the stream to capture on is being captured already");
    }
    backend_.boundary_.record(caller_);
    backend_.boundary_.holdBack(stream_);
    shared().order.enter(stream_);
    workspaces_.beginCapture();
    stream_guard_.emplace(stream_);
    try {
      begin(hints);
    } catch (const c10::OutOfMemoryError&) {
      close();
      throw;
    } catch (const std::exception& error) {
      const std::string text = firstLine(error);
      close();
      throw CaptureError("cannot begin a capture: " + text);
    }
  }

  ~CudaCapture() override {
    if (stream_guard_)
      close();
  }

  std::unique_ptr<CapturedGraph> finish() override {
    Contents contents;
    try {
      endCapture();
      contents = inspect(graph_->raw_cuda_graph(), host_work_allowed_);
      if (contents.needs_launch) {
        graph_->instantiate();
        check(cudaGraphUpload(graph_->raw_cuda_graph_exec(), stream_.stream()),
              "cannot upload a graph");
      }
    } catch (const c10::OutOfMemoryError&) {
      close();
      throw;
    } catch (const std::exception& error) {
      (void)cudaGetLastError();
      const std::string text = firstLine(error);
      const bool out_of_memory = isOutOfMemory(error);
      close();
      TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, text);
      throw CaptureError(text);
    }
    auto result = std::make_unique<CudaGraph>(
        std::move(graph_), contents, backend_.pool_, backend_.resources_);
    close();
    return result;
  }

  bool isRefusal(const std::exception& error) const override {
    return isCaptured(stream_.stream(), cudaStreamCaptureStatusInvalidated) ||
           pcg::isRefusal(error);
  }

  void noteOperator() override {
    const auto current =
        c10::cuda::getCurrentCUDAStream(stream_.device_index());
    if (current != stream_ &&
        std::find(side_streams_.begin(), side_streams_.end(), current) ==
            side_streams_.end()) {
      side_streams_.push_back(current);
      backend_.resources_->workspacesOf(current).beginCapture();
    }
  }

 private:
  SharedGenerator& shared() const {
    return sharedGenerator(backend_.device_.index());
  }

  void begin(const CaptureHints& hints) {
    faultPoint(FaultKind::kCaptureBegin);
    auto generator =
        at::cuda::detail::getDefaultCUDAGenerator(stream_.device_index());
    const std::lock_guard<std::mutex> no_draws(generator.mutex());
    graph_->capture_begin(backend_.pool_->id(), toCuda(hints.error_mode));
    if (!hints.draws_random)
      graph_->leaveGeneratorsAlone();
  }

  void endCapture() {
    faultPoint(FaultKind::kCaptureEnd);
    if (c10::cuda::getCurrentCUDAStream(stream_.device_index()) != stream_) {
      throw CaptureError(
          "another stream is current than the one that is captured on; leave "
          "the stream guard before the capture, or the part of it up to a "
          "break, ends");
    }
    const auto unjoined = findUnjoined(stream_, side_streams_);
    try {
      WarningsOff silent;  // An empty capture is no cause for one.
      const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
      graph_->capture_end();
    } catch (const c10::AcceleratorError& error) {
      if (error.get_error_code() == cudaErrorStreamCaptureUnjoined)
        throw CaptureError(describeUnjoined(unjoined));
      throw;
    }
    ended_ = true;
  }

  // Leaves everything as it was before, the capture rolled back unless it was
  // finished.
  void close() noexcept {
    if (graph_ && !ended_) {
      graph_->rollBack(stream_.stream());
      ignoringErrors([&] { backend_.abandonPool(); });
    }
    graph_.reset();
    stream_guard_.reset();
    ignoringErrors([&] {
      workspaces_.endCapture();
      for (const CUDAStream side : side_streams_)
        backend_.resources_->workspacesOf(side).endCapture();
    });
    ignoringErrors([&] {
      shared().order.leave(stream_);
      backend_.boundary_.record(stream_);
      backend_.boundary_.holdBack(caller_);
    });
    turn_.unlock();
  }

  CudaBackend& backend_;
  bool host_work_allowed_;
  c10::cuda::CUDAGuard device_guard_;
  CUDAStream caller_;
  CUDAStream stream_;
  Workspaces& workspaces_;
  std::unique_lock<std::recursive_mutex> turn_;
  std::optional<c10::cuda::CUDAStreamGuard> stream_guard_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  bool ended_ = false;
  std::vector<CUDAStream> side_streams_;
};

std::unique_ptr<OpenCapture> CudaBackend::beginCapture(
    const CaptureHints& hints) {
  return std::make_unique<CudaCapture>(*this, hints);
}

// Why captures are impossible on a device; "" where they are not.
std::string whyUnusable(c10::Device device) {
  if (!device.is_cuda()) {
    return "it is no CUDA device";
  }
  try {
    const c10::DeviceIndex count = c10::cuda::device_count_ensure_non_zero();
    if (device.index() >= count) {
      return "there are only " + std::to_string(count) + " GPUs";
    }
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  } catch (const std::exception& error) {
    return firstLine(error);
  }
  if (allocator::get()->name() != "native") {
    return "captures need torch's native allocator, not " +
           allocator::get()->name();
  }
  return "";
}

}  // namespace

bool isCapturing(c10::Device device) {
  if (!device.is_cuda()) {
    return device.is_cpu() && isCapturingOnHost();
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  if (cudaStreamIsCapturing(stream.stream(), &status) != cudaSuccess) {
    (void)cudaGetLastError();
    return true;  // The legacy stream, while a blocking stream is captured.
  }
  return status != cudaStreamCaptureStatusNone;
}

c10::MempoolId_t newPoolId() {
  return at::cuda::graph_pool_handle();
}

std::unique_ptr<CaptureBackend> makeCudaBackend(
    c10::Device device, std::optional<c10::MempoolId_t> pool) {
  const std::string why = whyUnusable(device);
  if (!why.empty()) {
    throw std::runtime_error("cannot capture on " + device.str() + ": " + why);
  }
  if (!device.has_index()) {
    device.set_index(c10::cuda::current_device());
  }
  return std::make_unique<CudaBackend>(device, pool);
}

}  // namespace pcg
