#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace pcg {

/// The value of a one-element tensor, as `tensor.item()` gives it, errors
/// included.
///
/// For a CUDA tensor a kernel behind the work that makes the value writes it to
/// host memory, and the calling thread watches that memory instead of waiting
/// for the driver to report the stream idle, which comes some microseconds
/// later. Thread safety: any thread may call it.
at::Scalar readScalar(const at::Tensor& tensor);

}  // namespace pcg
