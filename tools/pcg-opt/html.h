#pragma once

#include <string>
#include <vector>

#include "tools/pcg-opt/passes.h"

namespace pcg::opt {

/// The plans of all methods as one HTML page: the model's source, each line
/// with the segments that its nodes go to, and under it the breaks with their
/// reasons. Tables before it list segments and breaks.
///
/// The page is complete in itself: no script, no reference to anything
/// outside. Colour repeats what words say. It depends on its arguments alone.
///
/// Lines come from the source ranges of the nodes: of a scripted model's Python
/// files, of an IR text, or of the archive's own code where nothing better is
/// known. Where only numbers of lines are known, as for traced models, the
/// operators stand in for the text.
std::string planHtml(const std::string& input_name,
                     const std::vector<MethodState>& methods,
                     const PartitionReport& report,
                     const PartitionOptions& options);

}  // namespace pcg::opt
