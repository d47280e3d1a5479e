// Convolution: one record for any number of spatial dims, whose gradients are convolutions again.
#pragma once
#include <span>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// One entry per spatial dim. The operand is first spread (`interior` zeros between neighbours), then padded with `lo`
/// zeros before and `hi` after; negative numbers crop.
struct ConvDims {
  Shape stride, lo, hi, dilation, interior;
  int64_t groups = 1;
};

/// y[n, o, s] = the sum over c, k of x[n, c, s * stride + k * dilation] * w[o, c, k], for x [N, C, S...], w [O, C /
/// groups, K...], y [N, O, ...]. Group g connects channels g * C / groups... of x with channels g * O / groups... of y.
Tensor conv_general(const Arg& x, const Arg& w, const ConvDims& dims);
/// The convolution that is the transpose of conv_general(x, w, dims) with respect to x: for y's shape [N, O, ...] it
/// gives [N, C, extent...].
Tensor conv_transpose_general(const Arg& y, const Arg& w, const ConvDims& dims, const Shape& extent);

namespace internal {
/// w [O, C, K...] with its kernels backwards in each dim.
Tensor flip_kernels(const Tensor& w);
}  // namespace internal

extern const OpDef conv_op;  // (x, w) {stride, lo, hi, dilation, interior, groups}
std::span<const OpDef* const> conv_ops();

}  // namespace weft
