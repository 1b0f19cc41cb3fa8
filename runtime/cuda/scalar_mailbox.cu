#include "runtime/cuda/scalar_mailbox.h"

namespace pcg {
namespace {

__global__ void post(const unsigned char* source, unsigned bytes,
                     ScalarMailbox* mailbox, std::uint64_t ticket) {
  for (unsigned i = 0; i < bytes; ++i) mailbox->value[i] = source[i];
  __threadfence_system();
  mailbox->ticket = ticket;
}

}  // namespace

cudaError_t postScalar(const void* source, unsigned bytes,
                       ScalarMailbox* mailbox, std::uint64_t ticket,
                       cudaStream_t stream) {
  post<<<1, 1, 0, stream>>>(static_cast<const unsigned char*>(source), bytes,
                            mailbox, ticket);
  return cudaGetLastError();
}

}  // namespace pcg
