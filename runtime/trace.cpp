#include "runtime/trace.h"

#include <nvtx3/nvToolsExt.h>

namespace pcg {
namespace {

// Never destroyed: ranges may end while the process does.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("pcg");
  return domain;
}

}  // namespace

TraceRange::TraceRange(const char* name) {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  (void)nvtxDomainRangePushEx(domain(), &event);
  if (record_.isActive())
    record_.before(name);
}

TraceRange::~TraceRange() {
  (void)nvtxDomainRangePop(domain());
}

}  // namespace pcg
