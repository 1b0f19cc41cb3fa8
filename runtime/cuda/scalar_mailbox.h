#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pcg {

/// Host memory that a kernel posts one value to. `ticket` is written last.
struct ScalarMailbox {
  unsigned char value[16];
  volatile std::uint64_t ticket;
};

/// Enqueues a kernel that copies `bytes` (at most 16) from device memory at
/// `source` to `mailbox`, which must be host memory that the device can write,
/// and then sets its ticket.
cudaError_t postScalar(const void* source, unsigned bytes,
                       ScalarMailbox* mailbox, std::uint64_t ticket,
                       cudaStream_t stream);

}  // namespace pcg
