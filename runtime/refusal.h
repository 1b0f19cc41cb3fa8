#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <optional>

#include "passes/capture_safety.h"

namespace c10 {
class OperatorHandle;
}

namespace pcg {

/// Why a capture cannot hold a dispatched operator with these arguments, by the
/// capture-safety table, the operator's tags and the arguments themselves;
/// nullopt where it can, or where only the capture shows.
///
/// The arguments are taken to lie in device memory.
std::optional<CaptureSafety> refusalOf(const c10::OperatorHandle& op,
                                       c10::ArrayRef<c10::IValue> arguments);

/// The same without looking at the table: whether the operator itself, however
/// it was reached, reads a scalar or makes a size from data.
std::optional<CaptureSafety> refusalByTags(const c10::OperatorHandle& op);

/// True for an operator that torch makes of others, whoever asks: it has no
/// work of its own.
bool isComposite(const c10::OperatorHandle& op);

}  // namespace pcg
