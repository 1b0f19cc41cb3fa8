#pragma once

#include <string>
#include <vector>

namespace pcg::test {

/// The NVTX ranges begun and ended in named domains since the last call: for
/// each beginning `<domain>: <name>`, for each end `end`. Empty unless the
/// library is the process's NVTX tool (NVTX_INJECTION64_PATH).
/// Thread safety: may be called from any thread.
std::vector<std::string> takeNvtxRanges();

}  // namespace pcg::test
