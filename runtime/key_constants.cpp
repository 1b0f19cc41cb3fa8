#include "runtime/key_constants.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "runtime/key.h"
#include "runtime/nested_values.h"
#include "runtime/slots.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Node;

// Above this a tensor is cheaper to make in each replay than to hold on to.
constexpr std::size_t kLargeBytes = std::size_t{4} << 20;

bool isPlain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided &&
         !tensor.is_quantized() && !tensor.is_nested() &&
         !tensor.requires_grad();
}

std::optional<std::uint32_t> versionOf(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference())
    return std::nullopt;
  return static_cast<std::uint32_t>(tensor._version());
}

bool isUnwritten(const KeyConstants::Kept& kept, bool never_written) {
  bool unwritten = true;
  std::size_t next = 0;
  forEachTensor(kept.value, [&](const at::Tensor& tensor) {
    const auto& then = kept.versions[next++];
    unwritten &=
        isPlain(tensor) && (then ? then == versionOf(tensor) : never_written);
  });
  return unwritten;
}

// Whether `holds` is true of all tensors.
template <typename Predicate>
bool allTensors(const std::vector<KeyConstants::Kept>& made, Predicate holds) {
  bool all = true;
  for (const KeyConstants::Kept& kept : made) {
    forEachTensor(kept.value,
                  [&](const at::Tensor& tensor) { all &= holds(tensor); });
  }
  return all;
}

}  // namespace

bool KeyConstants::Recorder::recall(const Node&, std::vector<IValue>&) {
  return false;
}

void KeyConstants::Recorder::keep(const Node& node,
                                  const std::vector<IValue>& results) {
  if (candidates_.count(&node) == 0)
    return;
  Kept kept{results[0], {}};
  forEachTensor(kept.value, [&](const at::Tensor& tensor) {
    kept.versions.push_back(versionOf(tensor));
  });
  kept_[&node].push_back(std::move(kept));
}

bool KeyConstants::Presets::recall(const Node& node,
                                   std::vector<IValue>& results) {
  const auto it = constants_.values_.find(&node);
  if (it == constants_.values_.end())
    return false;
  results.assign(1, it->second.at(next_[&node]++));
  return true;
}

void KeyConstants::Presets::keep(const Node&, const std::vector<IValue>&) {}

// The nodes whose results nobody wrote, and that read no others.
std::unordered_set<const Node*> KeyConstants::Recorder::constant() const {
  std::unordered_set<const Node*> nodes;
  for (const auto& [node, made] : kept_) {
    const bool never_written = candidates_.at(node).never_written;
    const bool unwritten = std::all_of(
        made.begin(), made.end(),
        [&](const Kept& kept) { return isUnwritten(kept, never_written); });
    if (unwritten)
      nodes.insert(node);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = nodes.begin(); it != nodes.end();) {
      const auto& sources = candidates_.at(*it).sources;
      const bool reads_others = std::any_of(
          sources.begin(), sources.end(),
          [&](const Node* source) { return nodes.count(source) == 0; });
      it = reads_others ? nodes.erase(it) : std::next(it);
      changed |= reads_others;
    }
  }
  return nodes;
}

namespace {

// A tensor of the same layout in memory of its own; the copy is yet to be made.
at::Tensor copyTo(CaptureBackend& backend, const at::Tensor& tensor,
                  std::vector<CopyOperation>& copies) {
  const std::size_t bytes = extentBytes(tensor);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             backend.allocateSlot(bytes), nullptr, false);
  TensorLayout layout = TensorLayout::of(tensor);
  layout.offset = 0;
  at::Tensor copy = tensorOver(storage, layout);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (bytes != 0) {
    copies.push_back({storage.mutable_data(), tensor.const_data_ptr(), bytes});
  }
  return copy;
}

}  // namespace

KeyConstants KeyConstants::from(Recorder recorder, CaptureBackend& backend,
                                std::vector<Culprit>& culprits) {
  const auto isCulprit = [&](const Node* node) {
    return std::any_of(
        culprits.begin(), culprits.end(),
        [&](const Culprit& culprit) { return culprit.node == node; });
  };
  const std::unordered_set<const Node*> constant = recorder.constant();
  KeyConstants constants;
  std::vector<const Node*> settled;
  std::vector<CopyOperation> copies;
  for (const auto& [node, made] : recorder.kept_) {
    if (constant.count(node) == 0)
      continue;
    // What lies in host memory beside a GPU's segment is made again by the
    // capture: it need not be in a graph, and comes out the same.
    const auto isOnDevice = [&](const at::Tensor& tensor) {
      return tensor.device() == backend.device();
    };
    if (allTensors(made, std::not_fn(isOnDevice)))
      settled.push_back(node);
    if (recorder.candidates_.at(node).glue || !allTensors(made, isOnDevice))
      continue;
    const bool small = allTensors(made, [](const at::Tensor& tensor) {
      return extentBytes(tensor) <= kLargeBytes;
    });
    if (!small && !isCulprit(node))
      continue;
    settled.push_back(node);
    for (const Kept& kept : made) {
      std::vector<at::Tensor> own;
      forEachTensor(kept.value, [&](const at::Tensor& tensor) {
        own.push_back(copyTo(backend, tensor, copies));
      });
      std::size_t next = 0;
      constants.values_[node].push_back(withTensors(kept.value, own, next));
      constants.tensors_.insert(constants.tensors_.end(), own.begin(),
                                own.end());
    }
  }
  backend.enterStream();
  backend.copy(copies);
  culprits.erase(std::remove_if(culprits.begin(), culprits.end(),
                                [&](const Culprit& culprit) {
                                  return std::find(
                                             settled.begin(), settled.end(),
                                             culprit.node) != settled.end();
                                }),
                 culprits.end());
  return constants;
}

bool KeyConstants::holds(const at::Tensor& tensor) const {
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  return std::any_of(
      tensors_.begin(), tensors_.end(), [&](const at::Tensor& constant) {
        return constant.storage().unsafeGetStorageImpl() == storage;
      });
}

void KeyConstants::addTo(std::vector<at::Tensor>& tensors) const {
  tensors.insert(tensors.end(), tensors_.begin(), tensors_.end());
}

}  // namespace pcg
