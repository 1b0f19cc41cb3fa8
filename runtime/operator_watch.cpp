#include "runtime/operator_watch.h"

#include <utility>

#include "runtime/nested_values.h"

namespace pcg {
namespace {

// Callbacks are plain functions.
thread_local OperatorWatch* watching = nullptr;

template <typename Values, typename Visit>
void forEachStorage(const Values& values, const Visit& visit) {
  for (const c10::IValue& value : values) {
    forEachTensor(value, [&](const at::Tensor& tensor) {
      if (tensor.has_storage())
        visit(tensor.storage());
    });
  }
}

}  // namespace

bool StoragesUsed::contains(const c10::Storage& storage) const {
  const auto* address = storage.unsafeGetStorageImpl();
  return made_here_.count(address) != 0 || outside_known_.count(address) != 0;
}

void StoragesUsed::read(const c10::Storage& storage) {
  if (contains(storage))
    return;
  outside_known_.insert(storage.unsafeGetStorageImpl());
  outside_.push_back(storage);
}

void StoragesUsed::made(const c10::Storage& storage) {
  if (contains(storage))
    return;
  made_here_.emplace(storage.unsafeGetStorageImpl(),
                     storage.getWeakStorageImpl());
}

OperatorWatch::OperatorWatch(StoragesUsed& used,
                             std::function<void()> on_operator)
    : used_(used), on_operator_(std::move(on_operator)) {
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function)
              -> std::unique_ptr<at::ObserverContext> {
            if (watching == nullptr)
              return nullptr;
            watching->on_operator_();
            forEachStorage(function.inputs(), [](const c10::Storage& storage) {
              watching->used_.read(storage);
            });
            return nullptr;
          },
          [](const at::RecordFunction& function, at::ObserverContext*) {
            if (watching == nullptr)
              return;
            const auto& outputs = function.outputs();
            forEachStorage(outputs, [](const c10::Storage& storage) {
              watching->used_.made(storage);
            });
          })
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

OperatorWatch::~OperatorWatch() {
  pause();
  at::removeCallback(callback_);
}

void OperatorWatch::resume() {
  watching = this;
}

void OperatorWatch::pause() {
  watching = nullptr;
}

}  // namespace pcg
