#include "tools/pcg-opt/ir_reader.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "passes/operators.h"
#include "tools/pcg-opt/ir_literals.h"
#include "tools/pcg-opt/ir_syntax.h"
#include "tools/pcg-opt/ir_types.h"
#include "tools/pcg-opt/suggest.h"

namespace pcg::opt {
namespace {

using c10::TypeKind;
using c10::TypePtr;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = torch::jit::prim;
namespace attr = torch::jit::attr;

// More would only bury the first.
constexpr std::size_t kMostErrors = 20;

// Overloads listed where arguments match none.
constexpr std::size_t kMostCandidates = 4;

struct TooManyErrors {};

// Reports errors and counts them.
class Reporter {
 public:
  Reporter(const SourceText& source, Diagnostics& diagnostics)
      : source_(source), diagnostics_(diagnostics) {}

  void error(std::size_t offset, std::string message) {
    if (count_ == kMostErrors) {
      diagnostics_.error({source_.name(), 0, 0, ""}, "too many errors");
      throw TooManyErrors{};
    }
    ++count_;
    diagnostics_.error(locate(source_, offset), std::move(message));
  }
  void note(std::size_t offset, std::string message) {
    diagnostics_.note(locate(source_, offset), std::move(message));
  }
  bool any() const { return count_ > 0; }

 private:
  const SourceText& source_;
  Diagnostics& diagnostics_;
  std::size_t count_ = 0;
};

// ---- names ------------------------------------------------------------------

// Checks that names are defined once, and before and within reach of their
// uses.
class NameChecker {
 public:
  explicit NameChecker(Reporter& reporter) : reporter_(reporter) {}

  void check(const BlockSyntax& body) {
    collect(body);
    visit(body);
  }

 private:
  enum class State { kAhead, kInScope, kGone };
  struct Definition {
    std::size_t offset;
    State state = State::kAhead;
  };

  void define(const std::vector<ValueSyntax>& values) {
    for (const ValueSyntax& value : values) {
      const auto [it, is_new] =
          definitions_.emplace(value.name, Definition{value.offset});
      if (!is_new) {
        reporter_.error(value.offset, "%" + value.name + " is defined twice");
        reporter_.note(it->second.offset, "its first definition is here");
      }
    }
  }

  void collect(const BlockSyntax& block) {
    define(block.inputs);
    for (const NodeSyntax& node : block.nodes) {
      for (const BlockSyntax& inner : node.blocks)
        collect(inner);
      define(node.outputs);
    }
  }

  void setState(const std::vector<ValueSyntax>& values, State state) {
    for (const ValueSyntax& value : values) {
      definitions_.at(value.name).state = state;
    }
  }

  void visit(const BlockSyntax& block) {
    setState(block.inputs, State::kInScope);
    for (const NodeSyntax& node : block.nodes) {
      use(node.inputs);
      for (const BlockSyntax& inner : node.blocks)
        visit(inner);
      setState(node.outputs, State::kInScope);
    }
    use(block.outputs);
    setState(block.inputs, State::kGone);
    for (const NodeSyntax& node : block.nodes) {
      setState(node.outputs, State::kGone);
    }
  }

  void use(const std::vector<UseSyntax>& uses) {
    for (const UseSyntax& item : uses) {
      const auto found = definitions_.find(item.name);
      if (found == definitions_.end()) {
        reporter_.error(item.offset, "%" + item.name + " is not defined" +
                                         didYouMean(item.name, visibleNames()));
        continue;
      }
      if (found->second.state == State::kInScope)
        continue;
      const bool ahead = found->second.state == State::kAhead;
      reporter_.error(item.offset,
                      "%" + item.name +
                          (ahead ? " is used before its definition"
                                 : " is defined in a block that has ended"));
      reporter_.note(found->second.offset, "its definition is here");
    }
  }

  std::vector<std::string> visibleNames() const {
    constexpr std::size_t kMost = 2000;
    std::vector<std::string> names;
    for (const auto& [name, definition] : definitions_) {
      if (definition.state == State::kInScope)
        names.push_back(name);
      if (names.size() == kMost)
        break;
    }
    return names;
  }

  Reporter& reporter_;
  std::map<std::string, Definition> definitions_;
};

// ---- graphs -----------------------------------------------------------------

std::optional<std::uint64_t> asNumber(const std::string& name) {
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end)
    return std::nullopt;
  return number;
}

std::string withoutNumber(const std::string& label) {
  return label.substr(0, label.find_last_of('_'));
}

class FileReader {
 public:
  FileReader(const SourceText& source, const ReadOptions& options,
             Reporter& reporter)
      : text_(std::make_shared<torch::jit::Source>(source.text(), source.name(),
                                                   source.firstLine())),
        options_(options),
        reporter_(reporter) {}

  std::shared_ptr<Graph> read(const FileSyntax& file) {
    for (const GraphSyntax& graph : file.graphs) {
      NameChecker(reporter_).check(graph.body);
    }
    if (reporter_.any())
      return nullptr;
    file_ = &file;
    return readGraph(file.graphs[0]);
  }

  const std::shared_ptr<torch::jit::CompilationUnit>& classes() const {
    return types_.unit();
  }

 private:
  // A value that the syntax defines, and what will own it.
  struct Slot {
    const ValueSyntax* syntax;
    Node* node;    // With `block` null: one of its outputs.
    Block* block;  // One of its inputs.
    std::size_t index;
    std::optional<std::uint64_t> number;
  };

  struct GraphState {
    Graph* graph = nullptr;
    std::vector<Slot> slots;
    std::unordered_map<const NodeSyntax*, Node*> nodes;
    std::unordered_map<std::string, Value*> values;
  };

  std::shared_ptr<Graph> readGraph(const GraphSyntax& syntax) {
    auto graph = std::make_shared<Graph>();
    GraphState state;
    state.graph = graph.get();
    createNodes(syntax.body, graph->block(), state);
    createValues(state);
    for (const ValueSyntax& input : syntax.body.inputs) {
      state.values.at(input.name)
          ->setType(annotation(input, c10::TensorType::get()));
    }
    fillBlock(syntax.body, graph->block(), state);
    if (!reporter_.any()) {
      try {
        graph->lint();
      } catch (const std::exception&) {
        reporter_.error(syntax.offset, "the graph is not well formed");
      }
    }
    return graph;
  }

  // ---- nodes and values ----

  void createNodes(const BlockSyntax& syntax, Block* block, GraphState& state) {
    addSlots(syntax.inputs, nullptr, block, state);
    for (const NodeSyntax& node_syntax : syntax.nodes) {
      const std::string kind = node_syntax.subgraph
                                   ? withoutNumber(node_syntax.kind)
                                   : node_syntax.kind;
      Node* node = state.graph->create(c10::Symbol::fromQualString(kind), 0);
      node->setSourceRange(
          torch::jit::SourceRange(text_, node_syntax.offset, node_syntax.end));
      state.nodes[&node_syntax] = node;
      for (const BlockSyntax& inner : node_syntax.blocks) {
        createNodes(inner, node->addBlock(), state);
      }
      addSlots(node_syntax.outputs, node, nullptr, state);
      block->appendNode(node);
    }
  }

  static void addSlots(const std::vector<ValueSyntax>& values, Node* node,
                       Block* block, GraphState& state) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      state.slots.push_back(
          {&values[i], node, block, i, asNumber(values[i].name)});
    }
  }

  // A value without a name prints as its number, which torch hands out in order
  // of creation. So numbered values are created in the order of their numbers,
  // with the gaps used up, and named ones afterwards.
  void createValues(GraphState& state) {
    std::vector<Slot>& slots = state.slots;
    std::stable_sort(slots.begin(), slots.end(),
                     [](const Slot& a, const Slot& b) {
                       if (!a.number || !b.number) {
                         return a.number.has_value() && !b.number;
                       }
                       return *a.number < *b.number;
                     });
    std::uint64_t largest = 0;
    for (const Slot& slot : slots) {
      if (slot.number)
        largest = std::max(largest, *slot.number);
    }
    // Numbers of a hand-written text may be any; then they are not kept.
    const bool keep = largest < 16 * (slots.size() + 64);
    Node* unused = state.graph->create(prim::Constant, 0);
    std::uint64_t next = 0;
    std::unordered_map<const void*, std::vector<std::size_t>> created;
    for (const Slot& slot : slots) {
      for (; keep && slot.number && next < *slot.number; ++next) {
        unused->addOutput();
      }
      ++next;
      const void* owner = slot.block != nullptr
                              ? static_cast<const void*>(slot.block)
                              : static_cast<const void*>(slot.node);
      std::vector<std::size_t>& before = created[owner];
      const auto position =
          std::lower_bound(before.begin(), before.end(), slot.index);
      const auto at = static_cast<std::size_t>(position - before.begin());
      before.insert(position, slot.index);
      Value* value = slot.block != nullptr ? slot.block->insertInput(at)
                                           : slot.node->insertOutput(at);
      if (!slot.number)
        value->setDebugName(slot.syntax->name);
      state.values[slot.syntax->name] = value;
    }
    unused->destroy();
  }

  // ---- contents ----

  void fillBlock(const BlockSyntax& syntax, Block* block, GraphState& state) {
    for (const NodeSyntax& node : syntax.nodes) {
      fillNode(node, state.nodes.at(&node), state);
    }
    for (const UseSyntax& output : syntax.outputs) {
      block->registerOutput(state.values.at(output.name));
    }
  }

  void fillNode(const NodeSyntax& syntax, Node* node, GraphState& state) {
    for (const UseSyntax& input : syntax.inputs) {
      node->addInput(state.values.at(input.name));
    }
    try {
      setAttributes(syntax, node);
      if (syntax.subgraph)
        addSubgraph(syntax, node);
      if (node->kind() == prim::Constant) {
        fillConstant(syntax, node);
        return;
      }
      if (node->kind() == prim::If || node->kind() == prim::Loop) {
        fillControlFlow(syntax, node, state);
        return;
      }
      setOutputTypes(syntax, node);
      for (std::size_t i = 0; i < syntax.blocks.size(); ++i) {
        for (const ValueSyntax& input : syntax.blocks[i].inputs) {
          state.values.at(input.name)
              ->setType(annotation(input, c10::TensorType::get()));
        }
        fillBlock(syntax.blocks[i], node->blocks()[i], state);
      }
      checkNode(syntax, node);
    } catch (const ReadError& error) {
      reporter_.error(error.offset, error.message);
      // What follows is judged by the declared types.
      for (std::size_t i = 0; i < syntax.outputs.size(); ++i) {
        if (!syntax.outputs[i].type)
          continue;
        try {
          node->outputs()[i]->setType(types_.read(*syntax.outputs[i].type));
        } catch (const ReadError&) {
          continue;  // Reported already, or hidden by the first error.
        }
      }
    }
  }

  TypePtr annotation(const ValueSyntax& value, const TypePtr& otherwise) {
    if (!value.type)
      return otherwise;
    try {
      return types_.read(*value.type);
    } catch (const ReadError& error) {
      reporter_.error(error.offset, error.message);
      return otherwise;
    }
  }

  void setAttributes(const NodeSyntax& syntax, Node* node) {
    for (const AttributeSyntax& attribute : syntax.attributes) {
      const auto name = c10::Symbol::attr(attribute.name);
      if (node->hasAttribute(name)) {
        throw ReadError{attribute.offset,
                        "the attribute " + attribute.name + " is given twice"};
      }
      if (node->kind() == prim::Constant && name == attr::value)
        continue;
      const auto expected = expectedKind(*node, name);
      if (expected && *expected != attribute.value.kind) {
        throw ReadError{
            attribute.value.offset,
            "the attribute " + attribute.name + " must be " +
                (*expected == LiteralSyntax::Kind::kInt ? "an integer"
                                                        : "a string")};
      }
      TypePtr type;
      if (attribute.value.kind == LiteralSyntax::Kind::kType) {
        type = types_.read(attribute.value.type);
      }
      setAttribute(*node, attribute, type);
    }
  }

  // Attributes that torch or the passes read without looking.
  static std::optional<LiteralSyntax::Kind> expectedKind(const Node& node,
                                                         c10::Symbol name) {
    if (name == noGraphAttribute() || name == mutableStateAttribute()) {
      return LiteralSyntax::Kind::kInt;
    }
    if (name == noGraphTagAttribute())
      return LiteralSyntax::Kind::kString;
    if (name == attr::name &&
        (node.kind() == prim::GetAttr || node.kind() == prim::SetAttr ||
         node.kind() == prim::CallMethod || node.kind() == segmentKind())) {
      return LiteralSyntax::Kind::kString;
    }
    return std::nullopt;
  }

  void addSubgraph(const NodeSyntax& syntax, Node* node) {
    const GraphSyntax& part = file_->graphs[*syntax.subgraph];
    std::shared_ptr<Graph> graph = readGraph(part);
    if (graph->inputs().size() != node->inputs().size() ||
        graph->outputs().size() != syntax.outputs.size()) {
      reporter_.error(
          syntax.offset,
          counts(node->inputs().size(), syntax.outputs.size()) +
              " where its subgraph has " +
              counts(graph->inputs().size(), graph->outputs().size()));
      reporter_.note(part.offset, "the subgraph is here");
    }
    node->g_(attr::Subgraph, std::move(graph));
  }

  static std::string counts(std::size_t inputs, std::size_t outputs) {
    return std::to_string(inputs) + (inputs == 1 ? " input" : " inputs") +
           " and " + std::to_string(outputs) +
           (outputs == 1 ? " output" : " outputs");
  }

  void fillConstant(const NodeSyntax& syntax, Node* node) {
    if (syntax.outputs.size() != 1 || !syntax.inputs.empty() ||
        !syntax.blocks.empty()) {
      throw ReadError{syntax.offset,
                      "a constant has one output, no inputs and no blocks"};
    }
    const ValueSyntax& output = syntax.outputs[0];
    TypePtr type = annotation(output, nullptr);
    const auto given = std::find_if(
        syntax.attributes.begin(), syntax.attributes.end(),
        [](const AttributeSyntax& item) { return item.name == "value"; });
    if (given == syntax.attributes.end()) {
      if (!type)
        type = c10::NoneType::get();
      node->output()->setType(type);
      if (type->kind() != TypeKind::NoneType &&
          type->kind() != TypeKind::OptionalType) {
        throw ReadError{syntax.offset, "a constant of type " + typeText(*type) +
                                           " needs a value"};
      }
      return;
    }
    const c10::IValue value = readConstant(given->value, type);
    if (value.isNone()) {
      node->output()->setType(type ? type : c10::NoneType::get());
      return;
    }
    Graph scratch;
    const auto made = torch::jit::tryInsertConstant(scratch, value);
    if (!made) {
      throw ReadError{given->value.offset,
                      "a constant of this type cannot be read from text"};
    }
    node->copyAttributes(*(*made)->node());
    node->output()->setType(type ? type : (*made)->type());
    try {
      torch::jit::toIValue(node->output());
    } catch (const std::exception&) {
      throw ReadError{syntax.outputs[0].offset,
                      "a constant with a value cannot be declared " +
                          typeText(*type) + "; declare it " +
                          typeText(*(*made)->type())};
    }
    for (const AttributeSyntax& attribute : syntax.attributes) {
      if (attribute.name != "value")
        setAttribute(*node, attribute, nullptr);
    }
  }

  // ---- branches and loops ----

  void fillControlFlow(const NodeSyntax& syntax, Node* node,
                       GraphState& state) {
    const bool branch = node->kind() == prim::If;
    const std::size_t carried = syntax.outputs.size();
    if (branch) {
      expectShape(syntax.inputs.size() == 1, syntax.offset,
                  "a branch has one input, its condition");
      expectShape(syntax.blocks.size() == 2, syntax.offset,
                  "a branch has two blocks");
      expectType(node->input(0), TypeKind::BoolType, syntax.inputs[0]);
    } else {
      expectShape(syntax.inputs.size() == carried + 2, syntax.offset,
                  "a loop has a trip count, a condition, and one more input "
                  "for each output");
      expectShape(syntax.blocks.size() == 1, syntax.offset,
                  "a loop has one block");
      expectType(node->input(0), TypeKind::IntType, syntax.inputs[0]);
      expectType(node->input(1), TypeKind::BoolType, syntax.inputs[1]);
    }
    for (const BlockSyntax& block : syntax.blocks) {
      expectShape(block.inputs.size() == (branch ? 0 : carried + 1),
                  block.offset,
                  branch ? "a branch's block has no inputs"
                         : "a loop's block has as inputs the counter and one "
                           "value for each output of the loop");
      expectShape(block.outputs.size() == carried + (branch ? 0 : 1),
                  block.outputs_offset,
                  branch ? "a branch's block gives one value for each output"
                         : "a loop's block gives its condition and one value "
                           "for each output of the loop");
    }
    for (std::size_t b = 0; b < syntax.blocks.size(); ++b) {
      const BlockSyntax& block = syntax.blocks[b];
      for (std::size_t i = 0; i < block.inputs.size(); ++i) {
        const TypePtr usual =
            i == 0 ? c10::IntType::get() : node->input(i + 1)->type();
        state.values.at(block.inputs[i].name)
            ->setType(annotation(block.inputs[i], usual));
      }
      fillBlock(block, node->blocks()[b], state);
    }
    const std::size_t first = branch ? 0 : 1;
    for (std::size_t i = 0; i < carried; ++i) {
      const TypePtr type = annotation(
          syntax.outputs[i], node->blocks()[0]->outputs()[first + i]->type());
      node->outputs()[i]->setType(type);
      for (std::size_t b = 0; b < syntax.blocks.size(); ++b) {
        expectSubtype(node->blocks()[b]->outputs()[first + i]->type(), type,
                      syntax.blocks[b].outputs[first + i].offset);
      }
      if (!branch) {
        const TypePtr inner = node->blocks()[0]->inputs()[i + 1]->type();
        expectSubtype(node->input(i + 2)->type(), inner,
                      syntax.inputs[i + 2].offset);
      }
    }
    if (!branch) {
      expectType(node->blocks()[0]->outputs()[0], TypeKind::BoolType,
                 syntax.blocks[0].outputs[0]);
    }
  }

  static void expectShape(bool holds, std::size_t offset, const char* rule) {
    if (!holds)
      throw ReadError{offset, rule};
  }

  void expectType(const Value* value, TypeKind kind, const UseSyntax& use) {
    if (value->type()->kind() == kind)
      return;
    reporter_.error(use.offset,
                    std::string("expected a value of type ") +
                        (kind == TypeKind::BoolType ? "bool" : "int") + ", %" +
                        use.name + " has type " + typeText(*value->type()));
  }

  void expectSubtype(const TypePtr& found, const TypePtr& expected,
                     std::size_t offset) {
    if (found->isSubtypeOf(*expected))
      return;
    // A tensor's type says more than other uses of it need.
    if (found->kind() == TypeKind::TensorType &&
        expected->kind() == TypeKind::TensorType) {
      return;
    }
    reporter_.error(offset, "expected a value of type " + typeText(*expected) +
                                ", found " + typeText(*found));
  }

  // ---- operators ----

  void setOutputTypes(const NodeSyntax& syntax, Node* node) {
    const auto* schema = node->maybeSchema();
    const bool fixed = schema != nullptr && !schema->is_varret();
    if (fixed && schema->returns().size() != syntax.outputs.size()) {
      throw ReadError{
          syntax.offset,
          syntax.kind + " has " + std::to_string(schema->returns().size()) +
              " results, found " + std::to_string(syntax.outputs.size())};
    }
    for (std::size_t i = 0; i < syntax.outputs.size(); ++i) {
      const ValueSyntax& output = syntax.outputs[i];
      TypePtr usual = c10::TensorType::get();
      if (fixed && !schema->returns()[i].type()->hasFreeVariables()) {
        usual = schema->returns()[i].type();
      } else if (!fixed) {
        usual = packedType(*node, i, usual);
      }
      const TypePtr type = annotation(output, usual);
      if (fixed && output.type &&
          !schema->returns()[i].type()->hasFreeVariables() &&
          !type->isSubtypeOf(*schema->returns()[i].type())) {
        reporter_.error(output.offset, "%" + output.name + " is declared " +
                                           typeText(*type) + ", " +
                                           syntax.kind + " returns " +
                                           typeText(*usual));
      }
      node->outputs()[i]->setType(type);
    }
  }

  // What packing and unpacking nodes give, where nothing is declared.
  static TypePtr packedType(const Node& node, std::size_t output,
                            const TypePtr& otherwise) {
    if (node.kind() == prim::TupleConstruct) {
      std::vector<TypePtr> types;
      for (const Value* input : node.inputs())
        types.push_back(input->type());
      return c10::TupleType::create(std::move(types));
    }
    if (node.inputs().empty())
      return otherwise;
    const TypePtr& first = node.inputs()[0]->type();
    if (node.kind() == prim::ListConstruct) {
      return c10::ListType::create(first->kind() == TypeKind::TensorType
                                       ? c10::TensorType::get()
                                       : first);
    }
    if (node.kind() == prim::TupleUnpack) {
      const auto* tuple = first->castRaw<c10::TupleType>();
      if (tuple != nullptr && output < tuple->elements().size()) {
        return tuple->elements()[output];
      }
    }
    if (node.kind() == prim::ListUnpack) {
      const auto* list = first->castRaw<c10::ListType>();
      if (list != nullptr)
        return list->getElementType();
    }
    return otherwise;
  }

  void checkNode(const NodeSyntax& syntax, Node* node) {
    const c10::Symbol kind = node->kind();
    if (kind == prim::GetAttr || kind == prim::SetAttr) {
      checkAttributeAccess(syntax, node);
      return;
    }
    if (kind == segmentKind() && !syntax.subgraph) {
      throw ReadError{syntax.offset,
                      "expected a subgraph: a kind such as pcg::segment_0, and "
                      "'with pcg::segment_0 = graph(...)' after the graph"};
    }
    if (node->maybeOperator() != nullptr) {
      const auto& schema = node->schema();
      if (!syntax.blocks.empty() && !schema.is_vararg()) {
        throw ReadError{syntax.blocks[0].offset,
                        syntax.kind + " takes no blocks"};
      }
      return;
    }
    if (torch::jit::aliasAnalysisHasSpecialCaseFor(kind))
      return;
    const auto& overloads = torch::jit::getAllOperatorsFor(kind);
    if (!overloads.empty()) {
      reportMismatch(syntax, *node, overloads);
      return;
    }
    if (options_.allow_unregistered_ops)
      return;
    throw ReadError{syntax.offset,
                    "unknown operator " + syntax.kind +
                        didYouMean(syntax.kind, operatorNames()) +
                        hint(syntax.kind)};
  }

  static std::string hint(const std::string& kind) {
    if (kind.rfind("aten::", 0) == 0 || kind.rfind("prim::", 0) == 0)
      return "";
    return "; --load=LIB adds a library's operators, "
           "--allow-unregistered-ops accepts any";
  }

  void checkAttributeAccess(const NodeSyntax& syntax, Node* node) {
    const bool get = node->kind() == prim::GetAttr;
    if (node->inputs().size() != (get ? 1U : 2U) ||
        node->outputs().size() != (get ? 1U : 0U) ||
        !node->hasAttribute(attr::name)) {
      throw ReadError{syntax.offset,
                      get ? "expected prim::GetAttr[name=\"...\"](%object)"
                          : "expected prim::SetAttr[name=\"...\"](%object, "
                            "%value)"};
    }
    const Value* value = get ? node->output() : node->input(1);
    const std::string& name = node->s(attr::name);
    const TypePtr known =
        types_.declareAttribute(node->input(0)->type(), name, value->type());
    if (!known) {
      throw ReadError{syntax.inputs[0].offset,
                      "type " + typeText(*node->input(0)->type()) +
                          " has no attribute '" + name + "'"};
    }
    if (!value->type()->isSubtypeOf(*known) &&
        !known->isSubtypeOf(*value->type())) {
      throw ReadError{syntax.offset, "the attribute '" + name + "' has type " +
                                         typeText(*known) + " elsewhere, " +
                                         typeText(*value->type()) + " here"};
    }
  }

  void reportMismatch(
      const NodeSyntax& syntax, const Node& node,
      const std::vector<std::shared_ptr<torch::jit::Operator>>& overloads) {
    std::string types;
    for (const Value* input : node.inputs()) {
      types += (types.empty() ? "" : ", ") + typeText(*input->type());
    }
    reporter_.error(syntax.offset, "no overload of " + syntax.kind +
                                       " accepts (" + types + ")");
    for (std::size_t i = 0; i < std::min(overloads.size(), kMostCandidates);
         ++i) {
      std::ostringstream candidate;
      candidate << overloads[i]->schema();
      std::string text = "candidate: " + candidate.str();
      if (i + 1 == kMostCandidates && overloads.size() > kMostCandidates) {
        text += " and " + std::to_string(overloads.size() - kMostCandidates) +
                " more";
      }
      reporter_.note(syntax.offset, text);
    }
  }

  static const std::vector<std::string>& operatorNames() {
    static const std::vector<std::string> all = [] {
      std::vector<std::string> names;
      for (const auto& op : torch::jit::getAllOperators()) {
        names.push_back(op->schema().name());
      }
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      return names;
    }();
    return all;
  }

  std::shared_ptr<torch::jit::Source> text_;
  ReadOptions options_;
  Reporter& reporter_;
  TypeReader types_;
  const FileSyntax* file_ = nullptr;
};

}  // namespace

std::optional<ReadGraph> readIr(const SourceText& source,
                                const ReadOptions& options,
                                Diagnostics& diagnostics) {
  const auto file = parseIrSyntax(source, diagnostics);
  if (!file)
    return std::nullopt;
  Reporter reporter(source, diagnostics);
  try {
    FileReader reader(source, options, reporter);
    std::shared_ptr<Graph> graph = reader.read(*file);
    if (reporter.any())
      return std::nullopt;
    return ReadGraph{std::move(graph), reader.classes()};
  } catch (const TooManyErrors&) {
    return std::nullopt;
  }
}

}  // namespace pcg::opt
