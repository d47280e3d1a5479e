// The logarithm of a sum of exponentials in two parts, for functions that subtract it from an element.
#pragma once

namespace weft::internal {

/// logsumexp(x, dims) = log_sum + shift, in f32 for 16-bit floats: shift is the largest element (0 if that is not
/// finite), without a gradient; the gradient of log_sum is logsumexp's. Their sum loses log_sum where shift is huge:
/// subtract an element from shift first. Throws if there are no elements.
struct LogSumExp {
  Tensor shift, log_sum;
};
LogSumExp log_sum_exp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace weft::internal
