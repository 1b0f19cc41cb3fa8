#include "tools/pcg-opt/ir_printer.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <ostream>
#include <sstream>
#include <string_view>
#include <vector>

namespace pcg::opt {
namespace {

using c10::IValue;
using torch::jit::AttributeKind;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace attr = torch::jit::attr;

// Larger tensors print as <Tensor>, as torch has it.
constexpr std::int64_t kLargestPrintedTensor = 10;

std::string number(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char digits[40];  // NOLINT(modernize-avoid-c-arrays)
  const auto result = std::to_chars(digits, digits + sizeof(digits), value);
  std::string text(digits, result.ptr);
  if (text.find_first_of(".e") == std::string::npos)
    text += '.';
  return text;
}

std::string number(c10::complex<double> value) {
  const std::string imaginary = number(value.imag());
  return number(value.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary +
         "j";
}

std::string stringLiteral(std::string_view text) {
  constexpr std::string_view kCodes = "\a\b\f\n\r\t\v\"\\";
  constexpr std::string_view kNames = "abfnrtv\"\\";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t code = kCodes.find(c);
    if (code != std::string_view::npos) {
      result += '\\';
      result += kNames[code];
    } else if (byte < 0x20 || byte >= 0x7f) {
      result += '\\';
      for (const unsigned shift : {6U, 3U, 0U}) {
        result += static_cast<char>('0' + ((byte >> shift) & 7U));
      }
    } else {
      result += c;
    }
  }
  return result + '"';
}

template <typename Items, typename Print>
void list(std::ostream& out, const Items& items, Print print) {
  const char* separator = "";
  for (const auto& item : items) {
    out << separator;
    print(item);
    separator = ", ";
  }
}

class Printer {
 public:
  std::string print(const Graph& graph) {
    printWhole(graph);
    return out_.str();
  }

  std::string print(const Node& node) {
    printHead(node, nullptr);
    return out_.str();
  }

 private:
  using Groups = std::vector<const Node*>;

  void printWhole(const Graph& graph) {
    out_ << "graph(";
    const char* separator = "";
    for (const Value* input : graph.inputs()) {
      out_ << separator << printValue(*input);
      separator = ",\n      ";
    }
    out_ << "):\n";
    Groups groups;
    for (const Node* node : graph.nodes())
      printTree(*node, 1, groups);
    out_ << "  return (";
    printNames(graph.outputs());
    out_ << ")\n";
    for (std::size_t i = 0; i < groups.size(); ++i) {
      out_ << "with " << groups[i]->kind().toQualString() << '_' << i << " = ";
      printWhole(*groups[i]->g(attr::Subgraph));
    }
  }

  void printTree(const Node& node, std::size_t level, Groups& groups) {
    const std::string indent(2 * level, ' ');
    out_ << indent;
    printHead(node, &groups);
    out_ << '\n';
    for (std::size_t i = 0; i < node.blocks().size(); ++i) {
      const Block* block = node.blocks()[i];
      out_ << indent << "  block" << i << '(';
      list(out_, block->inputs(),
           [&](const Value* input) { out_ << printValue(*input); });
      out_ << "):\n";
      for (const Node* inner : block->nodes()) {
        printTree(*inner, level + 2, groups);
      }
      out_ << indent << "    -> (";
      printNames(block->outputs());
      out_ << ")\n";
    }
  }

  void printHead(const Node& node, Groups* groups) {
    if (!node.outputs().empty()) {
      list(out_, node.outputs(),
           [&](const Value* output) { out_ << printValue(*output); });
      out_ << " = ";
    }
    out_ << node.kind().toQualString();
    const bool group = groups != nullptr && node.hasAttribute(attr::Subgraph);
    if (group) {
      out_ << '_' << groups->size();
      groups->push_back(&node);
    }
    std::vector<c10::Symbol> names = node.attributeNames();
    names.erase(std::remove(names.begin(), names.end(), attr::Subgraph),
                names.end());
    if (!names.empty()) {
      out_ << '[';
      list(out_, names, [&](c10::Symbol name) {
        out_ << name.toUnqualString() << '=';
        printAttribute(node, name);
      });
      out_ << ']';
    }
    out_ << '(';
    printNames(node.inputs());
    out_ << ')';
  }

  void printNames(c10::ArrayRef<const Value*> values) {
    list(out_, values,
         [&](const Value* value) { out_ << '%' << value->debugName(); });
  }

  void printAttribute(const Node& node, c10::Symbol name) {
    switch (node.kindOf(name)) {
      case AttributeKind::f:
        out_ << number(node.f(name));
        break;
      case AttributeKind::fs:
        out_ << '[';
        list(out_, node.fs(name), [&](double item) { out_ << number(item); });
        out_ << ']';
        break;
      case AttributeKind::s:
        out_ << stringLiteral(node.s(name));
        break;
      case AttributeKind::ss:
        out_ << '[';
        list(out_, node.ss(name),
             [&](const std::string& item) { out_ << stringLiteral(item); });
        out_ << ']';
        break;
      case AttributeKind::t:
        printTensor(node.t(name), hasCompleteType(node));
        break;
      case AttributeKind::ival:
        printIValue(node.ival(name));
        break;
      case AttributeKind::i:
        out_ << node.i(name);
        break;
      case AttributeKind::is:
        out_ << '[';
        list(out_, node.is(name), [&](std::int64_t item) { out_ << item; });
        out_ << ']';
        break;
      case AttributeKind::c:
        out_ << number(node.c(name));
        break;
      case AttributeKind::cs:
        out_ << '[';
        list(out_, node.cs(name),
             [&](c10::complex<double> item) { out_ << number(item); });
        out_ << ']';
        break;
      case AttributeKind::ty:
        out_ << *node.ty(name);
        break;
      case AttributeKind::tys:
        out_ << '[';
        list(out_, node.tys(name),
             [&](const c10::TypePtr& item) { out_ << *item; });
        out_ << ']';
        break;
      case AttributeKind::ts:
        out_ << "[<Tensors>]";
        break;
      case AttributeKind::g:
      case AttributeKind::gs:
        out_ << "<Graph>";
        break;
    }
  }

  void printIValue(const IValue& value) {
    if (value.isDouble()) {
      out_ << number(value.toDouble());
    } else if (value.isComplexDouble()) {
      out_ << number(value.toComplexDouble());
    } else if (value.isString()) {
      out_ << stringLiteral(value.toStringRef());
    } else if (value.isTensor()) {
      printTensor(value.toTensor());
    } else if (value.isList()) {
      out_ << '[';
      list(out_, value.toListRef(),
           [&](const IValue& item) { printIValue(item); });
      out_ << ']';
    } else if (value.isTuple()) {
      const auto& elements = value.toTupleRef().elements();
      out_ << '(';
      list(out_, elements, [&](const IValue& item) { printIValue(item); });
      out_ << (elements.size() == 1 ? ",)" : ")");
    } else if (value.isGenericDict()) {
      out_ << '{';
      list(out_, value.toGenericDict(), [&](const auto& entry) {
        printIValue(entry.key());
        out_ << ": ";
        printIValue(entry.value());
      });
      out_ << '}';
    } else if (value.isObject()) {
      const auto found =
          objects_.emplace(&value.toObjectRef(), objects_.size());
      out_ << "object(" << found.first->second << ')';
    } else {
      value.repr(out_, [](std::ostream&, const IValue&) { return false; });
    }
  }

  static bool hasCompleteType(const Node& node) {
    if (node.outputs().size() != 1)
      return false;
    const auto* type = node.output()->type()->castRaw<c10::TensorType>();
    return type != nullptr && type->scalarType() &&
           type->sizes().concrete_sizes();
  }

  // Where the elements are left out, scalar type and sizes are not, unless the
  // constant's type has them.
  void printTensor(const at::Tensor& tensor, bool type_is_complete = false) {
    const bool plain = tensor.defined() && tensor.layout() == at::kStrided &&
                       !tensor.is_quantized() && !tensor.is_complex() &&
                       !tensor.is_meta();
    if (!plain || tensor.numel() > kLargestPrintedTensor) {
      out_ << "<Tensor>";
      if (!type_is_complete && tensor.defined())
        printTensorType(tensor);
      return;
    }
    const at::Tensor flat = tensor.detach().cpu().reshape({-1});
    const auto element = [&](std::int64_t i) {
      const at::Scalar scalar = flat[i].item();
      if (scalar.isFloatingPoint())
        return number(scalar.toDouble());
      return std::to_string(scalar.toLong());
    };
    // Read without a type, the short form is a scalar of the usual types.
    const bool usual =
        tensor.dim() == 0 && (tensor.scalar_type() == at::kLong ||
                              tensor.scalar_type() == at::kFloat);
    if (tensor.numel() == 1 && (type_is_complete || usual)) {
      out_ << '{' << element(0) << '}';
      return;
    }
    for (std::int64_t i = 0; i < flat.numel(); ++i)
      out_ << ' ' << element(i);
    printTensorType(tensor);
  }

  void printTensorType(const at::Tensor& tensor) {
    out_ << " [ " << (tensor.is_cuda() ? "CUDA" : "CPU")
         << c10::toString(tensor.scalar_type()) << "Type{";
    list(out_, tensor.sizes(), [&](std::int64_t size) { out_ << size; });
    out_ << "} ]";
  }

  std::ostringstream out_;
  std::map<const void*, std::size_t> objects_;
};

}  // namespace

std::string printGraph(const Graph& graph) {
  return Printer().print(graph);
}

std::string printNode(const Node& node) {
  return Printer().print(node);
}

std::string printValue(const Value& value) {
  std::ostringstream out;
  out << '%' << value.debugName() << " : " << *value.type();
  return out.str();
}

}  // namespace pcg::opt
