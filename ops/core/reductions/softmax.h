// Softmax as one op until it is lowered: its derivative needs only the result, whereas the derivative of exp, sum and
// division would need the exponentials again.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

/// x -> e^(x - max) / sum e^(x - max) along {dim}; 16-bit floats are computed in f32. Has no kernel: decompose defines
/// it.
extern const OpDef softmax_op;
std::span<const OpDef* const> softmax_ops();

}  // namespace weft
