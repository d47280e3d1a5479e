// Error bounds of a group of nodes by interval arithmetic in f64: each value's interval contains the nodes' result
// whether or not 16-bit intermediate values are rounded. Checks compare a fused kernel with it if the kernel rounds
// less often than the nodes one by one.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// One value: the result of eager kernels, and the interval of results that any rounding may give.
struct BoundedValue {
  Tensor eager;   // in the value's own dtype
  Tensor lo, hi;  // floats: f64, of the same shape; infinite where nothing is known
  Tensor unsure;  // others: bool, true where another rounding may give another value; undefined: nowhere
};

/// The outputs of a body of primitives for these operands (concrete tensors, taken as exact). operand_error: the
/// relative error by which products of f32 may have rounded their operands. approximate: functions of f32 may use
/// compiler/targets/cuda/print/approximations.inc.
std::vector<BoundedValue> bounded_outputs(const Graph& body, std::span<const Tensor> in, double operand_error = 0,
                                          bool approximate = false);

/// The flat position of the first element of `got` that the bounds exclude, or -1; NaN agrees with NaN.
int64_t first_outside(const Tensor& got, const BoundedValue& want);

}  // namespace weft::internal
