#pragma once

#include <torch/csrc/jit/api/module.h>

#include <iosfwd>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/input.h"

namespace pcg::opt {

struct LoadedModule {
  torch::jit::Module module;
  torch::jit::ExtraFilesMap extra_files;
};

/// Loads a TorchScript archive with the files its author added. Checksums are
/// checked first, which torch does not do. Without a CUDA device everything is
/// mapped to the CPU, with a warning where that changes the module. Throws
/// ToolError (bad input).
LoadedModule loadModule(Input& input, Diagnostics& diagnostics);

/// Writes an archive whose bytes depend on the module alone. What could not be
/// written shows in the state of `out`.
void saveModule(const LoadedModule& loaded, std::ostream& out);

}  // namespace pcg::opt
