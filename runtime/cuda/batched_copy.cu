#include <cstdint>

#include "runtime/cuda/batched_copy.h"

namespace pcg {
namespace {

constexpr unsigned kThreads = 256;

// Bytes that one block copies: four 16-byte words a thread, which are in
// flight together.
constexpr std::size_t kBlockBytes = 16 * 4 * kThreads;

// Kernel parameters. A launch copies all of them, so few copies get a small
// set.
template <int kCapacity>
struct Copies {
  BatchedCopy copies[kCapacity];
  unsigned first_block[kCapacity];
  int count;
};
constexpr int kFewCopies = 16;
static_assert(sizeof(Copies<kMostBatchedCopies>) <= 4096,
              "kernel parameters hold 4 KB");

// One block's share of a copy, in words as wide as both ends are aligned for;
// returns the bytes done. The rest is shorter than a word.
template <typename Word>
__device__ std::size_t copyWords(unsigned char* destination,
                                 const unsigned char* source,
                                 std::size_t bytes) {
  const auto words = static_cast<unsigned>(bytes / sizeof(Word));
  auto* to = reinterpret_cast<Word*>(destination);
  const auto* from = reinterpret_cast<const Word*>(source);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < words; i += kThreads) {
    to[i] = from[i];
  }
  return words * sizeof(Word);
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    copyAll(const __grid_constant__ Copies<kCapacity> all) {
  // The last copy that starts at or before this block.
  int low = 0;
  int high = all.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (all.first_block[middle] <= blockIdx.x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const BatchedCopy copy = all.copies[low];
  const std::size_t begin = kBlockBytes * (blockIdx.x - all.first_block[low]);
  const std::size_t bytes =
      copy.bytes - begin < kBlockBytes ? copy.bytes - begin : kBlockBytes;
  auto* destination = static_cast<unsigned char*>(copy.destination) + begin;
  const auto* source = static_cast<const unsigned char*>(copy.source) + begin;

  const auto alignment = reinterpret_cast<std::uintptr_t>(destination) |
                         reinterpret_cast<std::uintptr_t>(source);
  std::size_t done = 0;
  if (alignment % 16 == 0) {
    done = copyWords<uint4>(destination, source, bytes);
  } else if (alignment % 4 == 0) {
    done = copyWords<unsigned>(destination, source, bytes);
  }
  copyWords<unsigned char>(destination + done, source + done, bytes - done);
}

template <int kCapacity>
cudaError_t launch(const BatchedCopy* copies, int count, cudaStream_t stream) {
  Copies<kCapacity> all;
  all.count = 0;
  unsigned blocks = 0;
  for (int i = 0; i < count; ++i) {
    if (copies[i].bytes == 0) {
      continue;
    }
    all.copies[all.count] = copies[i];
    all.first_block[all.count] = blocks;
    ++all.count;
    blocks += static_cast<unsigned>((copies[i].bytes + kBlockBytes - 1) /
                                    kBlockBytes);
  }
  if (all.count == 0) {
    return cudaSuccess;
  }
  copyAll<kCapacity><<<blocks, kThreads, 0, stream>>>(all);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchBatchedCopy(const BatchedCopy* copies, int count,
                              cudaStream_t stream) {
  return count <= kFewCopies
             ? launch<kFewCopies>(copies, count, stream)
             : launch<kMostBatchedCopies>(copies, count, stream);
}

}  // namespace pcg
