#include "test/benchmark/synthetic_models.h"

#include <ATen/ops/ones.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace pcg::test {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = torch::jit::aten;
namespace prim = torch::jit::prim;

constexpr std::int64_t kNestDepth = 32;

/// A graph under construction, with `%self` and the tensor `%x`.
class Builder {
 public:
  explicit Builder(const Module& module)
      : graph_(std::make_shared<Graph>()),
        self_(graph_->addInput("self")),
        x_(graph_->addInput("x")) {
    self_->setType(module.type());
    one_ = graph_->insertConstant(std::int64_t{1});
    zero_ = graph_->insertConstant(std::int64_t{0});
    true_ = graph_->insertConstant(true);
  }

  Value* x() const { return x_; }
  Value* zero() const { return zero_; }
  Value* one() const { return one_; }
  Graph& graph() { return *graph_; }

  Value* make(c10::Symbol kind, std::vector<Value*> inputs,
              const c10::TypePtr& type = c10::TensorType::get()) {
    Node* node = graph_->insertNode(graph_->create(kind, inputs));
    node->output()->setType(type);
    return node->output();
  }

  Value* relu(Value* input) { return make(aten::relu, {input}); }
  Value* tanh(Value* input) { return make(aten::tanh, {input}); }
  Value* mul(Value* a, Value* b) { return make(aten::mul, {a, b}); }
  Value* write(Value* target) { return make(aten::add_, {target, one_, one_}); }
  Value* read(Value* tensor) {
    return make(aten::item, {tensor}, c10::NumberType::get());
  }
  Value* readBool(Value* tensor) {
    return make(aten::Bool, {tensor}, c10::BoolType::get());
  }
  Value* list(const std::vector<Value*>& elements) {
    return graph_
        ->insertNode(graph_->createList(c10::TensorType::get(), elements))
        ->output();
  }
  Value* stack(Value* list) { return make(aten::stack, {list, zero_}); }

  /// A branch whose sides are `inner(side)` and the value as it was.
  template <typename Inner>
  Value* branch(Value* predicate, Value* value, const Inner& inner) {
    Node* node = graph_->insertNode(graph_->create(prim::If, {predicate}));
    Block* taken = node->addBlock();
    node->addBlock()->registerOutput(value);
    const torch::jit::WithInsertPoint here(taken);
    taken->registerOutput(inner(value));
    return node->output()->setType(value->type());
  }

  /// A loop of `trips` turns around `inner(carried value)`.
  template <typename Inner>
  Value* loop(Value* trips, Value* value, const Inner& inner) {
    Node* node =
        graph_->insertNode(graph_->create(prim::Loop, {trips, true_, value}));
    Block* body = node->addBlock();
    body->addInput()->setType(c10::IntType::get());
    Value* carried = body->addInput()->setType(value->type());
    const torch::jit::WithInsertPoint here(body);
    Value* next = inner(carried);
    body->registerOutput(true_);
    body->registerOutput(next);
    return node->output()->setType(value->type());
  }

  /// Makes what was built the module's `forward`.
  Module finish(Module module, Value* result) {
    graph_->registerOutput(result);
    torch::jit::Function* method =
        module._ivalue()->compilation_unit()->create_function(
            c10::QualifiedName(*module.type()->name(), "forward"), graph_);
    method->setSchema(
        c10::FunctionSchema("forward", "",
                            {c10::Argument("self", module.type()),
                             c10::Argument("x", c10::TensorType::get())},
                            {c10::Argument("", result->type())}));
    module.type()->addMethod(method);
    return module;
  }

 private:
  std::shared_ptr<Graph> graph_;
  Value* self_;
  Value* x_;
  Value* zero_;
  Value* one_;
  Value* true_;
};

Module emptyModule() {
  return Module("Synthetic");
}

Module makeChain(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* value = b.x();
  for (std::int64_t i = 0; i < nodes; ++i) {
    value = i % 2 == 0 ? b.relu(value) : b.tanh(value);
  }
  return b.finish(module, value);
}

Module makeWide(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* root = b.relu(b.x());
  std::vector<Value*> first;
  for (std::int64_t i = 0; i < nodes / 2; ++i)
    first.push_back(b.tanh(root));
  Value* scale = b.read(root);
  std::vector<Value*> second;
  for (Value* value : first)
    second.push_back(b.mul(value, root));
  return b.finish(module, b.mul(b.stack(b.list(second)), scale));
}

// Each level: three nodes of its own and the branch or loop around the rest.
template <typename Branch, typename Loop>
Value* nest(Builder& b, Value* value, std::int64_t depth, const Branch& branch,
            const Loop& loop) {
  value = b.tanh(b.relu(value));
  if (depth == 0)
    return value;
  const auto inner = [&](Value* inside) {
    return nest(b, inside, depth - 1, branch, loop);
  };
  return depth % 2 == 0 ? branch(value, inner) : loop(value, inner);
}

Module makeHostNest(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* value = b.x();
  for (std::int64_t i = 0; i < nodes / (kNestDepth * 4); ++i) {
    Value* rank = b.make(aten::dim, {value}, c10::IntType::get());
    Value* flat = b.make(aten::eq, {rank, b.one()}, c10::BoolType::get());
    value = nest(
        b, value, kNestDepth,
        [&](Value* at, const auto& inner) { return b.branch(flat, at, inner); },
        [&](Value* at, const auto& inner) { return b.loop(rank, at, inner); });
  }
  return b.finish(module, value);
}

Value* tensorNest(Builder& b, Value* value, std::int64_t depth) {
  return nest(
      b, value, depth,
      [&](Value* at, const auto& inner) {
        return b.branch(b.readBool(at), at, inner);
      },
      [&](Value* at, const auto& inner) {
        Value* trips = b.make(aten::Int, {at}, c10::IntType::get());
        return b.loop(trips, at, inner);
      });
}

Module makeTensorNest(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* value = b.x();
  for (std::int64_t i = 0; i < nodes / (kNestDepth * 4); ++i) {
    value = tensorNest(b, value, kNestDepth);
  }
  return b.finish(module, value);
}

Module makeInPlace(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* value = b.relu(b.x());
  for (std::int64_t i = 0; i < nodes; ++i)
    value = b.write(value);
  return b.finish(module, value);
}

Module makeInPlaceViews(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* value = b.relu(b.x());
  for (std::int64_t i = 0; i < nodes / 2; ++i) {
    b.write(b.make(aten::select, {value, b.zero(), b.zero()}));
  }
  return b.finish(module, value);
}

Module makeAppend(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  Value* list = b.list({});
  Value* value = b.x();
  for (std::int64_t i = 0; i < nodes / 2; ++i) {
    value = b.relu(value);
    b.make(aten::append, {list, value}, list->type());
  }
  return b.finish(module, b.stack(list));
}

// Lists of their own for every eight nodes, used behind a host read.
Module makeLists(std::int64_t nodes) {
  const Module module = emptyModule();
  Builder b(module);
  std::vector<Value*> lists;
  Value* value = b.x();
  for (std::int64_t i = 0; i < nodes / 8; ++i) {
    lists.push_back(b.list({value}));
    for (int j = 0; j < 2; ++j) {
      value = b.relu(value);
      b.make(aten::append, {lists.back(), value}, lists.back()->type());
    }
  }
  Value* scale = b.read(value);
  std::vector<Value*> stacked;
  for (Value* list : lists)
    stacked.push_back(b.stack(list));
  return b.finish(module, b.mul(b.stack(b.list(stacked)), scale));
}

Module makeBreaks(std::int64_t nodes) {
  constexpr std::int64_t kPeriod = 8;
  const Module module = emptyModule();
  Builder b(module);
  Value* value = b.x();
  for (std::int64_t i = 0; i < nodes / kPeriod; ++i) {
    Value* scale = b.read(value);
    for (std::int64_t j = 0; j < kPeriod - 2; ++j)
      value = b.relu(value);
    value = b.mul(value, scale);
  }
  return b.finish(module, value);
}

Module makeSubmodules(std::int64_t nodes) {
  Module layer("Layer");
  layer.register_parameter("weight", at::ones({1}), false);
  layer.register_parameter("bias", at::ones({1}), false);
  layer.define(R"(
def forward(self, x):
    return torch.addcmul(self.bias, x, self.weight)
)");
  Module module("Synthetic");
  const std::int64_t count = nodes / 4;
  for (std::int64_t i = 0; i < count; ++i) {
    const Module copy(layer._ivalue()->copy());
    copy._ivalue()->setSlot(0, at::ones({1}));
    copy._ivalue()->setSlot(1, at::ones({1}));
    module.register_module("layer" + std::to_string(i), copy);
  }
  Builder b(module);
  Value* self = b.graph().inputs()[0];
  Value* value = b.x();
  for (std::int64_t i = 0; i < count; ++i) {
    Value* submodule = b.graph()
                           .insertNode(b.graph().createGetAttr(
                               self, "layer" + std::to_string(i)))
                           ->output();
    Node* call = b.graph().insertNode(
        b.graph().create(prim::CallMethod, {submodule, value}));
    call->s_(torch::jit::attr::name, "forward");
    value = call->output();
  }
  return b.finish(module, value);
}

}  // namespace

const std::vector<SyntheticShape>& syntheticShapes() {
  static const std::vector<SyntheticShape> shapes = {
      {"chain", makeChain},        {"wide", makeWide},
      {"host-nest", makeHostNest}, {"tensor-nest", makeTensorNest},
      {"in-place", makeInPlace},   {"in-place-views", makeInPlaceViews},
      {"append", makeAppend},      {"lists", makeLists},
      {"breaks", makeBreaks},      {"submodules", makeSubmodules},
  };
  return shapes;
}

Module makeNestedModel(std::int64_t depth) {
  const Module module = emptyModule();
  Builder b(module);
  return b.finish(module, tensorNest(b, b.x(), depth));
}

}  // namespace pcg::test
