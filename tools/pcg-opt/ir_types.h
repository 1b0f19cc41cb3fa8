#pragma once

#include <ATen/core/jit_type.h>

#include <map>
#include <memory>
#include <string>

#include "tools/pcg-opt/ir_syntax.h"

namespace torch::jit {
struct CompilationUnit;
}

namespace pcg::opt {

/// What was wrong with a piece of syntax, and where.
struct ReadError {
  std::size_t offset;
  std::string message;
};

/// Turns type syntax into torch's types, for all graphs of one text.
///
/// A class outside `__torch__.torch.classes`, such as the one a method's
/// `%self` has, stands for itself: it is made up, and gets the attributes that
/// the graphs use. Two mentions of one name mean one class.
class TypeReader {
 public:
  TypeReader();

  /// Throws ReadError.
  c10::TypePtr read(const TypeSyntax& syntax);

  /// Makes sure that a made-up class has an attribute; returns the type it has.
  /// Other types have what they have: nullptr where they lack it.
  c10::TypePtr declareAttribute(const c10::TypePtr& type,
                                const std::string& name,
                                const c10::TypePtr& attribute_type);

  /// The made-up classes live as long as this does.
  const std::shared_ptr<torch::jit::CompilationUnit>& unit() const {
    return unit_;
  }

 private:
  c10::TypePtr readName(const TypeSyntax& syntax);
  c10::TypePtr readClass(const TypeSyntax& syntax);
  c10::TypePtr readTensor(const TypeSyntax& syntax);
  c10::TypePtr readGeneric(const TypeSyntax& syntax);

  std::shared_ptr<torch::jit::CompilationUnit> unit_;
  std::map<std::string, c10::ClassTypePtr> made_up_;
};

/// A type as IR text has it.
std::string typeText(const c10::Type& type);

/// `Float` of `Float(2, 3)`, or nothing for names that are no scalar type.
std::optional<c10::ScalarType> scalarTypeNamed(const std::string& name);

}  // namespace pcg::opt
