// Linear layer and cross-entropy in one op each way, so that the logits [N, V] are never whole in memory. Made by the
// compiler's pass of that name; users write linear() and cross_entropy().
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

/// (x[N, D], w[V, D], targets[N], bias[V]?) -> loss[N] in f32 (f64 for f64), {ignore_index, label_smoothing, z_loss}:
/// of logits l = x w^T + bias, (1 - s)(lse - l[t]) + s (lse - mean l) + z lse^2, or 0 where t is ignore_index.
extern const OpDef linear_cross_entropy_op;
/// (x, w, targets, g[N], bias?) -> the loss again, and the gradients of sum(g loss) by x, w and bias, summed over
/// chunks of rows in order.
extern const OpDef linear_cross_entropy_grad_op;
std::span<const OpDef* const> linear_cross_entropy_ops();

}  // namespace weft
