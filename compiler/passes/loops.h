// Passes over loops (ops/core/functions/loop.h) and their bodies.
#pragma once
#include "compiler/passes/pass.h"

namespace weft {

/// Whether a node is the loop of accumulate(), without gradients through it.
bool is_sum_over_parts(const Node& n);
/// Replaces each accumulate by a loop over its parts. Its body gets the joint passes that precede expand_grad first.
Ref<Graph> parts(const Graph& g, PassContext& context);
/// Replaces each loop by the nodes of all its iterations: on devices without loops, on meshes, and for exact sums. With
/// facts.stages, loops over parts stay, and their bodies get this pass and the joint passes after it.
Ref<Graph> unroll(const Graph& g, PassContext& context);
/// Removes stacked results that nothing reads, has weights of products packed before the first iteration, then
/// simplifies, lowers and fuses the body of each loop, like a whole step.
Ref<Graph> loop_bodies(const Graph& g, PassContext& context);

}  // namespace weft
