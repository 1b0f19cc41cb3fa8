#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

namespace pcg::run {

/// One `--input` of the command line, parsed.
///
///     f32[1,3,224,224]     a random tensor
///     i64[8](0,100)        with values from 0 up to 99
///     f32[8](0.5)          with one value
///     3  -0.5  true  None  "text"
///     [a, b]  (a, b)  {"key": a}
///     @file.pt             what torch.save wrote
///     *@file.pt            a tuple or list of it, as arguments of its own
///
/// Copies share the parsed form, which is immutable.
class InputSpec {
 public:
  struct Node;

  /// Reads files, too. Throws ToolError: bad usage for the text, with the
  /// column; bad input for a file.
  static InputSpec parse(const std::string& text);

  /// The number of arguments this stands for: one, but for `*@file`.
  std::size_t argumentCount() const;

  /// A value for argument `which` of these, of the type a method declares for
  /// it: lists, dicts, optional values and numbers take that type. Tensors are
  /// made anew on `device` from torch's default generator on the CPU, so that
  /// one seed gives one value on any device; tensors from files are copied.
  /// Throws ToolError (bad input) that says what was expected where the value
  /// does not fit.
  c10::IValue make(std::size_t which, const c10::TypePtr& type,
                   const c10::Device& device) const;

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const Node> root_;
};

}  // namespace pcg::run
