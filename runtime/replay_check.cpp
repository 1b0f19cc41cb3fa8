#include "runtime/replay_check.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

#include "passes/source_location.h"
#include "runtime/key.h"
#include "runtime/nested_values.h"
#include "runtime/segment_definition.h"
#include "runtime/slots.h"

namespace pcg {
namespace {

using c10::IValue;

// Copies of tensors, over copies of their whole storages.
std::vector<IValue> copied(const c10::ArrayRef<IValue>& values) {
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  std::vector<at::Tensor> copies;
  forEachTensor(values, [&](const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    auto [it, inserted] =
        storages.try_emplace(storage.unsafeGetStorageImpl(), c10::Storage());
    if (inserted) {
      const auto bytes = static_cast<std::int64_t>(storage.nbytes());
      const auto options = tensor.options().dtype(at::kByte);
      const at::Tensor whole =
          at::empty({0}, options).set_(storage, 0, {bytes}, {1});
      it->second = whole.clone().storage();
    }
    copies.push_back(tensorOver(it->second, TensorLayout::of(tensor)));
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      copies.back().unsafeGetTensorImpl()->set_wrapped_number(true);
  });
  std::vector<IValue> result;
  std::size_t next = 0;
  for (const IValue& value : values)
    result.push_back(withTensors(value, copies, next));
  return result;
}

bool equalBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type())
    return false;
  const at::Tensor left = a.resolve_conj().resolve_neg().cpu().contiguous();
  const at::Tensor right = b.resolve_conj().resolve_neg().cpu().contiguous();
  return std::memcmp(left.const_data_ptr(), right.const_data_ptr(),
                     left.nbytes()) == 0;
}

bool equalBits(const IValue& a, const IValue& b) {
  std::vector<at::Tensor> left;
  std::vector<at::Tensor> right;
  forEachTensor(a, [&](const at::Tensor& t) { left.push_back(t); });
  forEachTensor(b, [&](const at::Tensor& t) { right.push_back(t); });
  if (left.size() != right.size())
    return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!equalBits(left[i], right[i]))
      return false;
  }
  return true;
}

[[noreturn]] void fail(const SegmentDefinition& segment,
                       const std::string& what) {
  throw std::runtime_error("PCG_VERIFY: segment '" + segment.name +
                           "': " + what +
                           " differs from what the body run eagerly "
                           "gives");
}

}  // namespace

bool verifiesReplays() {
  static const bool verifies = [] {
    const char* word = std::getenv("PCG_VERIFY");
    return word != nullptr && std::strcmp(word, "1") == 0;
  }();
  return verifies;
}

ReplayCheck::ReplayCheck(const SegmentDefinition& segment,
                         const c10::ArrayRef<IValue>& arguments)
    : segment_(segment), arguments_(copied(arguments)) {
  expected_ = segment.program->run(arguments_);
}

void ReplayCheck::compare(const std::vector<IValue>& results,
                          const c10::ArrayRef<IValue>& arguments) const {
  const auto& graph = *segment_.program->graph();
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (!equalBits(expected_[i], results[i])) {
      const auto* output = graph.outputs()[i];
      fail(segment_, "result %" + output->debugName() + " of " +
                         describeNode(*output->node()));
    }
  }
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (!equalBits(arguments_[i], arguments[i])) {
      fail(segment_,
           "argument %" + graph.inputs()[i]->debugName() + " after the call");
    }
  }
}

}  // namespace pcg
