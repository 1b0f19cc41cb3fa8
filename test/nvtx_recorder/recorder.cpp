// An NVTX tool that keeps what it is told, for tests in the same process.
#include "test/nvtx_recorder/recorder.h"

#include <nvtx3/nvToolsExt.h>

#include <deque>
#include <mutex>
#include <utility>

namespace pcg::test {
namespace {

struct Recorder {
  std::mutex mutex;
  std::deque<std::string> domains;
  std::vector<std::string> ranges;
};

Recorder& recorder() {
  static auto* recorder = new Recorder;  // Ranges end while the process does.
  return *recorder;
}

nvtxDomainHandle_t createDomain(const char* name) {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().domains.emplace_back(name);
  return reinterpret_cast<nvtxDomainHandle_t>(&recorder().domains.back());
}

int pushRange(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const auto& name = *reinterpret_cast<const std::string*>(domain);
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().ranges.push_back(name + ": " + event->message.ascii);
  return 0;
}

int popRange(nvtxDomainHandle_t) {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().ranges.emplace_back("end");
  return 0;
}

template <typename Function>
void set(NvtxFunctionTable table, std::size_t index, Function function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

std::vector<std::string> takeNvtxRanges() {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  return std::exchange(recorder().ranges, {});
}

}  // namespace pcg::test

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainRangePop) {
    return 0;
  }
  using namespace pcg::test;
  set(table, NVTX_CBID_CORE2_DomainCreateA, &createDomain);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, &pushRange);
  set(table, NVTX_CBID_CORE2_DomainRangePop, &popRange);
  return 1;
}
