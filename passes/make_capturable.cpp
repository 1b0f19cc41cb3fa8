#include "passes/make_capturable.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <optional>

#include "passes/source_location.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace aten = torch::jit::aten;

// Filling checks for overflow where `aten::tensor` rounds to infinity, so only
// values that every floating type holds may be filled in.
constexpr double kLargestHalf = 65504.0;

// A longer literal costs more fills than a break costs.
constexpr std::size_t kMostListElements = 8;

bool isFalse(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isBool() && !constant->toBool();
}

bool isNone(const Value* value) {
  return value->mustBeNone();
}

bool fitsEveryFloat(double value) {
  return !std::isfinite(value) || std::fabs(value) <= kLargestHalf;
}

// Whether `full` with the same dtype argument gives what `tensor` gives.
bool mayFill(const Value* scalar, const Value* dtype) {
  const auto type = scalar->type()->kind();
  const auto constant = torch::jit::toIValue(scalar);
  if (constant) {
    if (constant->isBool())
      return true;
    if (constant->isInt()) {
      const auto value = constant->toInt();
      // Small enough for every integer type, unsigned ones included.
      return isNone(dtype) || (value >= 0 && value <= 127);
    }
    if (constant->isDouble()) {
      const double value = constant->toDouble();
      return fitsEveryFloat(value) &&
             (isNone(dtype) || (value >= 0 && value <= 127));
    }
    return false;
  }
  // With the type left open an int becomes int64 and a bool bool: it fits.
  return isNone(dtype) &&
         (type == c10::TypeKind::IntType || type == c10::TypeKind::BoolType);
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {}

  std::vector<std::string> run() {
    visit(graph_.block());
    return std::move(changes_);
  }

 private:
  void visit(Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it;
      ++it;
      for (Block* inner : node->blocks())
        visit(inner);
      if (node->kind() == aten::tensor && node->inputs().size() == 4) {
        rewriteLiteral(node);
      }
    }
  }

  void rewriteLiteral(Node* node) {
    Value* data = node->input(0);
    if (!isFalse(node->input(3)))
      return;
    torch::jit::WithInsertPoint here(node);
    if (data->type()->kind() == c10::TypeKind::ListType) {
      rewriteList(node);
      return;
    }
    if (!mayFill(data, node->input(1)))
      return;
    if (storesThroughMask(node)) {
      Value* cpu = graph_.insertConstant(IValue(c10::Device(c10::kCPU)));
      cpu->node()->copyMetadata(node);
      replace(node, fill(node, data, cpu),
              "a scalar that is only stored by index is kept on the host, "
              "so that a masked store becomes masked_fill");
      return;
    }
    replace(node, fill(node, data, node->input(2)),
            "a scalar literal is filled in on the device");
  }

  // All uses are `index_put` values. ATen turns a masked store of a CPU scalar
  // into masked_fill, which a graph can hold; stores by other indices are
  // moved to the device by ATen itself, as before.
  static bool storesThroughMask(const Node* node) {
    const Value* output = node->output();
    if (!output->hasUses())
      return false;
    for (const auto& use : output->uses()) {
      const bool stores = (use.user->kind() == aten::index_put_ ||
                           use.user->kind() == aten::index_put) &&
                          use.offset == 2 && isFalse(use.user->input(3));
      if (!stores)
        return false;
      const Node* list = use.user->input(1)->node();
      if (list->kind() != prim::ListConstruct || list->inputs().size() != 1) {
        return false;
      }
    }
    return true;
  }

  void rewriteList(Node* node) {
    Node* list = node->input(0)->node();
    if (list->kind() != prim::ListConstruct || list->inputs().empty() ||
        list->inputs().size() > kMostListElements ||
        list->output()->uses().size() != 1) {
      return;
    }
    std::vector<Value*> elements;
    for (Value* element : list->inputs()) {
      const auto type = element->type()->kind();
      const bool scalar = type == c10::TypeKind::IntType ||
                          type == c10::TypeKind::FloatType ||
                          type == c10::TypeKind::BoolType;
      if (!scalar || !torch::jit::toIValue(element) ||
          !mayFill(element, node->input(1))) {
        return;
      }
    }
    for (Value* element : list->inputs()) {
      elements.push_back(fill(node, element, node->input(2)));
    }
    Node* all =
        graph_.insertNode(graph_.createList(c10::TensorType::get(), elements));
    all->copyMetadata(node);
    Value* zero = graph_.insertConstant(IValue(std::int64_t{0}));
    Node* stack =
        graph_.insertNode(graph_.create(aten::stack, {all->output(), zero}));
    stack->copyMetadata(node);
    replace(node, stack->output(), "a literal list is filled in on the device");
  }

  Value* fill(Node* like, Value* scalar, Value* device) {
    Node* shape = graph_.insertNode(graph_.createList(c10::IntType::get(), {}));
    shape->copyMetadata(like);
    Value* none = graph_.insertConstant(IValue());
    Value* dtype = like->input(1);
    if (scalar->type()->kind() == c10::TypeKind::BoolType) {
      // In a graph a bool is no Scalar.
      if (isNone(dtype)) {
        dtype = graph_.insertConstant(
            IValue(static_cast<std::int64_t>(at::ScalarType::Bool)));
      }
      scalar = toInt(like, scalar);
    }
    Node* full = graph_.insertNode(graph_.create(
        aten::full, {shape->output(), scalar, dtype, none, device, none}));
    full->copyMetadata(like);
    full->output()->setType(c10::TensorType::get());
    return full->output();
  }

  Value* toInt(Node* like, Value* boolean) {
    if (const auto constant = torch::jit::toIValue(boolean)) {
      return graph_.insertConstant(
          IValue(static_cast<std::int64_t>(constant->toBool())));
    }
    Node* convert = graph_.insertNode(graph_.create(aten::Int, {boolean}));
    convert->copyMetadata(like);
    convert->output()->setType(c10::IntType::get());
    return convert->output();
  }

  void replace(Node* node, Value* by, const std::string& sentence) {
    by->setType(node->output()->type());
    node->output()->replaceAllUsesWith(by);
    changes_.push_back(describeNode(*node) + ": " + sentence);
    node->destroy();
  }

  Graph& graph_;
  std::vector<std::string> changes_;
};

}  // namespace

std::vector<std::string> makeCapturable(Graph& graph) {
  return Rewriter(graph).run();
}

}  // namespace pcg
