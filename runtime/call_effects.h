#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pcg {

/// What a call of a segment does besides returning results; the same for all
/// calls of one key.
struct CallEffects {
  std::vector<bool> written;               ///< Of the input tensors.
  std::vector<std::size_t> written_bound;  ///< Of the bound values.
  /// For each list or dict among the outputs that lies in no other one: the
  /// argument (input, then bound value) that it is, if any.
  std::vector<std::optional<std::size_t>> passed;
  bool passes_any = false;
};

/// Watches one eager call for its effects.
/// Thread safety: none.
class EffectsWatch {
 public:
  /// Before the call. `tensors` are those in the inputs; `maybe_written` says
  /// of each whether the body can write it. `arguments` are the inputs, then
  /// the bound values from `bound_begin` on.
  EffectsWatch(std::vector<at::Tensor> tensors, std::vector<bool> maybe_written,
               c10::ArrayRef<c10::IValue> arguments, std::size_t bound_begin);

  /// After the call. Returns null, or in a sentence for the report why no
  /// replay can do the same.
  const char* finish(const std::vector<c10::IValue>& outputs,
                     CallEffects& effects) const;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<bool> maybe_written_;
  std::vector<c10::IValue> bound_;
  std::vector<std::optional<std::uint32_t>> versions_;
  std::vector<std::optional<std::uint32_t>> bound_versions_;
  // Arguments that are a list or dict, else null; and all lists and dicts.
  std::vector<const void*> whole_;
  std::vector<const void*> containers_;
};

}  // namespace pcg
