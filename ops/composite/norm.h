// Normalisation over the last dims. For 16-bit floats, statistics are computed in f32 and the result is rounded once.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft {

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dims, whose extents are normalized_shape; var is the mean
/// squared difference from the mean (Ba et al. 2016, arXiv:1607.06450). weight and bias may be undefined.
Tensor layer_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight = Tensor(), const Arg& bias = Tensor(),
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019, arXiv:1910.07467). eps < 0: x's dtype's machine epsilon.
Tensor rms_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight = Tensor(), double eps = -1);
/// The same over weight's dims.
Tensor rms_norm(const Arg& x, const Arg& weight, double eps);

}  // namespace weft
