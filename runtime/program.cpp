#include "runtime/program.h"

#include <ATen/core/function.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "passes/operators.h"
#include "passes/source_location.h"

namespace pcg {
namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Operation;
using torch::jit::Stack;
using torch::jit::Value;
namespace aten = torch::jit::aten;
namespace attr = torch::jit::attr;
namespace prim = torch::jit::prim;

// What a node does. Everything but the operations is an instruction of torch's
// interpreter, and has no operation, or one that does something else.
enum class Action {
  kOperation,
  kVariadicOperation,  // also wants the number of its inputs
  kIf,
  kLoop,
  kGetAttr,
  kSetAttr,
  kCallFunction,
  kCallMethod,
  kTupleConstruct,
  kTupleUnpack,
  kTupleSlice,
  kListConstruct,
  kListUnpack,
  kDictConstruct,
  kCreateObject,
  kIsInstance,
  kUninitialized,
  kPassOn,
  kEnter,
  kExit,
  kRaise,
  kWarn,
  kSegment,
};

// Where an operand comes from: a register, or a constant.
struct Operand {
  std::size_t index;
  bool constant;
  bool last_use;  // the register is emptied
};

struct Instruction;

struct BlockCode {
  std::vector<std::size_t> parameters;
  std::vector<std::size_t> unused;  // parameters that nobody reads
  std::vector<Instruction> instructions;
  std::vector<Operand> results;
};

struct Instruction {
  Action action = Action::kOperation;
  const Node* node = nullptr;
  std::vector<Operand> inputs;
  std::vector<std::size_t> outputs;
  std::vector<std::size_t> released;  // registers emptied when it is done
  std::optional<Operation> operation;
  torch::jit::Function* function = nullptr;
  // Where an object of this class holds the attribute. Objects of other
  // classes are asked by name: freezing moves attributes.
  const c10::ClassType* type = nullptr;
  std::size_t slot = 0;
  std::vector<BlockCode> blocks;
};

Action actionOf(const Node& node) {
  switch (node.kind()) {
    case prim::If:
      return Action::kIf;
    case prim::Loop:
      return Action::kLoop;
    case prim::GetAttr:
      return Action::kGetAttr;
    case prim::SetAttr:
      return Action::kSetAttr;
    case prim::CallFunction:
      return Action::kCallFunction;
    case prim::CallMethod:
      return Action::kCallMethod;
    case prim::TupleConstruct:
      return Action::kTupleConstruct;
    case prim::TupleUnpack:
      return Action::kTupleUnpack;
    case prim::TupleSlice:
      return Action::kTupleSlice;
    case prim::ListConstruct:
      return Action::kListConstruct;
    case prim::ListUnpack:
      return Action::kListUnpack;
    case prim::DictConstruct:
      return Action::kDictConstruct;
    case prim::CreateObject:
      return Action::kCreateObject;
    case prim::isinstance:
      return Action::kIsInstance;
    case prim::Uninitialized:
      return Action::kUninitialized;
    case prim::unchecked_cast:
      return Action::kPassOn;
    case prim::Enter:
      return Action::kEnter;
    case prim::Exit:
      return Action::kExit;
    case prim::RaiseException:
      return Action::kRaise;
    case aten::warn:
      return Action::kWarn;
    case prim::tolist:
      // Its schema says that it is variadic, but it does not take the count.
      return Action::kOperation;
    default:
      break;
  }
  if (node.kind() == segmentKind())
    return Action::kSegment;
  const torch::jit::Operator* found = node.maybeOperator();
  if (found == nullptr) {
    throw std::runtime_error("expected an operator, found " +
                             describeNode(node) +
                             ", for which none is registered");
  }
  return found->schema().is_vararg() && found->hasOperation()
             ? Action::kVariadicOperation
             : Action::kOperation;
}

// A function as a value carries nothing; the type names it.
bool isFunction(const Value& value) {
  return value.type()->kind() == c10::TypeKind::FunctionType;
}

}  // namespace

struct Program::Code {
  std::shared_ptr<Graph> graph;
  std::vector<IValue> constants;
  std::size_t registers = 0;
  std::size_t most_operands = 0;
  BlockCode body;
};

namespace {

class Compiler {
 public:
  explicit Compiler(Program::Code& code) : code_(code) {}

  void run() { code_.body = compile(code_.graph->block()); }

 private:
  std::size_t define(const Value* value) {
    registers_[value] = code_.registers;
    return code_.registers++;
  }

  Operand operand(const Value* value) {
    const auto constant = constants_.find(value);
    if (constant != constants_.end())
      return {constant->second, true, false};
    return {registers_.at(value), false, false};
  }

  static const Node* ancestorIn(const Block* block, const Node* node) {
    while (node->owningBlock() != block) {
      node = node->owningBlock()->owningNode();
    }
    return node;
  }

  struct LastReader {
    const Node* node = nullptr;
    bool within = false;  // in a block of the node, perhaps several times
  };

  // The node of the value's own block after which nobody reads the value.
  static LastReader lastReader(const Value* value, const Block* block) {
    LastReader last;
    for (const auto& use : value->uses()) {
      const Node* reader = ancestorIn(block, use.user);
      if (last.node != nullptr && reader != last.node &&
          !(reader == block->return_node() || reader->isAfter(last.node))) {
        continue;
      }
      const bool within = reader != use.user;
      last = {reader, within || (reader == last.node && last.within)};
      if (reader == block->return_node())
        break;
    }
    return last;
  }

  static void markLastUse(std::vector<Operand>& operands, std::size_t index) {
    for (auto it = operands.rbegin(); it != operands.rend(); ++it) {
      if (!it->constant && it->index == index) {
        it->last_use = true;
        return;
      }
    }
  }

  // Lets each value go with the last node that reads it.
  void release(const std::vector<const Value*>& values, const Block* block,
               BlockCode& result,
               const std::unordered_map<const Node*, std::size_t>& positions) {
    for (const Value* value : values) {
      const std::size_t index = registers_.at(value);
      const LastReader last = lastReader(value, block);
      if (last.node == block->return_node()) {
        markLastUse(result.results, index);
        continue;
      }
      Instruction& instruction = result.instructions[positions.at(last.node)];
      if (last.within) {
        instruction.released.push_back(index);
      } else {
        markLastUse(instruction.inputs, index);
      }
    }
  }

  void addDetails(Instruction& instruction, Node* node) {
    switch (instruction.action) {
      case Action::kOperation:
      case Action::kVariadicOperation:
        instruction.operation = node->getOperation();
        break;
      case Action::kGetAttr:
      case Action::kSetAttr:
        if (const auto* type =
                node->input(0)->type()->castRaw<c10::ClassType>()) {
          if (const auto slot = type->findAttributeSlot(node->s(attr::name))) {
            instruction.type = type;
            instruction.slot = *slot;
          }
        }
        break;
      case Action::kCallFunction:
        instruction.function =
            node->input(0)->type()->expectRef<c10::FunctionType>().function();
        break;
      default:
        break;
    }
  }

  BlockCode compile(Block* block) {
    BlockCode result;
    std::vector<const Value*> defined;
    std::unordered_map<const Node*, std::size_t> positions;
    for (const Value* parameter : block->inputs()) {
      const std::size_t index = define(parameter);
      result.parameters.push_back(index);
      if (parameter->hasUses()) {
        defined.push_back(parameter);
      } else {
        result.unused.push_back(index);
      }
    }
    for (Node* node : block->nodes()) {
      if (node->kind() == prim::Constant) {
        if (isFunction(*node->output()))
          continue;
        constants_[node->output()] = code_.constants.size();
        code_.constants.push_back(*torch::jit::toIValue(node->output()));
        continue;
      }
      Instruction instruction;
      instruction.node = node;
      instruction.action = actionOf(*node);
      for (const Value* input : node->inputs()) {
        if (isFunction(*input))
          continue;
        instruction.inputs.push_back(operand(input));
      }
      addDetails(instruction, node);
      for (Block* inner : node->blocks()) {
        instruction.blocks.push_back(compile(inner));
      }
      for (const Value* output : node->outputs()) {
        const std::size_t index = define(output);
        instruction.outputs.push_back(index);
        if (output->hasUses()) {
          defined.push_back(output);
        } else {
          instruction.released.push_back(index);
        }
      }
      code_.most_operands =
          std::max(code_.most_operands,
                   instruction.inputs.size() + instruction.outputs.size() + 1);
      positions[node] = result.instructions.size();
      result.instructions.push_back(std::move(instruction));
    }
    for (const Value* output : block->outputs()) {
      result.results.push_back(operand(output));
    }
    release(defined, block, result, positions);
    return result;
  }

  Program::Code& code_;
  std::unordered_map<const Value*, std::size_t> registers_;
  std::unordered_map<const Value*, std::size_t> constants_;
};

// One run of a program.
class Execution {
 public:
  Execution(const Program::Code& code, NodeListener* listener,
            const Program::SegmentHandler* segments, NodeResults* results)
      : code_(code),
        listener_(listener),
        segments_(segments),
        results_(results),
        registers_(code.registers) {
    stack_.reserve(code.most_operands);
  }

  std::vector<IValue> run(std::vector<IValue> inputs) {
    if (inputs.size() != code_.body.parameters.size()) {
      throw std::invalid_argument(
          "expected " + std::to_string(code_.body.parameters.size()) +
          " inputs, got " + std::to_string(inputs.size()));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      registers_[code_.body.parameters[i]] = std::move(inputs[i]);
    }
    try {
      runBlock(code_.body);
    } catch (...) {
      leaveAll();
      throw;
    }
    std::vector<IValue> outputs;
    take(code_.body, outputs);
    return outputs;
  }

 private:
  const IValue& read(const Operand& operand) const {
    return operand.constant ? code_.constants[operand.index]
                            : registers_[operand.index];
  }

  IValue obtain(const Operand& operand) {
    if (operand.last_use)
      return std::move(registers_[operand.index]);
    return read(operand);
  }

  void runBlock(const BlockCode& block) {
    for (const std::size_t index : block.unused)
      registers_[index] = IValue();
    for (const Instruction& instruction : block.instructions) {
      if (listener_ != nullptr)
        listener_->before(*instruction.node);
      switch (instruction.action) {
        case Action::kIf:
          runIf(instruction);
          break;
        case Action::kLoop:
          runLoop(instruction);
          break;
        default:
          runNode(instruction);
          break;
      }
      for (const std::size_t index : instruction.released) {
        registers_[index] = IValue();
      }
      if (listener_ != nullptr)
        listener_->after(*instruction.node);
    }
  }

  // No node is run while another one's operands are on the stack, so all share
  // one.
  void runNode(const Instruction& instruction) {
    stack_.clear();
    for (const Operand& input : instruction.inputs) {
      if (input.last_use) {
        stack_.push_back(std::move(registers_[input.index]));
      } else {
        stack_.push_back(read(input));
      }
    }
    if (results_ == nullptr || !results_->recall(*instruction.node, stack_)) {
      apply(instruction);
    }
    if (stack_.size() != instruction.outputs.size()) {
      throw std::runtime_error(
          "expected " + std::to_string(instruction.outputs.size()) +
          " results of " + describeNode(*instruction.node) + ", got " +
          std::to_string(stack_.size()));
    }
    if (results_ != nullptr)
      results_->keep(*instruction.node, stack_);
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      registers_[instruction.outputs[i]] = std::move(stack_[i]);
    }
  }

  void runIf(const Instruction& instruction) {
    const bool taken = read(instruction.inputs[0]).toBool();
    const BlockCode& block = instruction.blocks[taken ? 0 : 1];
    runBlock(block);
    for (std::size_t i = 0; i < block.results.size(); ++i) {
      registers_[instruction.outputs[i]] = obtain(block.results[i]);
    }
  }

  void runLoop(const Instruction& instruction) {
    const BlockCode& body = instruction.blocks[0];
    const std::int64_t trips = read(instruction.inputs[0]).toInt();
    bool goes_on = read(instruction.inputs[1]).toBool();
    // A trip may hand a value on to another position, so the values of a trip
    // are collected before they are stored.
    std::vector<IValue> carried;
    carried.reserve(instruction.inputs.size() - 1);
    carried.emplace_back();
    for (std::size_t i = 2; i < instruction.inputs.size(); ++i) {
      carried.push_back(obtain(instruction.inputs[i]));
    }
    for (std::int64_t trip = 0; trip < trips && goes_on; ++trip) {
      registers_[body.parameters[0]] = trip;
      for (std::size_t i = 1; i < carried.size(); ++i) {
        registers_[body.parameters[i]] = std::move(carried[i]);
      }
      runBlock(body);
      carried.clear();
      take(body, carried);
      goes_on = carried[0].toBool();
    }
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      registers_[instruction.outputs[i]] = std::move(carried[i + 1]);
    }
  }

  void take(const BlockCode& block, std::vector<IValue>& results) {
    results.reserve(block.results.size());
    for (const Operand& result : block.results) {
      results.push_back(obtain(result));
    }
  }

  void apply(const Instruction& instruction) {
    const Node& node = *instruction.node;
    switch (instruction.action) {
      case Action::kVariadicOperation:
        stack_.emplace_back(static_cast<std::int64_t>(stack_.size()));
        [[fallthrough]];
      case Action::kOperation:
        // Only the call operator lacks the const: torch's interpreter too
        // shares operations between threads.
        const_cast<Operation&> (*instruction.operation)(stack_);
        break;
      case Action::kGetAttr: {
        const IValue object = std::move(stack_[0]);
        const auto& held = object.toObjectRef();
        stack_[0] = held.type().get() == instruction.type
                        ? held.getSlot(instruction.slot)
                        : held.getAttr(node.s(attr::name));
        break;
      }
      case Action::kSetAttr: {
        const auto object = stack_[0].toObject();
        if (object->type().get() == instruction.type) {
          object->setSlot(instruction.slot, std::move(stack_[1]));
        } else {
          object->setAttr(node.s(attr::name), std::move(stack_[1]));
        }
        stack_.clear();
        break;
      }
      case Action::kCallFunction:
        instruction.function->run(stack_);
        break;
      case Action::kCallMethod:
        // By the object, not by the node: it may stand for an interface.
        stack_[0]
            .toObjectRef()
            .type()
            ->getMethod(node.s(attr::name))
            .run(stack_);
        break;
      case Action::kTupleConstruct: {
        const auto type = node.output()->type()->expect<c10::TupleType>();
        replaceBy(type->name()
                      ? c10::ivalue::Tuple::createNamed(takeStack(), type)
                      : c10::ivalue::Tuple::create(takeStack()));
        break;
      }
      case Action::kTupleUnpack: {
        const IValue tuple = std::move(stack_[0]);
        const auto elements = tuple.toTupleRef().elements().asArrayRef();
        stack_.assign(elements.begin(), elements.end());
        break;
      }
      case Action::kTupleSlice: {
        const IValue tuple = std::move(stack_[0]);
        const auto begin = static_cast<std::size_t>(node.i(attr::beg));
        const auto end = static_cast<std::size_t>(node.i(attr::end));
        replaceBy(c10::ivalue::Tuple::create(
            tuple.toTupleRef().elements().asArrayRef().slice(begin,
                                                             end - begin)));
        break;
      }
      case Action::kListConstruct: {
        const auto& type = node.output()->type()->expectRef<c10::ListType>();
        c10::impl::GenericList list(type.getElementType());
        list.reserve(stack_.size());
        for (IValue& element : stack_)
          list.push_back(std::move(element));
        replaceBy(std::move(list));
        break;
      }
      case Action::kListUnpack: {
        const IValue list = std::move(stack_[0]);
        const auto elements = list.toListRef();
        TORCH_CHECK(elements.size() == instruction.outputs.size(), "Expected ",
                    instruction.outputs.size(),
                    " elements in a list but found ", elements.size());
        stack_.assign(elements.begin(), elements.end());
        break;
      }
      case Action::kDictConstruct: {
        const auto& type = node.output()->type()->expectRef<c10::DictType>();
        c10::impl::GenericDict dict(type.getKeyType(), type.getValueType());
        dict.reserve(stack_.size() / 2);
        for (std::size_t i = 0; i + 1 < stack_.size(); i += 2) {
          dict.insert_or_assign(std::move(stack_[i]), std::move(stack_[i + 1]));
        }
        replaceBy(std::move(dict));
        break;
      }
      case Action::kCreateObject: {
        const auto type = node.output()->type()->expect<c10::ClassType>();
        replaceBy(c10::ivalue::Object::create(
            c10::StrongTypePtr(type->compilation_unit(), type),
            type->numAttributes()));
        break;
      }
      case Action::kIsInstance: {
        const c10::TypePtr type = stack_[0].type();
        bool matches = false;
        for (const auto& candidate : node.tys(attr::types)) {
          matches = matches || type->isSubtypeOf(*candidate);
        }
        stack_[0] = matches;
        break;
      }
      case Action::kUninitialized:
        stack_.push_back(IValue::uninitialized());
        break;
      case Action::kEnter:
        entered_.push_back(stack_[0]);
        stack_[0].toObjectRef().type()->getMethod("__enter__").run(stack_);
        break;
      case Action::kExit: {
        const IValue object = std::move(entered_.back());
        entered_.pop_back();
        stack_ = leave(object);
        break;
      }
      case Action::kRaise:
        throw torch::jit::JITException(stack_[0].toStringRef(),
                                       stack_[1].toOptional<std::string>());
      case Action::kWarn:
        warn(node);
        stack_.clear();
        break;
      case Action::kSegment:
        if (segments_ == nullptr) {
          throw std::invalid_argument("expected a segment handler for " +
                                      describeNode(node));
        }
        stack_ = (*segments_)(node, takeStack());
        break;
      case Action::kPassOn:
      case Action::kIf:
      case Action::kLoop:
        break;
    }
  }

  // As the interpreter does: with a source position where there is one, and
  // once in a run.
  void warn(const Node& node) {
    if (FLAGS_torch_jit_disable_warning_prints)
      return;
    if (node.hasAttribute(attr::warn_id) &&
        !warned_.insert(node.i(attr::warn_id)).second) {
      return;
    }
    const std::string& message = stack_[0].toStringRef();
    const auto range = node.sourceRange();
    const auto& source = range.source();
    if (source == nullptr || !source->filename()) {
      TORCH_WARN(message);
      return;
    }
    const std::size_t line =
        source->starting_line_no() + source->lineno_for_offset(range.start());
    c10::warn(
        c10::Warning(c10::UserWarning(),
                     c10::SourceLocation{"", source->filename()->c_str(),
                                         static_cast<std::uint32_t>(line)},
                     message, /*verbatim=*/true));
  }

  static Stack leave(const IValue& object) {
    Stack stack{object, IValue(), IValue(), IValue()};
    object.toObjectRef().type()->getMethod("__exit__").run(stack);
    return stack;
  }

  // An exception leaves `with` blocks on its way out.
  void leaveAll() {
    for (; !entered_.empty(); entered_.pop_back()) {
      try {
        leave(entered_.back());
      } catch (const std::exception&) {
        // The interpreter, too, reports the first exception only.
      }
    }
  }

  Stack takeStack() {
    Stack taken(std::make_move_iterator(stack_.begin()),
                std::make_move_iterator(stack_.end()));
    stack_.clear();
    return taken;
  }

  void replaceBy(IValue value) {
    stack_.clear();
    stack_.push_back(std::move(value));
  }

  const Program::Code& code_;
  NodeListener* listener_;
  const Program::SegmentHandler* segments_;
  NodeResults* results_;
  std::vector<IValue> registers_;
  Stack stack_;
  std::vector<IValue> entered_;
  std::unordered_set<std::int64_t> warned_;
};

}  // namespace

Program::Program(std::shared_ptr<Graph> graph)
    : code_(std::make_unique<Code>()) {
  code_->graph = std::move(graph);
  Compiler(*code_).run();
}

Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

const std::shared_ptr<Graph>& Program::graph() const {
  return code_->graph;
}

std::vector<IValue> Program::run(std::vector<IValue> inputs,
                                 NodeListener* listener,
                                 const SegmentHandler* segments,
                                 NodeResults* results) const {
  return Execution(*code_, listener, segments, results).run(std::move(inputs));
}

}  // namespace pcg
