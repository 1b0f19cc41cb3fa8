#include "runtime/key_constants.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <utility>

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

}  // namespace

bool KeyConstants::Recorder::recall(const Node&, std::vector<IValue>&) {
  return false;
}

void KeyConstants::Recorder::keep(const Node& node,
                                  const std::vector<IValue>& results) {
  if (candidates_.count(&node) == 0)
    return;
  const at::Tensor& tensor = results[0].toTensor();
  std::optional<std::uint32_t> version;
  if (tensor.defined() && !tensor.is_inference())
    version = static_cast<std::uint32_t>(tensor._version());
  kept_[&node].push_back({tensor, version});
}

bool KeyConstants::Presets::recall(const Node& node,
                                   std::vector<IValue>& results) {
  const auto it = constants_.tensors_.find(&node);
  if (it == constants_.tensors_.end())
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
    const bool unwritten =
        std::all_of(made.begin(), made.end(), [&](const Kept& kept) {
          if (!isPlain(kept.tensor))
            return false;
          return kept.version
                     ? *kept.version ==
                           static_cast<std::uint32_t>(kept.tensor._version())
                     : never_written;
        });
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
    const bool on_device =
        std::all_of(made.begin(), made.end(), [&](const Kept& kept) {
          return kept.tensor.device() == backend.device();
        });
    const bool on_host =
        std::none_of(made.begin(), made.end(), [&](const Kept& kept) {
          return kept.tensor.device() == backend.device();
        });
    if (on_host)
      settled.push_back(node);
    if (!on_device)
      continue;
    const bool large =
        std::any_of(made.begin(), made.end(), [](const Kept& kept) {
          return extentBytes(kept.tensor) > kLargeBytes;
        });
    if (large && !isCulprit(node))
      continue;
    settled.push_back(node);
    for (const Kept& kept : made) {
      const std::size_t bytes = extentBytes(kept.tensor);
      const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                                 backend.allocate(bytes), nullptr, false);
      TensorLayout layout = TensorLayout::of(kept.tensor);
      layout.offset = 0;
      at::Tensor copy = tensorOver(storage, layout);
      if (kept.tensor.unsafeGetTensorImpl()->is_wrapped_number())
        copy.unsafeGetTensorImpl()->set_wrapped_number(true);
      if (bytes != 0) {
        copies.push_back(
            {storage.mutable_data(), kept.tensor.const_data_ptr(), bytes});
      }
      constants.tensors_[node].push_back(std::move(copy));
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
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& entry) {
    return std::any_of(
        entry.second.begin(), entry.second.end(), [&](const auto& constant) {
          return constant.storage().unsafeGetStorageImpl() == storage;
        });
  });
}

void KeyConstants::addTo(std::vector<at::Tensor>& tensors) const {
  for (const auto& [node, made] : tensors_)
    tensors.insert(tensors.end(), made.begin(), made.end());
}

}  // namespace pcg
