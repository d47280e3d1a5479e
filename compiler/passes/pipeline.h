// THE list of passes, from a captured graph to the one that is planned. Adding a pass: its two files and one line here.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// Every pass in the order of running. compile(fn) runs all of it: run_passes(graph, pipeline(), {...}).
std::span<const Pass> pipeline();

/// These, and fuse with its parts, which run when every op left has a kernel: all names that may be disabled.
std::span<const Pass> all_passes();

}  // namespace weft
