// A linear layer and cross-entropy as one op for forward and one for backward, so that the whole logits [N, V] never
// exist in memory. The compiler's pass of this name makes these ops; users write linear() and cross_entropy().
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

/// (x[N, D], w[V, D], targets[N], bias[V]?) -> loss[N] in f32 (f64 for f64), {ignore_index, label_smoothing, z_loss}:
/// for logits l = x w^T + bias, (1 - s)(lse - l[t]) + s (lse - mean l) + z lse^2; 0 where t is ignore_index.
extern const OpDef linear_cross_entropy_op;
/// (x, w, targets, g[N], bias?) -> the loss again, and the gradients of sum(g loss) by x, w and bias, summed over
/// chunks of rows in order.
extern const OpDef linear_cross_entropy_grad_op;
std::span<const OpDef* const> linear_cross_entropy_ops();

}  // namespace weft
