// Running products, extremes and log-sums along a dim, in log2(n) steps over all elements; and differences.
#pragma once
#include "framework/dispatch/arg.h"
#include "ops/composite/math/reduction.h"

namespace weft {

/// The product of the elements up to each; integers and bool give i64.
Tensor cumprod(const Arg& x, int64_t dim);
/// log(sum(e^x)) of the elements up to each, without overflow.
Tensor logcumsumexp(const Arg& x, int64_t dim);
/// The largest (smallest) of the elements up to each, and its index (the last of equal ones). From the first NaN on,
/// the values are NaN.
ValuesIndices cummax(const Arg& x, int64_t dim);
ValuesIndices cummin(const Arg& x, int64_t dim);
/// Differences of neighbours along dim, n times, after prepend and append are joined to x; x itself if n is 0. The
/// difference of two bools is whether they differ.
Tensor diff(const Arg& x, int64_t n = 1, int64_t dim = -1, const Arg& prepend = Tensor(), const Arg& append = Tensor());

}  // namespace weft
