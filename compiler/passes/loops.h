// Loops (ops/core/loop.h): what happens to their bodies.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// Gives each iteration nodes of its own: where the device runs no loops, on a mesh, and for exact sums.
Ref<Graph> unroll(const Graph& g, PassContext& context);
/// Removes stacked results that nothing reads, then simplifies, lowers and fuses the body of each loop, as if it were
/// a step of its own.
Ref<Graph> loop_bodies(const Graph& g, PassContext& context);

}  // namespace weft
