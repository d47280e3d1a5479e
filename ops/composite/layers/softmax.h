// Softmax and its logarithm, shifted by the row's largest value so that nothing overflows. Computed in f32 for 16-bit
// floats. logsumexp is in ops/core/reductions/reduce.h.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft {

/// e^x / sum(e^x) along dim. A row of only -inf gives NaN, as in PyTorch.
Tensor softmax(const Arg& x, int64_t dim);
/// log(softmax(x, dim)) = x - logsumexp(x, dim).
Tensor log_softmax(const Arg& x, int64_t dim);
/// softmax(-x).
Tensor softmin(const Arg& x, int64_t dim);
/// The same of x in `dtype`.
Tensor softmax(const Arg& x, int64_t dim, DType dtype);
Tensor log_softmax(const Arg& x, int64_t dim, DType dtype);
/// The same along PyTorch's implicit dim: 0 for at most one dim and for three, otherwise 1.
Tensor softmax(const Arg& x);
Tensor log_softmax(const Arg& x);
Tensor softmin(const Arg& x);
/// softmax((logits + noise) / tau) with standard Gumbel noise: a differentiable sample of the classes along dim (Jang
/// et al. 2016, arXiv:1611.01144). `hard` gives the sample one-hot, with the gradient of the soft one.
Tensor gumbel_softmax(const Arg& logits, double tau = 1, bool hard = false, int64_t dim = -1);

}  // namespace weft
