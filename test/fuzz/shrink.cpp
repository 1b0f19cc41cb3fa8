#include "test/fuzz/shrink.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace pcg::fuzz {
namespace {

using Kind = Type::Kind;

// ---- walking the tree -------------------------------------------------------
// Places are numbered in a fixed order, so that one found in a program can be
// found in its copy.

void collectModules(ModuleSource& module, std::vector<ModuleSource*>& out) {
  out.push_back(&module);
  for (ModuleSource& child : module.children)
    collectModules(child, out);
}

std::vector<ModuleSource*> modulesOf(Program& program) {
  std::vector<ModuleSource*> modules;
  collectModules(program.module, modules);
  return modules;
}

std::vector<Function*> functionsOf(Program& program) {
  std::vector<Function*> functions;
  for (ModuleSource* module : modulesOf(program)) {
    for (Function& function : module->functions)
      functions.push_back(&function);
  }
  return functions;
}

void collectBlocks(Block& block, std::vector<Block*>& out) {
  out.push_back(&block);
  for (Statement& statement : block) {
    for (Block& inner : statement.blocks)
      collectBlocks(inner, out);
  }
}

std::vector<Block*> blocksOf(Program& program) {
  std::vector<Block*> blocks;
  for (Function* function : functionsOf(program))
    collectBlocks(function->body, blocks);
  return blocks;
}

void collectExpressions(Expression& expression, std::vector<Expression*>& out) {
  out.push_back(&expression);
  for (Expression& child : expression.children)
    collectExpressions(child, out);
}

std::vector<Expression*> expressionsOf(Function& function) {
  std::vector<Expression*> expressions;
  std::vector<Block*> blocks;
  collectBlocks(function.body, blocks);
  for (Block* block : blocks) {
    for (Statement& statement : *block) {
      for (Expression& expression : statement.expressions)
        collectExpressions(expression, expressions);
    }
  }
  collectExpressions(function.result, expressions);
  return expressions;
}

// ---- simple expressions -----------------------------------------------------

std::string constantOf(const Type& type) {
  switch (type.kind) {
    case Kind::kInt:
      return "1";
    case Kind::kFloat:
      return "1.0";
    case Kind::kBool:
      return "True";
    case Kind::kIntList:
      return "[1]";
    case Kind::kTensor:
      break;
    case Kind::kOptional:
      return "None";
    default:
      return "";
  }
  std::string sizes = "[";
  for (const char dim : type.dims) {
    if (dim == 'U')
      return "";
    sizes += sizes.size() == 1 ? "" : ", ";
    sizes += dim == 'N'   ? "x.size(0)"
             : dim == 'D' ? "4"
             : dim == 'E' ? "2"
                          : "1";
  }
  sizes += "]";
  return type.dtype == 'f'   ? "torch.ones(" + sizes + ")"
         : type.dtype == 'i' ? "torch.full(" + sizes + ", 1)"
                             : "(torch.ones(" + sizes + ") > 0.0)";
}

// What may stand for an expression, the simplest first.
std::vector<Expression> simpler(const Expression& expression,
                                const Function& function) {
  std::vector<Expression> result;
  const auto add = [&](Expression candidate) {
    const std::string text = candidate.render();
    // Shorter ones only, so that no two replace each other for ever.
    const std::string old = expression.render();
    if (text.empty() || text.size() > old.size() ||
        (text.size() == old.size() && text >= old)) {
      return;
    }
    for (const Expression& known : result) {
      if (known.render() == text)
        return;
    }
    result.push_back(std::move(candidate));
  };
  for (const Variable& parameter : function.parameters) {
    if (parameter.type == expression.type)
      add({expression.type, parameter.name, {}});
  }
  add({expression.type, constantOf(expression.type), {}});
  std::vector<Expression> inner{expression};
  for (std::size_t i = 0; i < inner.size(); ++i) {
    for (const Expression& child : std::vector<Expression>(inner[i].children)) {
      inner.push_back(child);
      if (child.type == expression.type)
        add(child);
    }
  }
  return result;
}

// ---- steps ------------------------------------------------------------------

class Shrinker {
 public:
  Shrinker(Program program, const StillFails& still_fails,
           const std::function<bool()>& out_of_time)
      : best_(std::move(program)),
        still_fails_(still_fails),
        out_of_time_(out_of_time) {}

  Program run() {
    bool changed = true;
    while (changed && !out_of_time_()) {
      changed = false;
      changed |= calls();
      changed |= options();
      changed |= statements();
      changed |= results();
      changed |= expressions();
      changed |= blocks();
      changed |= declarations();
    }
    return std::move(best_);
  }

 private:
  // Keeps `candidate` where it still fails.
  bool attempt(Program candidate) {
    if (out_of_time_() || !still_fails_(candidate))
      return false;
    best_ = std::move(candidate);
    return true;
  }

  // Removes elements of the vector that `get` finds in a program, in runs of
  // ever fewer.
  template <typename Get>
  bool removeRuns(const Get& get) {
    bool changed = false;
    for (std::size_t count = std::max<std::size_t>(get(best_).size(), 1);
         count > 0; count /= 2) {
      // From the end: nothing depends on what comes last.
      for (std::size_t end = get(best_).size(); end > 0;) {
        const std::size_t start = end > count ? end - count : 0;
        Program candidate = best_;
        auto& all = get(candidate);
        if (end <= all.size()) {
          all.erase(all.begin() + static_cast<std::ptrdiff_t>(start),
                    all.begin() + static_cast<std::ptrdiff_t>(end));
          changed |= attempt(std::move(candidate));
        }
        end = start;
      }
    }
    return changed;
  }

  template <typename Change>
  bool tryChange(const Change& change) {
    Program candidate = best_;
    return change(candidate) && attempt(std::move(candidate));
  }

  bool calls() {
    bool changed =
        removeRuns([](Program & program) -> auto& { return program.calls; });
    for (std::size_t i = 0; i < best_.calls.size(); ++i) {
      changed |= removeRuns([i](Program & program) -> auto& {
        return program.calls[i].before;
      });
      changed |= tryChange([i](Program& program) {
        return !std::exchange(program.calls[i].fresh, true);
      });
      changed |= tryChange([i](Program& program) {
        return std::exchange(program.calls[i].doubles, false);
      });
      changed |= tryChange([i](Program& program) {
        return std::exchange(program.calls[i].rows, 3) != 3;
      });
      changed |= tryChange([i](Program& program) {
        const std::uint64_t first = program.calls[0].host_seed;
        return std::exchange(program.calls[i].host_seed, first) != first;
      });
    }
    return changed;
  }

  bool options() {
    const Program usual;
    bool changed = false;
    changed |= removeRuns(
        [](Program & program) -> auto& { return program.no_graph_ops; });
    changed |= removeRuns(
        [](Program & program) -> auto& { return program.no_graph_scopes; });
    const auto reset = [&](auto member) {
      changed |= tryChange([&](Program& program) {
        const auto old = std::exchange(program.*member, usual.*member);
        return old != usual.*member;
      });
    };
    reset(&Program::min_segment_size);
    reset(&Program::max_keys);
    reset(&Program::make_capturable);
    reset(&Program::optimized_executor);
    reset(&Program::gradients);
    return changed;
  }

  bool statements() {
    bool changed = false;
    for (std::size_t i = 0; i < blocksOf(best_).size(); ++i) {
      changed |= removeRuns([i](Program & program) -> auto& {
        static Block none;
        const std::vector<Block*> blocks = blocksOf(program);
        return i < blocks.size() ? *blocks[i] : none;
      });
    }
    return changed;
  }

  // Replaces branches and loops by one of their blocks.
  bool blocks() {
    bool changed = false;
    for (std::size_t i = 0; i < blocksOf(best_).size(); ++i) {
      for (std::size_t at = 0;; ++at) {
        const std::vector<Block*> all = blocksOf(best_);
        if (i >= all.size() || at >= all[i]->size())
          break;
        const std::size_t count = (*all[i])[at].blocks.size();
        for (std::size_t which = 0; which < count; ++which) {
          const bool done = tryChange([&](Program& program) {
            Block& block = *blocksOf(program)[i];
            const Block inner = block[at].blocks[which];
            const auto place = block.begin() + static_cast<std::ptrdiff_t>(at);
            block.insert(block.erase(place), inner.begin(), inner.end());
            return true;
          });
          changed |= done;
          if (done)
            break;
        }
        if (count == 2) {
          changed |= tryChange([&](Program& program) {
            std::vector<Block>& both = (*blocksOf(program)[i])[at].blocks;
            if (both.size() != 2)
              return false;
            both.pop_back();
            return true;
          });
        }
      }
    }
    return changed;
  }

  bool expressions() {
    bool changed = false;
    for (std::size_t f = 0; f < functionsOf(best_).size(); ++f) {
      for (std::size_t i = 0;; ++i) {
        Function& function = *functionsOf(best_)[f];
        const std::vector<Expression*> all = expressionsOf(function);
        if (i >= all.size())
          break;
        for (const Expression& candidate : simpler(*all[i], function)) {
          const bool done = tryChange([&](Program& program) {
            *expressionsOf(*functionsOf(program)[f])[i] = candidate;
            return true;
          });
          changed |= done;
          if (done)
            break;
        }
      }
    }
    return changed;
  }

  // Replaces a tuple that a function returns by one of its elements.
  bool results() {
    bool changed = false;
    for (std::size_t f = 0; f < functionsOf(best_).size(); ++f) {
      const Type type = functionsOf(best_)[f]->result.type;
      if (type.kind != Kind::kTuple)
        continue;
      bool done = false;
      for (std::size_t k = 0; k < type.elements.size() && !done; ++k) {
        done = tryChange([&](Program& program) {
          keepElements(*functionsOf(program)[f], type, {k});
          return true;
        });
      }
      for (std::size_t k = 0;
           k < type.elements.size() && !done && type.elements.size() > 2; ++k) {
        done = tryChange([&](Program& program) {
          std::vector<std::size_t> others;
          for (std::size_t i = 0; i < type.elements.size(); ++i) {
            if (i != k)
              others.push_back(i);
          }
          keepElements(*functionsOf(program)[f], type, others);
          return true;
        });
      }
      changed |= done;
    }
    return changed;
  }

  static void keepElements(Function& function, const Type& type,
                           const std::vector<std::size_t>& kept) {
    std::vector<Expression*> returned{&function.result};
    std::vector<Block*> all;
    collectBlocks(function.body, all);
    for (Block* block : all) {
      for (Statement& statement : *block) {
        if (statement.text == "return $0")
          returned.push_back(&statement.expressions[0]);
      }
    }
    for (Expression* expression : returned) {
      const bool literal = expression->text.rfind("($0", 0) == 0 &&
                           expression->children.size() == type.elements.size();
      std::vector<Expression> elements;
      for (const std::size_t k : kept) {
        elements.push_back(literal ? expression->children[k]
                                   : Expression{type.elements[k],
                                                "$0[" + std::to_string(k) + "]",
                                                {*expression}});
      }
      if (kept.size() == 1) {
        *expression = elements[0];
        continue;
      }
      Expression tuple{{Kind::kTuple, '-', "", {}}, "(", {}};
      for (std::size_t i = 0; i < elements.size(); ++i) {
        tuple.text += (i == 0 ? "$" : ", $") + std::to_string(i);
        tuple.type.elements.push_back(elements[i].type);
      }
      tuple.text += ")";
      tuple.children = std::move(elements);
      *expression = std::move(tuple);
    }
  }

  // Removes attributes, children, functions and parameters.
  bool declarations() {
    bool changed = false;
    changed |= removeRuns(
        [](Program & program) -> auto& { return program.module.children; });
    for (std::size_t m = 0; m < modulesOf(best_).size(); ++m) {
      changed |= removeRuns([m](Program & program) -> auto& {
        return modulesOf(program)[m]->functions;
      });
      changed |= removeRuns([m](Program & program) -> auto& {
        return modulesOf(program)[m]->attributes;
      });
    }
    for (std::size_t f = 0; f < functionsOf(best_).size(); ++f) {
      const std::size_t count = functionsOf(best_)[f]->parameters.size();
      for (std::size_t k = count; k-- > 0;) {
        changed |= tryChange([&](Program& program) {
          removeParameter(program, f, k);
          return true;
        });
      }
    }
    return changed;
  }

  // With the arguments of all calls.
  static void removeParameter(Program& program, std::size_t f, std::size_t k) {
    Function& function = *functionsOf(program)[f];
    const std::size_t count = function.parameters.size();
    const auto at = static_cast<std::ptrdiff_t>(k);
    function.parameters.erase(function.parameters.begin() + at);
    const std::string call = "." + function.name + "(";
    for (Function* caller : functionsOf(program)) {
      for (Expression* expression : expressionsOf(*caller)) {
        std::string& text = expression->text;
        const std::size_t open = text.find(call);
        if (text.rfind("self.", 0) != 0 || open == std::string::npos ||
            expression->children.size() != count) {
          continue;
        }
        expression->children.erase(expression->children.begin() + at);
        std::string changed = text.substr(0, open) + call;
        for (std::size_t i = 0; i < expression->children.size(); ++i)
          changed += (i == 0 ? "$" : ", $") + std::to_string(i);
        text = changed + text.substr(text.find(')', open));
      }
    }
  }

  Program best_;
  const StillFails& still_fails_;
  const std::function<bool()>& out_of_time_;
};

}  // namespace

Program shrink(Program program, const StillFails& still_fails,
               const std::function<bool()>& out_of_time) {
  return Shrinker(std::move(program), still_fails, out_of_time).run();
}

}  // namespace pcg::fuzz
