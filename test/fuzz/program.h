#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pcg::fuzz {

/// What a value of a generated program is. Tensors have a dtype (`f`, `i` or
/// `b`) and symbolic sizes, one letter a dimension: `N` rows of the call's
/// input, `D` 4, `E` 2, `1` 1, `U` known to the data alone. Lists, dicts and
/// optionals of tensors carry those of their elements.
struct Type {
  enum class Kind {
    kTensor,
    kInt,
    kFloat,
    kBool,
    kTensorList,
    kIntList,
    kTuple,
    kDict,
    kOptional,
  };
  Kind kind = Kind::kTensor;
  char dtype = 'f';
  std::string dims;
  std::vector<Type> elements;  ///< Of a tuple.

  bool operator==(const Type& other) const;
  bool operator!=(const Type& other) const { return !(*this == other); }

  /// As written in TorchScript: `Dict[str, Tensor]`.
  std::string text() const;
};

Type tensorType(char dtype, std::string dims);
Type scalarType(Type::Kind kind);

/// TorchScript in which `$0`, `$1`, ... stand for the children.
struct Expression {
  Type type;
  std::string text;
  std::vector<Expression> children;

  std::string render() const;
};

/// A statement: lines of TorchScript in which `$0`, ... stand for expressions.
/// One with blocks ends in a colon and is followed by its first block; a second
/// one follows `else:`.
struct Statement {
  std::string before;  ///< Lines that precede it: a loop's counter.
  std::string text;
  std::string inside;  ///< Lines that the first block starts with.
  std::vector<Expression> expressions;
  std::vector<std::vector<Statement>> blocks;
};

using Block = std::vector<Statement>;

struct Variable {
  std::string name;
  Type type;
};

struct Function {
  std::string name;
  std::vector<Variable> parameters;
  Block body;
  Expression result;

  std::string render() const;
};

struct Attribute {
  enum class Role { kParameter, kBuffer, kPlain };
  std::string name;
  Type type;
  Role role = Role::kPlain;
};

/// A module's class and its one instance.
struct ModuleSource {
  std::string name;
  std::vector<Attribute> attributes;
  std::vector<Function> functions;
  std::vector<ModuleSource> children;

  /// The functions' text, without the children's.
  std::string render() const;
};

/// What the caller does before a call, to both sides alike.
struct Action {
  enum class Kind {
    kWriteKept,       // writes a result it holds
    kDropKept,        // lets go of results it holds
    kWriteParameter,  // writes a tensor attribute in place
    kSetData,         // gives a tensor attribute other memory
    kReplace,         // assigns another tensor to an attribute
    kSetScalar,       // assigns a host attribute
    kTrain,           // switches between train() and eval()
    kSaveAndLoad,     // goes on with what was loaded
  };
  Kind kind = Kind::kWriteKept;
  std::uint64_t seed = 0;
};

struct Call {
  std::string method;
  std::int64_t rows = 3;        ///< What `N` is.
  std::uint64_t host_seed = 0;  ///< Host scalars and structures of arguments.
  std::uint64_t seed = 0;       ///< Tensors' values, generator's seed.
  std::uint64_t sources = 0;    ///< Where argument tensors come from.
  bool fresh = true;            ///< All argument tensors are new ones.
  bool doubles = false;         ///< Floating-point arguments are float64.
  std::vector<Action> before;
};

enum class GradientMode { kOff, kOn, kInference };

/// Everything that one comparison depends on.
struct Program {
  std::uint64_t seed = 0;
  ModuleSource module;
  std::vector<Call> calls;
  std::int64_t min_segment_size = 1;
  std::int64_t max_keys = 64;
  bool make_capturable = true;
  bool optimized_executor = false;  ///< torch's default one.
  std::vector<std::string> no_graph_ops;
  std::vector<std::string> no_graph_scopes;
  GradientMode gradients = GradientMode::kOff;

  /// The modules' text and the calls, for people.
  std::string render() const;
};

}  // namespace pcg::fuzz
