// THE list of passes, from a captured graph to the graph that is planned. To add a pass: its two files and one line
// here.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// All passes in the order in which they run. compile(fn) runs them with run_passes(graph, pipeline(), {...}).
std::span<const Pass> pipeline();

/// These passes, and fuse with its parts, which runs once every remaining op has a kernel: all names that may be
/// disabled.
std::span<const Pass> all_passes();

}  // namespace weft
