// Convolutions with 3 x 3 kernels in f32 on the CPU, with 16 products for 4 results instead of 36. conv_op decomposes
// into them where they are faster.
#pragma once
#include <span>

#include "framework/ir/op_def.h"
#include "ops/core/products/conv.h"

namespace weft {

// (x [N, H, W, C], w [O, C, 3, 3]) -> [N, I, J, O] {lo, hi, flip}: [rows, columns] of zeros before and after x; whether
// the kernels are used backwards. All f32.
extern const OpDef winograd_op;
// (x [N, H, W, C], g [N, I, J, O]) -> [O, C, 3, 3] {lo, hi}: the gradient of w for the gradient g of the result.
extern const OpDef winograd_weight_gradient_op;
std::span<const OpDef* const> winograd_ops();

namespace internal {

/// Whether this convolution of x [N, C, S...] with w [O, C, K...] is computed by these ops.
bool suits_winograd(const TensorType& x, const Shape& w, const ConvDims& dims);
/// The convolution of x [N, H, W, C], as [N, I, J, O]; with `flip`, with the kernels backwards.
Tensor winograd(const Tensor& x, const Tensor& w, const ConvDims& dims, bool flip = false);
/// The gradient of w for the gradient g [N, I, J, O] of the result.
Tensor winograd_weight_gradient(const Tensor& x, const Tensor& g, const ConvDims& dims);

}  // namespace internal

}  // namespace weft
