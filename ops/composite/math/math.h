// Elementwise functions of real numbers, composed of primitives. 16-bit floats are computed in f32 and rounded once;
// integers and bool give f32, where a comment does not say otherwise. Operands broadcast and promote as in PyTorch.
#pragma once
#include <optional>
#include <string_view>

#include "framework/dispatch/arg.h"
#include "ops/core/pointwise.h"

namespace weft {

/// 2^x.
Tensor exp2(const Arg& x);
/// Logarithms to the bases 2 and 10; exact for their whole powers.
Tensor log2(const Arg& x);
Tensor log10(const Arg& x);
/// The real cube root, negative for negative x.
Tensor cbrt(const Arg& x);
/// sqrt(a^2 + b^2) without overflow or underflow of the squares; the gradient at (0, 0) is 0.
Tensor hypot(const Arg& a, const Arg& b);

Tensor tan(const Arg& x);
/// Inverse functions in radians. asin and acos are NaN outside [-1, 1]; their derivatives at -1 and 1 are infinite.
Tensor asin(const Arg& x);
Tensor acos(const Arg& x);
Tensor atan(const Arg& x);
/// The angle of the point (x, y), in [-pi, pi]; its gradient at (0, 0) is 0.
Tensor atan2(const Arg& y, const Arg& x);
Tensor sinh(const Arg& x);
Tensor cosh(const Arg& x);
Tensor asinh(const Arg& x);
/// NaN for x < 1.
Tensor acosh(const Arg& x);
/// NaN outside [-1, 1], infinite at its ends.
Tensor atanh(const Arg& x);
/// Degrees to radians, and back.
Tensor deg2rad(const Arg& x);
Tensor rad2deg(const Arg& x);

/// x without its fraction, rounded toward 0; integers are unchanged.
Tensor trunc(const Arg& x);
/// a / b, rounded toward 0 ("trunc") or down ("floor"), without a gradient; exact for integers, of which a divisor of 0
/// throws.
Tensor div(const Arg& a, const Arg& b, std::string_view rounding_mode);
/// x rounded to this number of decimals, ties to even; to tens, hundreds, ... if it is negative.
Tensor round(const Arg& x, int64_t decimals);
/// x - trunc(x), for floating-point x.
Tensor frac(const Arg& x);
/// a - b trunc(a / b), computed exactly: has the sign of a (remainder has the sign of b). Integers give integers; an
/// integer b of 0 throws.
Tensor fmod(const Arg& a, const Arg& b);
/// remainder(a, b), as Python's %.
inline Tensor operator%(const Arg& a, const Arg& b) { return remainder(a, b); }
/// |a| with the sign of b, also if b is -0.
Tensor copysign(const Arg& a, const Arg& b);
/// True for negative numbers and -0; false for NaN of both signs.
Tensor signbit(const Arg& x);
/// The greater (lesser) of a and b; the other one where one is NaN. Ties share the gradient.
Tensor fmax(const Arg& a, const Arg& b);
Tensor fmin(const Arg& a, const Arg& b);
/// The next f32 or f64 number after a in b's direction; b where they are equal. The gradient is a's, 0 where equal.
Tensor nextafter(const Arg& a, const Arg& b);
/// The greatest common divisor and the least common multiple of integers, 0 or more.
Tensor gcd(const Arg& a, const Arg& b);
Tensor lcm(const Arg& a, const Arg& b);
/// 0 for a < 0 and NaN, 1 for a > 0, `values` where a is 0.
Tensor heaviside(const Arg& a, const Arg& values);
/// x itself; throws for bool.
Tensor positive(const Arg& x);
/// sign(x).
Tensor sgn(const Arg& x);

/// True where x is infinite, +infinity or -infinity; false for integers and bool.
Tensor isinf(const Arg& x);
Tensor isposinf(const Arg& x);
Tensor isneginf(const Arg& x);
/// x with NaN replaced by `nan` and infinities by posinf and neginf, by default the dtype's largest and least finite
/// numbers.
Tensor nan_to_num(const Arg& x, double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {});

/// start + weight (end - start), for floating-point start and end; computed from the nearer end.
Tensor lerp(const Arg& start, const Arg& end, const Arg& weight);
/// x + value a b.
Tensor addcmul(const Arg& x, const Arg& a, const Arg& b, const Arg& value = 1);
/// x + value a / b; throws if all three are integers, as PyTorch does.
Tensor addcdiv(const Arg& x, const Arg& a, const Arg& b, const Arg& value = 1);

}  // namespace weft
