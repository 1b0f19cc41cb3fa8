#include "test/fuzz/generator.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "test/fuzz/random.h"

namespace pcg::fuzz {
namespace {

using Kind = Type::Kind;
using Strings = std::vector<std::string>;

const Type kIntType = scalarType(Kind::kInt);
const Type kFloatType = scalarType(Kind::kFloat);
const Type kBoolType = scalarType(Kind::kBool);
const Type kIntListType = scalarType(Kind::kIntList);

// Every function's first parameter is `x`, [N, D].
const Type kRowsType = tensorType('f', "ND");

Type holderType(Kind kind, const std::string& dims) {
  return {kind, 'f', dims, {}};
}

std::string replaced(std::string text, const std::string& what,
                     const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

std::string number(std::size_t value) {
  return std::to_string(value);
}

std::string size(char dim) {
  switch (dim) {
    case 'N':
      return "x.size(0)";
    case 'D':
      return "4";
    case 'E':
      return "2";
    default:
      return "1";
  }
}

std::string sizes(const std::string& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += (i == 0 ? "" : ", ") + size(dims[i]);
  return text + "]";
}

bool dynamic(const Type& type) {
  return type.dims.find('U') != std::string::npos;
}

// A function that generated code may call, as `self.helper` or
// `self.sub.forward`.
struct Callable {
  std::string name;
  std::vector<Variable> parameters;
  Type result;
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {
    program_.seed = seed;
  }

  Program run() {
    ModuleSource& root = program_.module;
    root.name = "Model";
    if (random_.chance(35)) {
      ModuleSource child;
      child.name = "sub";
      addAttributes(child);
      readable_ = child.attributes;
      addFunction(child, "forward", 3);
      if (random_.chance(30))
        addFunction(child, "_tail", 2);
      for (const Function& function : child.functions) {
        child_callables_.push_back({"sub." + function.name, function.parameters,
                                    function.result.type});
      }
      root.children.push_back(std::move(child));
    }
    addAttributes(root);
    readable_ = root.attributes;
    callables_ = child_callables_;
    for (const ModuleSource& child : root.children) {
      for (Attribute attribute : child.attributes) {
        attribute.name = child.name + "." + attribute.name;
        readable_.push_back(std::move(attribute));
      }
    }
    if (random_.chance(40))
      addFunction(root, "_helper", 3);
    if (random_.chance(25))
      addFunction(root, "step", 4);
    addFunction(root, "forward", 5 + random_.below(8));
    addOptions();
    addCalls();
    return std::move(program_);
  }

 private:
  using Options =
      std::vector<std::pair<std::size_t, std::function<Expression()>>>;

  Expression choose(const Options& options) {
    std::size_t total = 0;
    for (const auto& option : options)
      total += option.first;
    std::size_t at = random_.below(total);
    for (const auto& option : options) {
      if (at < option.first)
        return option.second();
      at -= option.first;
    }
    return options.back().second();
  }

  // ---- modules --------------------------------------------------------------

  void addAttributes(ModuleSource& module) {
    const auto add = [&](std::size_t percent, const char* name, Type type,
                         Attribute::Role role) {
      if (random_.chance(percent))
        module.attributes.push_back({name, std::move(type), role});
    };
    using Role = Attribute::Role;
    add(80, "w", tensorType('f', "DD"), Role::kParameter);
    add(50, "b", tensorType('f', "D"), Role::kParameter);
    add(50, "buf", tensorType('f', "D"), Role::kBuffer);
    add(25, "grid", tensorType('f', "DD"), Role::kBuffer);
    add(40, "state", tensorType('f', "D"), Role::kBuffer);
    add(20, "table", tensorType('i', "D"), Role::kBuffer);
    add(15, "seen", tensorType('b', "D"), Role::kBuffer);
    add(10, "total", tensorType('f', ""), Role::kBuffer);
    add(30, "count", kIntType, Role::kPlain);
    add(25, "scale", kFloatType, Role::kPlain);
    add(20, "flag", kBoolType, Role::kPlain);
    add(20, "items", holderType(Kind::kTensorList, "D"), Role::kPlain);
    add(15, "cache", holderType(Kind::kDict, "D"), Role::kPlain);
    add(15, "last", holderType(Kind::kOptional, "D"), Role::kPlain);
    add(10, "lengths", kIntListType, Role::kPlain);
  }

  Type anyType() {
    const std::size_t pick = random_.below(100);
    if (pick < 62)
      return anyTensor();
    if (pick < 70)
      return kIntType;
    if (pick < 76)
      return kFloatType;
    if (pick < 80)
      return kBoolType;
    if (pick < 87)
      return holderType(Kind::kTensorList, holderDims());
    if (pick < 90)
      return kIntListType;
    if (pick < 94)
      return holderType(Kind::kDict, holderDims());
    if (pick < 97)
      return holderType(Kind::kOptional, holderDims());
    Type tuple{Kind::kTuple, '-', "", {}};
    tuple.elements.push_back(anyTensor());
    switch (random_.below(4)) {
      case 0:
        tuple.elements.push_back(kIntType);
        break;
      case 1:
        tuple.elements.push_back(holderType(Kind::kTensorList, holderDims()));
        break;
      case 2:
        tuple.elements.push_back(kFloatType);
        break;
      default:
        tuple.elements.push_back(anyTensor());
        break;
    }
    return tuple;
  }

  std::string holderDims() { return random_.oneOf<std::string>({"D", "ND"}); }

  Type anyTensor() {
    static const Strings dims = {"ND", "ND", "ND", "ND", "ND", "ND", "ND",
                                 "ND", "ND", "ND", "D",  "D",  "D",  "D",
                                 "DD", "DD", "N",  "N",  "",   "",   "DN",
                                 "NE", "E",  "N1", "1D", "NDE"};
    const std::size_t pick = random_.below(100);
    if (pick < 5)
      return tensorType('f', random_.oneOf<std::string>({"U", "UD"}));
    return tensorType(pick < 80   ? 'f'
                      : pick < 91 ? 'i'
                                  : 'b',
                      random_.oneOf(dims));
  }

  void addFunction(ModuleSource& module, const std::string& name,
                   std::size_t statements) {
    Function function;
    function.name = name;
    function.parameters.push_back({"x", kRowsType});
    const std::size_t more = random_.below(name == "forward" ? 5 : 3);
    for (std::size_t i = 0; i < more; ++i) {
      Type type = random_.chance(40) ? kRowsType : anyType();
      for (char& dim : type.dims)
        dim = dim == 'U' ? 'N' : dim;
      for (Type& element : type.elements) {
        for (char& dim : element.dims)
          dim = dim == 'U' ? 'N' : dim;
      }
      function.parameters.push_back({"p" + number(i), std::move(type)});
    }
    scope_ = function.parameters;
    parameters_ = scope_.size();
    names_ = 0;
    loops_ = 0;
    budget_ = statements;
    result_type_ = random_.chance(45) ? resultTuple() : anyType();
    function.body = block(0);
    function.result = value(result_type_, 2);
    callables_.push_back({name, function.parameters, result_type_});
    module.functions.push_back(std::move(function));
  }

  Type resultTuple() {
    Type tuple{Kind::kTuple, '-', "", {}};
    const std::size_t count = 2 + random_.below(3);
    for (std::size_t i = 0; i < count; ++i) {
      Type element = anyType();
      if (element.kind == Kind::kTuple)
        element = kRowsType;
      tuple.elements.push_back(std::move(element));
    }
    return tuple;
  }

  // ---- leaves ---------------------------------------------------------------

  // What may be read and has this type.
  Strings named(const Type& type) const {
    Strings names;
    for (const Variable& variable : scope_) {
      if (variable.type == type)
        names.push_back(variable.name);
      if (variable.type.kind != Kind::kTuple)
        continue;
      for (std::size_t i = 0; i < variable.type.elements.size(); ++i) {
        if (variable.type.elements[i] == type)
          names.push_back(variable.name + "[" + number(i) + "]");
      }
    }
    for (const Attribute& attribute : readable_) {
      if (attribute.type == type)
        names.push_back("self." + attribute.name);
    }
    return names;
  }

  std::optional<Expression> variable(const Type& type) {
    const Strings names = named(type);
    if (names.empty())
      return std::nullopt;
    // Later ones first: programs that use what they have computed.
    const std::size_t back = random_.below(names.size());
    const std::size_t again = random_.below(names.size());
    return Expression{type, names[std::max(back, again)], {}};
  }

  Expression leaf(const Type& want) {
    if (auto found = variable(want); found && !random_.chance(10))
      return *found;
    if (!dynamic(want) && random_.chance(75)) {
      if (auto derived = derivedFromRows(want))
        return *derived;
    }
    return constant(want);
  }

  // Made of a variable of the commonest type, so that later statements depend
  // on earlier ones.
  std::optional<Expression> derivedFromRows(const Type& want) {
    static const std::vector<std::pair<std::string, std::string>> forms = {
        {"", "$0.sum()"},          {"D", "$0.sum(0)"},     {"N", "$0[:, 1]"},
        {"DN", "$0.t()"},          {"NE", "$0[:, :2]"},    {"N1", "$0[:, 3:]"},
        {"1D", "$0.sum(0, True)"}, {"E", "$0.sum(0)[:2]"}, {"ND", "$0"},
        {"DD", "($0.t() @ $0)"}};
    for (const auto& [dims, text] : forms) {
      if (dims != want.dims)
        continue;
      Expression derived{want, text, {*variable(kRowsType)}};
      if (want.dtype == 'b')
        derived.text = "(" + text + " > 0.0)";
      if (want.dtype == 'i')
        derived.text = "(" + text + " > 0.0).long()";
      return derived;
    }
    return std::nullopt;
  }

  Expression constant(const Type& want) {
    const std::string shape = sizes(want.dims);
    if (dynamic(want)) {
      if (want.dtype == 'f' && want.dims == "U")
        return {want,
                "torch.masked_select($0, $1)",
                {leaf(kRowsType), {tensorType('b', "ND"), "(x > 0.0)", {}}}};
      if (want.dtype == 'f' && want.dims == "UD")
        return {want, "$0[x.sum(1) > 0.0]", {leaf(kRowsType)}};
      if (want.dtype == 'i')
        return {want,
                "torch.nonzero($0).sum(1)",
                {{tensorType('b', "ND"), "(x > 0.0)", {}}}};
      return {want, "(torch.masked_select(x, x > 0.5) > 1.0)", {}};
    }
    if (want.dtype == 'i') {
      if (random_.chance(20))
        return {want, "torch.randint(0, 4, " + shape + ")", {}};
      if (want.dims.size() == 1)
        return {want, "torch.arange(" + size(want.dims[0]) + ")", {}};
      return {want,
              "torch.full(" + shape + ", " + number(random_.below(4)) + ")",
              {}};
    }
    if (want.dtype == 'b') {
      return {want,
              "(torch.ones(" + shape + ") > " +
                  (random_.chance(50) ? "0.0" : "1.0") + ")",
              {}};
    }
    switch (random_.below(6)) {
      case 0:
        return {want, "torch.rand(" + shape + ")", {}};
      case 1:
        return {want, "torch.zeros(" + shape + ")", {}};
      case 2:
        return {want, "torch.full(" + shape + ", 0.5)", {}};
      case 3:
        if (want.dims == "ND")
          return {want, "torch.zeros_like(x)", {}};
        if (want.dims == "D")
          return {want, "x.sum(0)", {}};
        if (want.dims == "N")
          return {want, "x[:, 1]", {}};
        if (want.dims.empty())
          return {want, "x.mean()", {}};
        [[fallthrough]];
      default:
        return {want, "torch.ones(" + shape + ")", {}};
    }
  }

  // ---- tensors --------------------------------------------------------------

  // An operand that can be broadcast to `want`.
  Expression operand(const Type& want, int depth) {
    Type type = want;
    if (!dynamic(want) && !want.dims.empty() && random_.chance(30)) {
      if (random_.chance(25)) {
        type.dims[random_.below(type.dims.size())] = '1';
      } else {
        type.dims = type.dims.substr(1 + random_.below(type.dims.size()));
      }
    } else if (dynamic(want)) {
      type.dims.clear();
    }
    return tensor(type, depth);
  }

  Expression mask(const Type& like, int depth) {
    return tensor(tensorType('b', like.dims), depth);
  }

  // An index into a dimension of size 4.
  Expression rows(const std::string& dims, int depth) {
    return {tensorType('i', dims),
            "($0 % 4)",
            {tensor(tensorType('i', dims), depth)}};
  }

  Expression place(int depth) {
    if (random_.chance(60))
      return {kIntType, number(random_.below(4)), {}};
    return {kIntType, "($0 % 4)", {integer(depth)}};
  }

  Expression unary(const Type& want, const std::string& text, int depth) {
    return {want, text, {tensor(want, depth)}};
  }

  void addViews(const Type& want, int depth, Options& options) {
    const std::string& dims = want.dims;
    const auto with = [&](std::string other) {
      Type type = want;
      type.dims = std::move(other);
      return type;
    };
    if (dims.size() < 3) {
      const std::size_t at = random_.below(dims.size() + 1);
      const std::string p = number(at);
      std::string wider = dims;
      wider.insert(at, 1, 'D');
      options.push_back({2, [=] {
                           return Expression{
                               want,
                               "$0.select(" + p + ", $1)",
                               {tensor(with(wider), depth), place(depth)}};
                         }});
      options.push_back({1, [=] {
                           const std::string k = number(random_.below(4));
                           return Expression{want,
                                             "$0.unbind(" + p + ")[" + k + "]",
                                             {tensor(with(wider), depth)}};
                         }});
      std::string longer = dims;
      longer.insert(at, 1, '1');
      options.push_back({1, [=] {
                           return Expression{want,
                                             "$0.squeeze(" + p + ")",
                                             {tensor(with(longer), depth)}};
                         }});
    }
    if (dims.empty())
      return;
    const std::size_t at = random_.below(dims.size());
    const std::string p = number(at);
    if (dims[at] == '1') {
      std::string shorter = dims;
      shorter.erase(at, 1);
      options.push_back({3, [=] {
                           return Expression{want,
                                             "$0.unsqueeze(" + p + ")",
                                             {tensor(with(shorter), depth)}};
                         }});
    }
    if (dims[at] == 'E') {
      std::string wider = dims;
      wider[at] = 'D';
      options.push_back(
          {5, [=] {
             static const Strings forms = {
                 "$0.narrow(P, K, 2)", "$0.chunk(2, P)[H]", "$0.split(2, P)[H]",
                 "torch.slice($0, P, H, 4, 2)"};
             std::string text = random_.oneOf(forms);
             text = replaced(text, "P", p);
             text = replaced(text, "K", number(random_.below(3)));
             text = replaced(text, "H", number(random_.below(2)));
             return Expression{want, text, {tensor(with(wider), depth)}};
           }});
    }
    if (dims[at] == 'D' || dims[at] == 'N') {
      std::string narrow = dims;
      narrow[at] = '1';
      options.push_back({1, [=] {
                           return Expression{want,
                                             "$0.expand(" + sizes(dims) + ")",
                                             {tensor(with(narrow), depth)}};
                         }});
    }
    if (dims.size() >= 2) {
      std::string turned = dims;
      std::swap(turned[0], turned[1]);
      options.push_back({3, [=] {
                           return Expression{want,
                                             "$0.transpose(0, 1)",
                                             {tensor(with(turned), depth)}};
                         }});
      options.push_back({1, [=] {
                           const char* form =
                               random_.chance(50) ? ".reshape(" : ".view(";
                           return Expression{want,
                                             "$0" + (form + sizes(dims)) + ")",
                                             {tensor(with(turned), depth)}};
                         }});
    }
    if (dims == "D" && !dynamic(want)) {
      options.push_back({1, [=] {
                           return Expression{want,
                                             "$0.diagonal()",
                                             {tensor(with("DD"), depth)}};
                         }});
    }
  }

  void addHolders(const Type& want, Options& options) {
    if (want.dtype != 'f')
      return;
    for (const std::string& name :
         named(holderType(Kind::kTensorList, want.dims))) {
      options.push_back({2, [=] {
                           const char* k = random_.chance(50) ? "0" : "-1";
                           return Expression{want,
                                             "(" + name + "[" + k +
                                                 "] if len(" + name +
                                                 ") > 0 else $0)",
                                             {leaf(want)}};
                         }});
      if (want.dims == "D") {
        options.push_back({1, [=] {
                             return Expression{want,
                                               "(torch.stack(" + name +
                                                   ").sum(0) if len(" + name +
                                                   ") > 0 else $0)",
                                               {leaf(want)}};
                           }});
      }
    }
    for (const std::string& name : named(holderType(Kind::kDict, want.dims))) {
      options.push_back({2, [=] {
                           return Expression{want,
                                             "(" + name +
                                                 "[\"a\"] if \"a\" in " + name +
                                                 " else $0)",
                                             {leaf(want)}};
                         }});
    }
    for (const Variable& known : scope_) {
      if (known.type != holderType(Kind::kOptional, want.dims))
        continue;
      options.push_back({3, [=] {
                           return Expression{want,
                                             "(" + known.name + " if " +
                                                 known.name +
                                                 " is not None else $0)",
                                             {leaf(want)}};
                         }});
    }
  }

  void addCallsOf(const Type& want, int depth, Options& options) {
    for (const Callable& callable : callables_) {
      if (callable.result == want) {
        options.push_back({6, [=] { return callOf(callable, depth, ""); }});
      }
      for (std::size_t i = 0; i < callable.result.elements.size(); ++i) {
        if (callable.result.elements[i] == want) {
          options.push_back({3, [=] {
                               Expression call = callOf(callable, depth,
                                                        "[" + number(i) + "]");
                               call.type = want;
                               return call;
                             }});
        }
      }
    }
  }

  Expression callOf(const Callable& callable, int depth,
                    const std::string& suffix) {
    Expression call{callable.result, "self." + callable.name + "(", {}};
    for (std::size_t i = 0; i < callable.parameters.size(); ++i) {
      call.text += (i == 0 ? "$" : ", $") + number(i);
      call.children.push_back(
          value(callable.parameters[i].type, std::min(depth, 1)));
    }
    call.text += ")" + suffix;
    return call;
  }

  Expression tensor(const Type& want, int depth) {
    if (depth <= 0)
      return leaf(want);
    --depth;
    Options options;
    options.push_back({5, [=] { return leaf(want); }});
    if (dynamic(want)) {
      if (want.dtype == 'f') {
        options.push_back({5, [=] {
                             static const Strings forms = {
                                 "torch.relu($0)", "$0.clone()", "($0 * 2.0)",
                                 "torch.tanh($0)", "$0.flip(0)"};
                             return unary(want, random_.oneOf(forms), depth);
                           }});
        options.push_back({3, [=] {
                             return Expression{
                                 want,
                                 "($0 * $1)",
                                 {tensor(want, depth), operand(want, depth)}};
                           }});
      }
      return choose(options);
    }
    addViews(want, depth, options);
    addHolders(want, options);
    addCallsOf(want, depth, options);
    options.push_back({1, [=] {
                         return Expression{want,
                                           "($0 if $1 else $2)",
                                           {tensor(want, depth), boolean(depth),
                                            tensor(want, depth)}};
                       }});
    options.push_back({1, [=] {
                         static const Strings forms = {
                             "$0.clone()", "$0.contiguous()", "$0.detach()"};
                         return unary(want, random_.oneOf(forms), depth);
                       }});
    options.push_back(
        {1, [=] {
           return Expression{
               want,
               "torch.where($0, $1, $2)",
               {mask(want, depth), tensor(want, depth), tensor(want, depth)}};
         }});
    if (want.dtype == 'f')
      addFloats(want, depth, options);
    else if (want.dtype == 'i')
      addIntegers(want, depth, options);
    else
      addMasks(want, depth, options);
    return choose(options);
  }

  void addFloats(const Type& want, int depth, Options& options) {
    const std::string& dims = want.dims;
    options.push_back({14, [=] {
                         static const Strings forms = {
                             "torch.relu($0)",
                             "torch.tanh($0)",
                             "torch.sigmoid($0)",
                             "torch.exp($0.clamp(-5.0, 5.0))",
                             "torch.neg($0)",
                             "torch.abs($0)",
                             "torch.cos($0)",
                             "torch.nan_to_num($0)",
                             "torch.rsqrt($0.abs() + 1.0)",
                             "$0.clamp(-1.0, 1.0)",
                             "$0.add(1)",
                             "torch.gelu($0)",
                             "torch.leaky_relu($0, 0.1)",
                             "torch.ones_like($0)",
                             "torch.zeros_like($0)"};
                         return unary(want, random_.oneOf(forms), depth);
                       }});
    options.push_back(
        {12, [=] {
           static const Strings forms = {"($0 + $1)",
                                         "($0 - $1)",
                                         "($0 * $1)",
                                         "torch.maximum($0, $1)",
                                         "torch.minimum($0, $1)",
                                         "torch.atan2($0, $1)",
                                         "torch.div($0, $1.abs() + 1.0)"};
           return Expression{want,
                             random_.oneOf(forms),
                             {tensor(want, depth), operand(want, depth)}};
         }});
    options.push_back(
        {5, [=] {
           static const Strings forms = {"($0 * $1)", "($0 + $1)", "($0 - $1)",
                                         "torch.clamp_min($0, $1)"};
           return Expression{want,
                             random_.oneOf(forms),
                             {tensor(want, depth), floating(depth)}};
         }});
    options.push_back({2, [=] {
                         const bool whole = random_.chance(50);
                         return Expression{
                             want,
                             "torch.add($0, $1, alpha=$2)",
                             {tensor(want, depth), operand(want, depth),
                              whole ? integer(depth) : floating(depth)}};
                       }});
    options.push_back(
        {1, [=] {
           return Expression{
               want,
               "($0 * $1.item())",
               {tensor(want, depth), tensor(tensorType('f', ""), depth)}};
         }});
    options.push_back(
        {2, [=] {
           return Expression{
               want,
               "torch.masked_fill($0, $1, $2)",
               {tensor(want, depth), mask(want, depth), floating(depth)}};
         }});
    options.push_back({2, [=] {
                         static const Strings forms = {
                             "torch.dropout($0, 0.5, self.training)",
                             "torch.dropout($0, 0.5, True)",
                             "torch.rand_like($0)",
                             "torch.randn_like($0)",
                             "torch.bernoulli(torch.sigmoid($0))",
                             "($0 + torch.rand(S))"};
                         const std::string form = random_.oneOf(forms);
                         return unary(want, replaced(form, "S", sizes(dims)),
                                      depth);
                       }});
    options.push_back(
        {2, [=] {
           const char from = random_.chance(50) ? 'i' : 'b';
           return Expression{
               want, "$0.float()", {tensor(tensorType(from, dims), depth)}};
         }});
    if (dims.empty()) {
      options.push_back(
          {8, [=] {
             static const Strings forms = {
                 "$0.sum()",  "$0.mean()", "$0.max()",      "$0.norm()",
                 "$0.prod()", "$0.min()",  "$0.abs().max()"};
             Type type = anyTensor();
             type.dtype = 'f';
             return Expression{
                 want, random_.oneOf(forms), {tensor(type, depth)}};
           }});
      options.push_back(
          {2, [=] {
             return Expression{want, "torch.tensor($0)", {floating(depth)}};
           }});
    } else {
      options.push_back({1, [=] {
                           return Expression{
                               want,
                               "torch.full(" + sizes(dims) + ", $0)",
                               {floating(depth)}};
                         }});
    }
    if (dims.size() < 3) {
      const std::size_t at = random_.below(dims.size() + 1);
      const char extra = random_.oneOf<char>({'N', 'D', 'D'});
      std::string wider = dims;
      wider.insert(at, 1, extra);
      options.push_back(
          {5, [=] {
             static const Strings forms = {
                 "$0.sum(P)",          "$0.mean(P)", "torch.logsumexp($0, P)",
                 "$0.max(P)[0]",       "$0.amax(P)", "$0.norm(2, P)",
                 "torch.min($0, P)[0]"};
             return Expression{want,
                               replaced(random_.oneOf(forms), "P", number(at)),
                               {tensor(tensorType('f', wider), depth)}};
           }});
    }
    if (!dims.empty()) {
      const std::size_t at = random_.below(dims.size());
      const std::string p = number(at);
      options.push_back(
          {4, [=] {
             static const Strings forms = {
                 "torch.softmax($0, P)", "torch.cumsum($0, P)",
                 "torch.flip($0, [P])",  "torch.roll($0, 1, P)",
                 "torch.sort($0, P)[0]", "torch.log_softmax($0, P)"};
             return unary(want, replaced(random_.oneOf(forms), "P", p), depth);
           }});
      if (dims[at] == 'D') {
        std::string half = dims;
        half[at] = 'E';
        options.push_back({2, [=] {
                             const Type type = tensorType('f', half);
                             return Expression{
                                 want,
                                 "torch.cat([$0, $1], " + p + ")",
                                 {tensor(type, depth), tensor(type, depth)}};
                           }});
      }
      if (dims[at] == 'E') {
        std::string less = dims;
        less.erase(at, 1);
        options.push_back({2, [=] {
                             const Type type = tensorType('f', less);
                             return Expression{
                                 want,
                                 "torch.stack([$0, $1], " + p + ")",
                                 {tensor(type, depth), tensor(type, depth)}};
                           }});
      }
      if (dims[at] == '1') {
        std::string wider = dims;
        wider[at] = 'D';
        options.push_back({2, [=] {
                             return Expression{
                                 want,
                                 "$0.sum(" + p + ", True)",
                                 {tensor(tensorType('f', wider), depth)}};
                           }});
      }
      std::string table = dims;
      table[0] = 'D';
      options.push_back({3, [=] {
                           static const Strings forms = {
                               "$0[$1]", "torch.index_select($0, 0, $1)"};
                           return Expression{
                               want,
                               random_.oneOf(forms),
                               {tensor(tensorType('f', table), depth),
                                rows(dims.substr(0, 1), depth)}};
                         }});
      options.push_back({1, [=] {
                           static const Strings forms = {
                               "torch.index_put($0, [$1], $2)",
                               "torch.index_put($0, [$1], $2, True)",
                               "torch.index_add($0, 0, $1, $2)"};
                           const std::string rest = dims.substr(1);
                           return Expression{
                               want,
                               random_.oneOf(forms),
                               {tensor(tensorType('f', table), depth),
                                rows("E", depth),
                                tensor(tensorType('f', "E" + rest), depth)}};
                         }});
    }
    if (dims.size() == 2) {
      options.push_back(
          {4, [=] {
             return Expression{
                 want,
                 "($0 @ $1)",
                 {tensor(tensorType('f', {dims[0], 'D'}), depth),
                  tensor(tensorType('f', {'D', dims[1]}), depth)}};
           }});
      if (dims[1] == 'D') {
        options.push_back(
            {2, [=] {
               return Expression{
                   want,
                   "torch.linear($0, $1, $2)",
                   {tensor(tensorType('f', {dims[0], 'D'}), depth),
                    tensor(tensorType('f', "DD"), depth),
                    tensor(tensorType('f', "D"), depth)}};
             }});
        options.push_back({1, [=] {
                             return Expression{
                                 want,
                                 "torch.embedding($0, $1)",
                                 {tensor(tensorType('f', "DD"), depth),
                                  rows(dims.substr(0, 1), depth)}};
                           }});
      }
    }
    if (dims.size() == 1) {
      options.push_back({2, [=] {
                           return Expression{
                               want,
                               "($0 @ $1)",
                               {tensor(tensorType('f', dims + "D"), depth),
                                tensor(tensorType('f', "D"), depth)}};
                         }});
    }
    if (dims == "D") {
      options.push_back(
          {1, [=] {
             return Expression{
                 want, "$0.sum(0)", {tensor(tensorType('f', "UD"), depth)}};
           }});
    }
  }

  void addIntegers(const Type& want, int depth, Options& options) {
    const std::string& dims = want.dims;
    options.push_back({4, [=] {
                         static const Strings forms = {"($0 + $1)", "($0 * $1)",
                                                       "torch.maximum($0, $1)"};
                         return Expression{
                             want,
                             random_.oneOf(forms),
                             {tensor(want, depth), operand(want, depth)}};
                       }});
    options.push_back(
        {3, [=] {
           static const Strings forms = {"($0 + $1)", "($0 * $1)", "($0 - $1)"};
           return Expression{want,
                             random_.oneOf(forms),
                             {tensor(want, depth), integer(depth)}};
         }});
    options.push_back({3, [=] {
                         return Expression{
                             want,
                             "torch.nan_to_num($0).clamp(-3, 3).long()",
                             {tensor(tensorType('f', dims), depth)}};
                       }});
    options.push_back(
        {2, [=] {
           return Expression{want, "$0.long()", {mask(want, depth)}};
         }});
    if (dims.size() < 3) {
      const std::size_t at = random_.below(dims.size() + 1);
      std::string wider = dims;
      wider.insert(at, 1, 'D');
      options.push_back(
          {3, [=] {
             static const Strings forms = {"torch.argmax($0, P)",
                                           "$0.max(P)[1]", "($0 > 0.0).sum(P)"};
             return Expression{want,
                               replaced(random_.oneOf(forms), "P", number(at)),
                               {tensor(tensorType('f', wider), depth)}};
           }});
    }
    if (dims.empty()) {
      options.push_back(
          {2, [=] {
             return Expression{want, "torch.tensor($0)", {integer(depth)}};
           }});
    } else {
      options.push_back({2, [=] {
                           return Expression{
                               want,
                               "torch.sort($0, 0)[1]",
                               {tensor(tensorType('f', dims), depth)}};
                         }});
    }
  }

  void addMasks(const Type& want, int depth, Options& options) {
    const std::string& dims = want.dims;
    const Type floats = tensorType('f', dims);
    options.push_back({6, [=] {
                         static const Strings forms = {
                             "($0 > $1)", "($0 <= $1)", "($0 == $1)"};
                         return Expression{
                             want,
                             random_.oneOf(forms),
                             {tensor(floats, depth), operand(floats, depth)}};
                       }});
    options.push_back(
        {4, [=] {
           return Expression{
               want, "($0 > $1)", {tensor(floats, depth), floating(depth)}};
         }});
    options.push_back(
        {2, [=] {
           static const Strings forms = {"($0 & $1)", "($0 | $1)", "($0 ^ $1)"};
           return Expression{want,
                             random_.oneOf(forms),
                             {tensor(want, depth), operand(want, depth)}};
         }});
    options.push_back({2, [=] { return unary(want, "(~$0)", depth); }});
    options.push_back(
        {1, [=] {
           return Expression{want, "torch.isnan($0)", {tensor(floats, depth)}};
         }});
    options.push_back(
        {1, [=] {
           return Expression{
               want,
               "($0 == $1)",
               {tensor(tensorType('i', dims), depth), integer(depth)}};
         }});
  }

  // ---- host values ----------------------------------------------------------

  Type floatTensor() {
    Type type = anyTensor();
    type.dtype = 'f';
    return type;
  }

  Expression integer(int depth) {
    Options options;
    options.push_back(
        {5, [=] {
           return Expression{kIntType, number(random_.below(5)), {}};
         }});
    options.push_back(
        {4, [=] {
           auto found = variable(kIntType);
           return found ? *found : Expression{kIntType, "x.size(0)", {}};
         }});
    options.push_back({2, [=] {
                         static const Strings forms = {"x.size(0)", "len(x)",
                                                       "x.dim()", "x.numel()",
                                                       "x.size(-1)"};
                         return Expression{kIntType, random_.oneOf(forms), {}};
                       }});
    if (depth > 0) {
      --depth;
      options.push_back({3, [=] {
                           static const Strings forms = {
                               "($0 + $1)",   "($0 - $1)",
                               "($0 * $1)",   "max($0, $1)",
                               "min($0, $1)", "($0 // ($1 * $1 + 1))"};
                           return Expression{kIntType,
                                             random_.oneOf(forms),
                                             {integer(depth), integer(depth)}};
                         }});
      options.push_back(
          {2, [=] {
             static const Strings forms = {"int($0.item())", "int($0)"};
             return Expression{kIntType,
                               random_.oneOf(forms),
                               {{tensorType('f', ""),
                                 "torch.nan_to_num($0).clamp(-3.0, 3.0)",
                                 {tensor(tensorType('f', ""), depth)}}}};
           }});
      options.push_back({1, [=] {
                           return Expression{
                               kIntType,
                               "int($0.item())",
                               {tensor(tensorType('i', ""), depth)}};
                         }});
      options.push_back(
          {1, [=] {
             return Expression{
                 kIntType, "$0.size(0)", {tensor(tensorType('f', "U"), depth)}};
           }});
      options.push_back({1, [=] {
                           return Expression{kIntType,
                                             "($0 if $1 else $2)",
                                             {integer(depth), boolean(depth),
                                              integer(depth)}};
                         }});
      for (const Type& type : {kIntListType, holderType(Kind::kTensorList, "D"),
                               holderType(Kind::kTensorList, "ND"),
                               holderType(Kind::kDict, "D")}) {
        for (const std::string& name : named(type)) {
          options.push_back(
              {1, [=] {
                 return Expression{kIntType, "len(" + name + ")", {}};
               }});
        }
      }
      for (const std::string& name : named(kIntListType)) {
        options.push_back({2, [=] {
                             return Expression{kIntType,
                                               "(" + name + "[-1] if len(" +
                                                   name + ") > 0 else $0)",
                                               {integer(depth)}};
                           }});
      }
      addCallsOf(kIntType, depth, options);
    }
    return choose(options);
  }

  Expression floating(int depth) {
    Options options;
    options.push_back(
        {5, [=] {
           static const Strings values = {"0.0", "1.0", "0.5", "-0.25", "2.0"};
           return Expression{kFloatType, random_.oneOf(values), {}};
         }});
    options.push_back(
        {4, [=] {
           auto found = variable(kFloatType);
           return found ? *found : Expression{kFloatType, "0.75", {}};
         }});
    if (depth > 0) {
      --depth;
      options.push_back(
          {2, [=] {
             return Expression{kFloatType, "float($0)", {integer(depth)}};
           }});
      options.push_back({3, [=] {
                           static const Strings forms = {
                               "($0 + $1)", "($0 * $1)", "max($0, $1)"};
                           return Expression{
                               kFloatType,
                               random_.oneOf(forms),
                               {floating(depth), floating(depth)}};
                         }});
      options.push_back(
          {3, [=] {
             static const Strings forms = {"float($0.item())", "float($0)"};
             return Expression{kFloatType,
                               random_.oneOf(forms),
                               {tensor(tensorType('f', ""), depth)}};
           }});
      addCallsOf(kFloatType, depth, options);
    }
    return choose(options);
  }

  Expression boolean(int depth) {
    Options options;
    options.push_back(
        {2, [=] {
           return Expression{
               kBoolType, random_.chance(50) ? "True" : "False", {}};
         }});
    options.push_back(
        {4, [=] {
           auto found = variable(kBoolType);
           return found ? *found : Expression{kBoolType, "self.training", {}};
         }});
    options.push_back({4, [=] {
                         static const Strings forms = {
                             "(x.size(0) > 3)",   "(x.size(0) == 3)",
                             "x.is_contiguous()", "torch.is_grad_enabled()",
                             "(x.dim() == 2)",    "self.training",
                             "x.requires_grad"};
                         return Expression{kBoolType, random_.oneOf(forms), {}};
                       }});
    if (depth > 0) {
      --depth;
      options.push_back({4, [=] {
                           static const Strings forms = {
                               "($0 > $1)", "($0 == $1)", "($0 < $1)",
                               "($0 % 2 == $1 % 2)"};
                           return Expression{kBoolType,
                                             random_.oneOf(forms),
                                             {integer(depth), integer(depth)}};
                         }});
      options.push_back(
          {2, [=] {
             return Expression{
                 kBoolType, "($0 < $1)", {floating(depth), floating(depth)}};
           }});
      options.push_back({5, [=] {
                           static const Strings forms = {
                               "bool($0.sum() > 0)", "bool(($0 > 0.5).any())",
                               "bool(torch.isnan($0).any())"};
                           Type type = floatTensor();
                           return Expression{kBoolType,
                                             random_.oneOf(forms),
                                             {tensor(type, depth)}};
                         }});
      options.push_back(
          {1, [=] {
             return Expression{
                 kBoolType, "bool($0)", {tensor(tensorType('b', ""), depth)}};
           }});
      options.push_back({1, [=] {
                           Type type = floatTensor();
                           return Expression{
                               kBoolType,
                               "torch.equal($0, $1)",
                               {tensor(type, depth), tensor(type, depth)}};
                         }});
      options.push_back(
          {2, [=] {
             return Expression{kBoolType, "(not $0)", {boolean(depth)}};
           }});
      options.push_back({2, [=] {
                           return Expression{kBoolType,
                                             random_.chance(50) ? "($0 and $1)"
                                                                : "($0 or $1)",
                                             {boolean(depth), boolean(depth)}};
                         }});
      for (const std::string& name : named(holderType(Kind::kOptional, "D"))) {
        options.push_back(
            {2, [=] {
               return Expression{kBoolType, "(" + name + " is None)", {}};
             }});
      }
      for (const std::string& name : named(holderType(Kind::kDict, "D"))) {
        options.push_back(
            {2, [=] {
               return Expression{kBoolType, "(\"a\" in " + name + ")", {}};
             }});
      }
      addCallsOf(kBoolType, depth, options);
    }
    return choose(options);
  }

  // A value of any type.
  Expression value(const Type& type, int depth) {
    const Type element = tensorType(type.dtype, type.dims);
    const auto existing = [&](std::size_t percent) {
      auto found = variable(type);
      if (found && !random_.chance(percent))
        found.reset();
      return found;
    };
    switch (type.kind) {
      case Kind::kTensor:
        if (auto found = existing(depth < 3 ? 40 : 0))
          return *found;
        return tensor(type, depth);
      case Kind::kInt:
        return integer(depth);
      case Kind::kFloat:
        return floating(depth);
      case Kind::kBool:
        return boolean(depth);
      case Kind::kTensorList: {
        if (auto found = existing(60))
          return *found;
        if (depth > 0 && random_.chance(20)) {
          Options options;
          addCallsOf(type, depth - 1, options);
          if (!options.empty())
            return choose(options);
        }
        if (random_.chance(12)) {
          Type wider = element;
          wider.dims.insert(0, 1, 'D');
          const bool unbind = random_.chance(60);
          return {type,
                  unbind ? "list($0.unbind(0))" : "[$0[0], $0[1]]",
                  {tensor(wider, depth - 1)}};
        }
        const std::size_t count = 1 + random_.below(3);
        Expression list{type, "[", {}};
        for (std::size_t i = 0; i < count; ++i) {
          list.text += (i == 0 ? "$" : ", $") + number(i);
          list.children.push_back(tensor(element, depth - 1));
        }
        list.text += "]";
        return list;
      }
      case Kind::kIntList: {
        if (auto found = existing(60))
          return *found;
        if (random_.chance(20))
          return {type, "$0.size()", {tensor(floatTensor(), depth - 1)}};
        return {type, "[$0, $1]", {integer(depth - 1), integer(depth - 1)}};
      }
      case Kind::kDict: {
        if (auto found = existing(60))
          return *found;
        if (random_.chance(30))
          return {type, "{\"b\": $0}", {tensor(element, depth - 1)}};
        return {type,
                "{\"a\": $0, \"b\": $1}",
                {tensor(element, depth - 1), tensor(element, depth - 1)}};
      }
      case Kind::kOptional: {
        if (auto found = existing(50))
          return *found;
        return tensorAsOptional(type, depth);
      }
      case Kind::kTuple:
        break;
    }
    if (auto found = existing(40))
      return *found;
    Expression tuple{type, "(", {}};
    for (std::size_t i = 0; i < type.elements.size(); ++i) {
      tuple.text += (i == 0 ? "$" : ", $") + number(i);
      tuple.children.push_back(value(type.elements[i], depth - 1));
    }
    tuple.text += ")";
    return tuple;
  }

  Expression tensorAsOptional(const Type& type, int depth) {
    if (random_.chance(25))
      return {type, "None", {}};
    Expression inner = tensor(tensorType(type.dtype, type.dims), depth - 1);
    return {type, "$0", {std::move(inner)}};
  }

  // ---- statements -----------------------------------------------------------

  std::string newName() { return "v" + number(names_++); }

  Block block(int depth) {
    Block result;
    const std::size_t outer = scope_.size();
    const std::size_t most = depth == 0 ? budget_ : 1 + random_.below(4);
    for (std::size_t i = 0; i < most && budget_ > 0; ++i) {
      --budget_;
      result.push_back(statement(depth));
    }
    scope_.resize(outer);
    return result;
  }

  Statement statement(int depth) {
    const std::size_t pick = random_.below(100);
    if (pick < 27)
      return declaration();
    if (pick < 34)
      return alias();
    if (pick < 44)
      return assignment();
    if (pick < 62)
      return inPlace();
    if (pick < 67)
      return holderWrite();
    if (pick < 74)
      return attributeWrite();
    if (pick < 76)
      return raising();
    if (pick < 79)
      return earlyReturn();
    if (pick < 83 && loops_ > 0)
      return leavingLoop();
    if (pick < 85)
      return discardedCall();
    if (depth >= 3)
      return assignment();
    return compound(depth);
  }

  Statement declare(const Type& type, Expression expression) {
    const std::string name = newName();
    const bool annotated =
        type.kind == Kind::kOptional || type.kind == Kind::kTensorList;
    Statement result;
    result.text = name + (annotated ? ": " + type.text() : "") + " = $0";
    result.expressions.push_back(std::move(expression));
    scope_.push_back({name, type});
    return result;
  }

  Statement declaration() {
    Type type = anyType();
    if (random_.chance(40)) {
      // Of use for the result.
      type = result_type_.kind == Kind::kTuple
                 ? random_.oneOf(result_type_.elements)
                 : result_type_;
    }
    if (type.kind == Kind::kTensorList && random_.chance(25))
      return declare(type, {type, "[]", {}});
    return declare(type, value(type, 3));
  }

  // The names that may be written: local ones, parameters, attributes.
  struct Target {
    std::string name;
    Type type;
    bool local = false;
    bool assignable = true;
  };

  std::vector<Target> targets(const std::function<bool(const Type&)>& fits) {
    std::vector<Target> result;
    for (std::size_t i = 0; i < scope_.size(); ++i) {
      if (fits(scope_[i].type))
        result.push_back({scope_[i].name, scope_[i].type, i >= parameters_,
                          scope_[i].name != "x"});
    }
    for (const Attribute& attribute : readable_) {
      if (fits(attribute.type)) {
        result.push_back({"self." + attribute.name, attribute.type, false,
                          attribute.role != Attribute::Role::kParameter});
      }
    }
    return result;
  }

  // A view of a variable, and its type.
  Expression viewOf(const Target& base) {
    Expression whole{base.type, base.name, {}};
    if (random_.chance(45))
      return whole;
    return viewOf(std::move(whole));
  }

  Expression viewOf(Expression base) {
    Type type = base.type;
    std::string& dims = type.dims;
    if (dims.empty())
      return {type, "$0.view([1]).view([])", {std::move(base)}};
    const std::size_t at = random_.below(dims.size());
    const std::string p = number(at);
    switch (random_.below(6)) {
      case 0:
        if (dims.size() >= 2) {
          std::swap(dims[0], dims[1]);
          return {type, "$0.transpose(0, 1)", {std::move(base)}};
        }
        [[fallthrough]];
      case 1:
      case 2:
        if (dims[at] == 'D') {
          if (random_.chance(50)) {
            dims.erase(at, 1);
            return {
                type, "$0.select(" + p + ", $1)", {std::move(base), place(1)}};
          }
          dims[at] = 'E';
          static const Strings forms = {
              "$0.narrow(P, 1, 2)", "$0.chunk(2, P)[1]", "$0.split(2, P)[0]",
              "torch.slice($0, P, 0, 4, 2)"};
          return {
              type, replaced(random_.oneOf(forms), "P", p), {std::move(base)}};
        }
        [[fallthrough]];
      case 3:
        if (dims.size() < 3) {
          dims.insert(at, 1, '1');
          return {type, "$0.unsqueeze(" + p + ")", {std::move(base)}};
        }
        [[fallthrough]];
      case 4:
        if (dims == "DD") {
          dims = "D";
          return {type, "$0.diagonal()", {std::move(base)}};
        }
        [[fallthrough]];
      default:
        return {type,
                random_.chance(50) ? "$0.view_as($0)" : "$0.detach()",
                {std::move(base)}};
    }
  }

  Statement alias() {
    const auto found = targets([](const Type& type) {
      return type.kind == Kind::kTensor && !dynamic(type);
    });
    Expression view = viewOf(random_.oneOf(found));
    const Type type = view.type;
    return declare(type, std::move(view));
  }

  Statement assignment() {
    std::vector<Target> found;
    for (Target& target : targets([](const Type&) { return true; })) {
      if (target.name.find('.') == std::string::npos && target.assignable &&
          target.name.find('i') == std::string::npos) {
        found.push_back(std::move(target));
      }
    }
    if (found.empty())
      return declaration();
    const Target target = random_.oneOf(found);
    Statement result;
    result.text = target.name + " = $0";
    // Between assignments TorchScript takes an optional for what it was last
    // assigned, which None and other optionals do not fit.
    result.expressions.push_back(
        value(target.type.kind == Kind::kOptional
                  ? tensorType(target.type.dtype, target.type.dims)
                  : target.type,
              3));
    return result;
  }

  Statement inPlace() {
    const auto found = targets([](const Type& type) {
      return type.kind == Kind::kTensor && !dynamic(type);
    });
    const std::size_t first = random_.below(found.size());
    const std::size_t second = random_.below(found.size());
    const Target target = found[random_.chance(50) ? first : second];
    Expression view = viewOf(target);
    const Type type = view.type;
    Statement result;
    result.expressions.push_back(std::move(view));
    if (type.dtype == 'i') {
      static const Strings forms = {"$0.add_($1)",      "$0.mul_($1)",
                                    "$0.fill_($1)",     "$0.remainder_(5)",
                                    "$0.random_(0, 4)", "$0.copy_($2)"};
      result.text = random_.oneOf(forms);
      result.expressions.push_back(integer(2));
      result.expressions.push_back(tensor(type, 2));
      return result;
    }
    if (type.dtype == 'b') {
      static const Strings forms = {"$0.logical_not_()", "$0.logical_and_($1)",
                                    "$0.fill_($2)", "$0.copy_($1)",
                                    "$0.bitwise_or_($1)"};
      result.text = random_.oneOf(forms);
      result.expressions.push_back(tensor(type, 2));
      result.expressions.push_back(boolean(2));
      return result;
    }
    switch (random_.below(8)) {
      case 0: {
        static const Strings forms = {"$0.relu_()",
                                      "$0.tanh_()",
                                      "$0.zero_()",
                                      "$0.clamp_(-1.0, 1.0)",
                                      "$0.neg_()",
                                      "$0.sigmoid_()",
                                      "$0.uniform_(0.0, 1.0)",
                                      "$0.bernoulli_(0.5)",
                                      "$0.normal_(0.0, 1.0)"};
        result.text = random_.oneOf(forms);
        return result;
      }
      case 1: {
        static const Strings forms = {"$0.mul_($1)", "$0.add_($1)",
                                      "$0.fill_($1)"};
        result.text = random_.oneOf(forms);
        result.expressions.push_back(floating(2));
        return result;
      }
      case 2:
        result.text =
            random_.chance(50) ? "$0.masked_fill_($1, $2)" : "$0[$1] = $2";
        result.expressions.push_back(mask(type, 2));
        result.expressions.push_back(floating(2));
        return result;
      case 3:
        if (!type.dims.empty() && type.dims[0] == 'D') {
          Type row = type;
          row.dims.erase(0, 1);
          result.text = random_.chance(60) ? "$0[$1] = $2" : "$0[$1] += $2";
          result.expressions.push_back(place(2));
          result.expressions.push_back(tensor(row, 2));
          return result;
        }
        [[fallthrough]];
      case 4:
        if (!type.dims.empty() && type.dims[0] == 'D') {
          Type part = type;
          part.dims[0] = 'E';
          static const Strings forms = {"$0[$1] = $2",
                                        "$0.index_put_([$1], $2)",
                                        "$0.index_add_(0, $1, $2)",
                                        "$0.index_copy_(0, $1, $2)",
                                        "$0[1:3] = $2",
                                        "$0.index_put_([$1], $2, True)"};
          result.text = random_.oneOf(forms);
          result.expressions.push_back(rows("E", 1));
          result.expressions.push_back(tensor(part, 2));
          return result;
        }
        [[fallthrough]];
      case 5:
        if (type.dims == "DD" && target.local && random_.chance(20)) {
          result.text = "$0.t_()";
          return result;
        }
        if (target.assignable && result.expressions[0].children.empty() &&
            random_.chance(50)) {
          result.text = target.name + " += $1";
          result.expressions.push_back(operand(type, 2));
          return result;
        }
        [[fallthrough]];
      default: {
        static const Strings forms = {
            "$0.add_($1)",       "$0.mul_($1)",          "$0.copy_($1)",
            "$0.sub_($1)",       "$0.add_($1, alpha=2)", "$0.addcmul_($1, $1)",
            "$0.lerp_($1, 0.5)", "$0.copy_($1)"};
        result.text = random_.oneOf(forms);
        result.expressions.push_back(operand(type, 2));
        return result;
      }
    }
  }

  Statement holderWrite() {
    const auto found = targets([](const Type& type) {
      return type.kind == Kind::kTensorList || type.kind == Kind::kDict ||
             type.kind == Kind::kIntList;
    });
    if (found.empty()) {
      const Type type = holderType(
          random_.chance(70) ? Kind::kTensorList : Kind::kDict, holderDims());
      return declare(type, value(type, 2));
    }
    const Target target = random_.oneOf(found);
    const Type element = tensorType(target.type.dtype, target.type.dims);
    Statement result;
    if (target.type.kind == Kind::kDict) {
      static const Strings forms = {"T[\"a\"] = $0", "T[\"c\"] = $0",
                                    "if \"a\" in T:\n    T.pop(\"a\")",
                                    "T.update({\"b\": $0})"};
      result.text = replaced(random_.oneOf(forms), "T", target.name);
      result.expressions.push_back(tensor(element, 2));
      return result;
    }
    static const Strings forms = {"T.append($0)",
                                  "T.append($0)",
                                  "if len(T) > 0:\n    T[0] = $0",
                                  "if len(T) > 1:\n    T.pop()",
                                  "T.insert(0, $0)",
                                  "T.reverse()",
                                  "T.extend([$0])",
                                  "if len(T) > 4:\n    T.clear()",
                                  "if len(T) > 0:\n    T[-1].add_(1)"};
    const std::size_t count =
        forms.size() - (target.type.kind == Kind::kIntList ? 1 : 0);
    result.text = replaced(forms[random_.below(count)], "T", target.name);
    if (target.type.kind == Kind::kIntList)
      result.expressions.push_back(integer(2));
    else
      result.expressions.push_back(tensor(element, 2));
    return result;
  }

  Statement attributeWrite() {
    std::vector<Target> found;
    for (const Attribute& attribute : readable_) {
      if (attribute.role != Attribute::Role::kParameter)
        found.push_back({"self." + attribute.name, attribute.type});
    }
    if (found.empty())
      return inPlace();
    const Target target = random_.oneOf(found);
    Statement result;
    if (target.type == kIntType && random_.chance(60)) {
      result.text = target.name + " += 1";
      return result;
    }
    result.text = target.name + " = $0";
    result.expressions.push_back(value(target.type, 2));
    return result;
  }

  Statement raising() {
    Statement result;
    if (random_.chance(40)) {
      static const Strings conditions = {"x.size(0) < 5", "x.dim() == 2"};
      result.text = "assert $0, \"assertion\"";
      if (random_.chance(60))
        result.expressions.push_back(
            {kBoolType, random_.oneOf(conditions), {}});
      else
        result.expressions.push_back(
            {kBoolType, "bool($0.sum() < 5.0)", {leaf(kRowsType)}});
      return result;
    }
    result.text = "if $0:";
    if (random_.chance(50))
      result.expressions.push_back({kBoolType, "x.size(0) > 4", {}});
    else
      result.expressions.push_back(
          {kBoolType, "bool($0.sum() > 4.0)", {leaf(kRowsType)}});
    Statement inner;
    inner.text = random_.chance(50) ? "raise RuntimeError(\"too large\")"
                                    : "raise ValueError(\"too large\")";
    result.blocks.push_back({std::move(inner)});
    return result;
  }

  Statement earlyReturn() {
    Statement result;
    result.text = "if $0:";
    result.expressions.push_back(boolean(2));
    Statement inner;
    inner.text = "return $0";
    inner.expressions.push_back(value(result_type_, 2));
    result.blocks.push_back({std::move(inner)});
    return result;
  }

  Statement leavingLoop() {
    Statement result;
    result.text = "if $0:";
    result.expressions.push_back(boolean(2));
    Statement inner;
    inner.text = random_.chance(50) ? "break" : "continue";
    result.blocks.push_back({std::move(inner)});
    return result;
  }

  Statement discardedCall() {
    if (callables_.empty())
      return declaration();
    const Callable callable = random_.oneOf(callables_);
    if (random_.chance(70))
      return declare(callable.result, callOf(callable, 1, ""));
    Statement result;
    result.text = "$0";
    result.expressions.push_back(callOf(callable, 1, ""));
    return result;
  }

  Statement compound(int depth) {
    Statement result;
    const std::size_t pick = random_.below(100);
    if (pick < 50) {
      result.text = "if $0:";
      result.expressions.push_back(boolean(3));
      result.blocks.push_back(block(depth + 1));
      if (random_.chance(50))
        result.blocks.push_back(block(depth + 1));
      return result;
    }
    if (pick < 60) {
      result.text = "with no_grad():";
      result.blocks.push_back(block(depth + 1));
      return result;
    }
    // Loops run each statement often; two levels are enough.
    if (loops_ >= 2)
      return assignment();
    const std::size_t outer = scope_.size();
    if (pick < 80) {
      const std::string name = "i" + number(names_++);
      result.text = "for " + name + " in range(min($0, 3)):";
      result.expressions.push_back(
          random_.chance(50) ? Expression{kIntType, "2", {}} : integer(2));
      scope_.push_back({name, kIntType});
    } else if (pick < 88) {
      const auto found = targets(
          [](const Type& type) { return type.kind == Kind::kTensorList; });
      if (found.empty())
        return assignment();
      const Target target = random_.oneOf(found);
      const std::string name = newName();
      // A copy: a body that appends to the list would never end.
      result.text = "for " + name + " in " + target.name + "[:3]:";
      scope_.push_back({name, tensorType('f', target.type.dims)});
    } else {
      const std::string name = "k" + number(names_++);
      result.before = name + " = 0";
      result.text = "while $0 and " + name + " < 3:";
      result.inside = name + " += 1";
      result.expressions.push_back(boolean(2));
    }
    ++loops_;
    result.blocks.push_back(block(depth + 1));
    --loops_;
    scope_.resize(outer);
    return result;
  }

  // ---- options and calls ----------------------------------------------------

  void addOptions() {
    if (random_.chance(30))
      program_.min_segment_size =
          static_cast<std::int64_t>(2 + random_.below(3));
    if (random_.chance(8))
      program_.max_keys = static_cast<std::int64_t>(1 + random_.below(2));
    program_.make_capturable = !random_.chance(15);
    program_.optimized_executor = random_.chance(20);
    if (random_.chance(20)) {
      static const Strings ops = {"aten::add",    "aten::mul",  "aten::relu",
                                  "aten::add_",   "aten::tanh", "aten::sum",
                                  "aten::select", "aten::cat",  "aten::copy_",
                                  "aten::matmul"};
      program_.no_graph_ops.push_back(random_.oneOf(ops));
    }
    if (!program_.module.children.empty() && random_.chance(15))
      program_.no_graph_scopes.push_back("sub");
    if (random_.chance(8))
      program_.no_graph_scopes.push_back("_helper");
    const std::size_t pick = random_.below(100);
    program_.gradients = pick < 78   ? GradientMode::kOff
                         : pick < 95 ? GradientMode::kOn
                                     : GradientMode::kInference;
  }

  void addCalls() {
    Strings methods = {"forward"};
    bool stepped = false;
    for (const Function& function : program_.module.functions)
      stepped |= function.name == "step";
    const std::int64_t first = random_.oneOf<std::int64_t>({3, 3, 3, 5, 1, 4});
    const std::int64_t other = random_.oneOf<std::int64_t>({5, 0, 1, 2, 4});
    const std::uint64_t host = random_.next() % 1000;
    const std::uint64_t other_host = random_.next() % 1000;
    const std::size_t saved =
        random_.chance(10) ? random_.below(10) : std::size_t{1000};
    const auto add = [&](std::int64_t rows, std::uint64_t hosts,
                         std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        Call call;
        call.method = stepped && random_.chance(25) ? "step" : "forward";
        call.rows = rows;
        call.host_seed = hosts;
        call.seed = random_.next() % 1000000;
        call.sources = random_.next() % 1000000;
        call.fresh = random_.chance(55);
        call.doubles = random_.chance(2);
        while (program_.calls.size() > 1 && random_.chance(20)) {
          call.before.push_back(
              {random_.oneOf<Action::Kind>(
                   {Action::Kind::kWriteKept, Action::Kind::kWriteKept,
                    Action::Kind::kDropKept, Action::Kind::kWriteParameter,
                    Action::Kind::kSetData, Action::Kind::kReplace,
                    Action::Kind::kSetScalar, Action::Kind::kTrain}),
               random_.next() % 1000000});
        }
        if (program_.calls.size() == saved)
          call.before.push_back({Action::Kind::kSaveAndLoad, 0});
        program_.calls.push_back(std::move(call));
      }
    };
    add(first, host, 4 + random_.below(2));
    add(other, host, 2 + random_.below(2));
    add(first, host, 2);
    add(first, other_host, 3);
    add(first, host, 1 + random_.below(2));
  }

  Random random_;
  Program program_;
  std::vector<Attribute> readable_;
  std::vector<Callable> callables_;
  std::vector<Callable> child_callables_;
  std::vector<Variable> scope_;
  std::size_t parameters_ = 0;
  std::size_t names_ = 0;
  std::size_t budget_ = 0;
  int loops_ = 0;
  Type result_type_;
};

}  // namespace

Program generate(std::uint64_t seed) {
  return Generator(seed).run();
}

}  // namespace pcg::fuzz
