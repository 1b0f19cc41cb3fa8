#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "tools/pcg-opt/ir_syntax.h"

namespace torch::jit {
struct Node;
}

namespace pcg::opt {

/// The value of a `prim::Constant` of the given type (nullptr: as the literal
/// suggests). Tensors are made on the CPU; where the text does not give their
/// elements they are zero. Throws ReadError where literal and type disagree.
c10::IValue readConstant(const LiteralSyntax& literal,
                         const c10::TypePtr& type);

/// Sets an attribute of a node that is no constant, and of a constant's other
/// attributes. `read_type` turns type syntax into a type. Throws ReadError.
void setAttribute(torch::jit::Node& node, const AttributeSyntax& attribute,
                  const c10::TypePtr& type);

}  // namespace pcg::opt
