// Special functions, elementwise. 16-bit floats are computed in f32 and rounded once; integers and bool give f32.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"

namespace weft {

/// 1 - erf(x), exact for large x too.
Tensor erfc(const Arg& x);
/// The inverse of erf on [-1, 1]: infinite at the ends, NaN outside.
Tensor erfinv(const Arg& x);
/// The logarithm of |Gamma(x)|; infinite at 0 and negative integers. Computed in f64.
Tensor lgamma(const Arg& x);
/// The derivative of lgamma; NaN at negative integers. Computed in f64.
Tensor digamma(const Arg& x);
/// sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Arg& x);
/// log(x / (1 - x)); with eps, of x limited to [eps, 1 - eps]. NaN outside [0, 1].
Tensor logit(const Arg& x, std::optional<double> eps = {});
/// x log(y), 0 where x is 0; NaN where y is NaN.
Tensor xlogy(const Arg& x, const Arg& y);
/// log(e^a + e^b) and log2(2^a + 2^b), without overflow.
Tensor logaddexp(const Arg& a, const Arg& b);
Tensor logaddexp2(const Arg& a, const Arg& b);

}  // namespace weft
