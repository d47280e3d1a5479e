// Rounding to number formats, to measure the loss of accuracy.
#pragma once
#include <span>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// x (any shape; f64, f32, bf16 or f16) rounded to the nearest float with `exponent_bits` (2 to 8) and `mantissa_bits`
/// (1 to 23), ties to even; has x's shape and dtype. The top codes follow IEEE or OCP (float_format in
/// ops/numerics/number_format.h): (8, 7) is BF16, (5, 10) FP16, (5, 2) E5M2, (4, 3) E4M3, (2, 1) E2M1. Values beyond
/// the greatest number become infinite from 5 exponent bits up; below, they become the greatest number. If `block` > 0,
/// each `block` neighbours along the last dim (the last block may be shorter) are divided by a power of two as OCP MX
/// chooses it, rounded, and multiplied by it: (4, 3, 32) is MXFP8, (2, 1, 32) MXFP4. The gradient passes unchanged
/// (straight-through). Throws for other numbers of bits.
Tensor round_to(const Arg& x, int64_t exponent_bits, int64_t mantissa_bits, int64_t block = 0);

extern const OpDef round_to_op;  // {exponent_bits, mantissa_bits, block}
std::span<const OpDef* const> rounding_ops();

}  // namespace weft
