#include "test/fuzz/program.h"

#include <sstream>
#include <utility>

namespace pcg::fuzz {
namespace {

std::string substitute(const std::string& text,
                       const std::vector<Expression>& expressions) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size()) {
      result += expressions.at(text[++i] - '0').render();
    } else {
      result += text[i];
    }
  }
  return result;
}

void addLines(const std::string& text, int depth, std::string& out) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    out.append(static_cast<std::size_t>(depth) * 4, ' ');
    out += line;
    out += '\n';
  }
}

void renderBlock(const Block& block, const std::string& first, int depth,
                 std::string& out);

void renderStatement(const Statement& statement, int depth, std::string& out) {
  addLines(statement.before, depth, out);
  addLines(substitute(statement.text, statement.expressions), depth, out);
  for (std::size_t i = 0; i < statement.blocks.size(); ++i) {
    if (i == 1)
      addLines("else:", depth, out);
    renderBlock(statement.blocks[i], i == 0 ? statement.inside : "", depth + 1,
                out);
  }
}

void renderBlock(const Block& block, const std::string& first, int depth,
                 std::string& out) {
  addLines(first, depth, out);
  for (const Statement& statement : block)
    renderStatement(statement, depth, out);
  if (block.empty() && first.empty())
    addLines("pass", depth, out);
}

void renderModule(const ModuleSource& module, std::string& out) {
  out += "class " + module.name + ":\n";
  for (const Attribute& attribute : module.attributes) {
    const char* role =
        attribute.role == Attribute::Role::kParameter ? "parameter "
        : attribute.role == Attribute::Role::kBuffer  ? "buffer "
                                                      : "attribute ";
    out += std::string("    # ") + role + attribute.name + ": " +
           attribute.type.text();
    if (!attribute.type.dims.empty())
      out += " [" + attribute.type.dims + "]";
    out += '\n';
  }
  addLines(module.render(), 1, out);
  for (const ModuleSource& child : module.children)
    renderModule(child, out);
}

}  // namespace

bool Type::operator==(const Type& other) const {
  return kind == other.kind && dtype == other.dtype && dims == other.dims &&
         elements == other.elements;
}

std::string Type::text() const {
  switch (kind) {
    case Kind::kTensor:
      return "Tensor";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kBool:
      return "bool";
    case Kind::kTensorList:
      return "List[Tensor]";
    case Kind::kIntList:
      return "List[int]";
    case Kind::kDict:
      return "Dict[str, Tensor]";
    case Kind::kOptional:
      return "Optional[Tensor]";
    case Kind::kTuple:
      break;
  }
  std::string result = "Tuple[";
  for (std::size_t i = 0; i < elements.size(); ++i)
    result += (i == 0 ? "" : ", ") + elements[i].text();
  return result + "]";
}

Type tensorType(char dtype, std::string dims) {
  return {Type::Kind::kTensor, dtype, std::move(dims), {}};
}

Type scalarType(Type::Kind kind) {
  return {kind, '-', "", {}};
}

std::string Expression::render() const {
  return substitute(text, children);
}

std::string Function::render() const {
  std::string out = "def " + name + "(self";
  for (const Variable& parameter : parameters)
    out += ", " + parameter.name + ": " + parameter.type.text();
  out += ") -> " + result.type.text() + ":\n";
  renderBlock(body, "", 1, out);
  addLines("return " + result.render(), 1, out);
  return out;
}

std::string ModuleSource::render() const {
  std::string out;
  for (const Function& function : functions)
    out += function.render();
  return out;
}

std::string Program::render() const {
  std::string out;
  renderModule(module, out);
  std::ostringstream tail;
  tail << "# min_segment_size=" << min_segment_size << " max_keys=" << max_keys
       << " make_capturable=" << make_capturable
       << " optimized_executor=" << optimized_executor << " gradients="
       << (gradients == GradientMode::kOff  ? "off"
           : gradients == GradientMode::kOn ? "on"
                                            : "inference");
  for (const std::string& op : no_graph_ops)
    tail << " no_graph_op=" << op;
  for (const std::string& scope : no_graph_scopes)
    tail << " no_graph_scope=" << scope;
  tail << '\n';
  static const char* const kActions[] = {"write a kept result",
                                         "drop kept results",
                                         "write a tensor attribute",
                                         "set_data",
                                         "replace a tensor",
                                         "set a host attribute",
                                         "train or eval",
                                         "save and load"};
  for (const Call& call : calls) {
    for (const Action& action : call.before) {
      tail << "# " << kActions[static_cast<int>(action.kind)] << " ("
           << action.seed << ")\n";
    }
    tail << "# call " << call.method << ": rows " << call.rows
         << ", host values " << call.host_seed << ", tensors "
         << (call.fresh ? "new" : "from " + std::to_string(call.sources))
         << (call.doubles ? ", float64" : "") << '\n';
  }
  return out + tail.str();
}

}  // namespace pcg::fuzz
