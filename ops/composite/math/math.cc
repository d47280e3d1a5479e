#include "ops/composite/math/math.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "framework/base/called.h"
#include "ops/composite/math/derivative.h"
#include "ops/composite/precision.h"
#include "ops/core/functions/loop.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInf = std::numeric_limits<double>::infinity();

const Tensor& number_of(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(t.dtype() != kBool, op, ": operand is ", t.type(), "; need numbers: convert with to(u8)");
  return t;
}

// The odd function that is `y` for x > 0, where y was computed from |x|; x itself at 0, which keeps -0.
Tensor odd(const Tensor& x, const Tensor& y) { return where(eq(x, 0.0), x, where(lt(x, 0.0), neg(y), y)); }

// True for negative numbers and -0.
Tensor negative(const Tensor& x) { return lt(where(eq(x, 0.0), reciprocal(x), x), 0.0); }

// log(x) / ln(base). The rounded product may miss whole numbers, to which callers round; a whole power of the base
// within the normal numbers gives its exponent.
Tensor log_to(const Arg& x, double base, const char* op) {
  const double scale = std::log(base);
  return f32_of_real(x, op, [=](const Tensor& v) {
    return with_derivative(
        v,
        [=](const Tensor& t) {
          const Tensor y = log(t) * (1 / scale), whole = round(y);
          const double least =
              t.dtype() == kFloat64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
          return where(eq(pow(base, whole), t) & gt(t, least), whole, y);
        },
        [=](const Tensor& t, const Tensor&, const Tensor& dy) { return dy / (t * scale); });
  });
}

// (atan(q) / q - 1) / q^2 as a polynomial of z = q^2 for |q| <= tan(pi / 8): relative errors of atan 3e-9, 2e-19.
Tensor atan_tail(const Tensor& z) {
  if (z.dtype() != kFloat64)
    return polynomial(z, {-0.064498352245914961, 0.1074309966767457, -0.14263897112598675, 0.19999538794771921,
                          -0.33333331753816969});
  return polynomial(z, {0.016271944751624062, -0.034558092551413797, 0.045511081263251719, -0.052303478730160742,
                        0.058789145444006217, -0.066664236280692576, 0.076922963049744701, -0.090909087510766359,
                        0.11111111105106705, -0.14285714285659327, 0.19999999999999803, -0.33333333333333333});
}

// atan(a) for a >= 0: a is reduced to [-tan(pi / 8), tan(pi / 8)] by the angles pi / 4 and pi / 2.
Tensor atan_above(const Tensor& a) {
  const double kFirst = std::numbers::sqrt2 - 1, kSecond = std::numbers::sqrt2 + 1;  // tan(pi / 8), tan(3 pi / 8)
  const Tensor middle = gt(a, kFirst), far = gt(a, kSecond);
  const Tensor q = where(far, -1.0, where(middle, a - 1.0, a)) / where(far, a, where(middle, a + 1.0, 1.0));
  const Tensor z = square(q), y = atan_tail(z) * z * q + q;
  return where(far, y + kPi / 2, where(middle, y + kPi / 4, y));
}

Tensor atan_of(const Tensor& x) { return odd(x, atan_above(abs(x))); }

Tensor atan2_of(const Tensor& y, const Tensor& x) {
  const Tensor ax = abs(x), ay = abs(y), most = maximum(ax, ay), least = minimum(ax, ay);
  const Tensor equal = eq(ax, ay) & ne(most, 0.0);  // infinities too
  const Tensor q = where(equal, 1.0, least / where(eq(most, 0.0), 1.0, most));
  const Tensor first = atan_above(q), above = where(gt(ay, ax), kPi / 2 - first, first);
  const Tensor angle = where(negative(x), kPi - above, above);
  return where(negative(y), neg(angle), angle);
}

// (1 - x)(1 + x), without the cancellation of 1 - x^2.
Tensor one_less_square(const Tensor& x) { return (1.0 - x) * (1.0 + x); }

// e^a grows past the largest number before sinh and cosh do. Above this, e^-a is negligible and the half power is used.
constexpr double kOnlyGrowing = 40;
Tensor half_exp(const Tensor& a) {
  const Tensor root = exp(a * 0.5);
  return root * 0.5 * root;
}
Tensor sinh_of(const Tensor& x) {
  const Tensor a = abs(x), large = gt(a, kOnlyGrowing), m = expm1(where(large, 0.0, a));
  return odd(x, where(large, half_exp(a), (m + m / (m + 1.0)) * 0.5));
}
Tensor cosh_of(const Tensor& x) {
  const Tensor a = abs(x), large = gt(a, kOnlyGrowing), e = exp(where(large, 0.0, a));
  return where(large, half_exp(a), (e + reciprocal(e)) * 0.5);
}

// Above this, asinh and acosh are log(2 x), and x^2 would overflow later on.
constexpr double kLogarithmic = 1e8;
Tensor log_twice(const Tensor& a) { return log(a) + std::numbers::ln2; }

Tensor asinh_of(const Tensor& x) {
  const Tensor a = abs(x), s = minimum(a, kLogarithmic), z = square(s);
  return odd(x, where(gt(a, kLogarithmic), log_twice(a), log1p(s + z / (sqrt(z + 1.0) + 1.0))));
}
Tensor acosh_of(const Tensor& x) {
  const Tensor t = minimum(x, kLogarithmic) - 1.0;
  return where(gt(x, kLogarithmic), log_twice(x), log1p(t + sqrt(t) * sqrt(t + 2.0)));
}
Tensor atanh_of(const Tensor& x) {
  const Tensor a = abs(x);
  return odd(x, log1p(a * 2.0 / (1.0 - a)) * 0.5);
}

Tensor cbrt_of(const Tensor& x) {
  // One Newton step: a power with the rounded exponent 1/3 is several ulp off for large and small numbers.
  const Tensor a = abs(x), plain = gt(a, 0.0) & isfinite(a), safe = where(plain, a, 1.0), y = pow(safe, 1.0 / 3);
  return odd(x, where(plain, y - (y - safe / square(y)) * (1.0 / 3), a));
}

Tensor hypot_of(const Tensor& a, const Tensor& b) {
  const Tensor most = maximum(abs(a), abs(b)), least = minimum(abs(a), abs(b));
  const Tensor q = least / where(isfinite(most) & ne(most, 0.0), most, 1.0);
  return where(isinf(a) | isinf(b), kInf, most * sqrt(square(q) + 1.0));
}

}  // namespace

#define WEFT_REAL_WITH_DERIVATIVE(of, name, value, derivative)                                       \
  Tensor name(const Arg& arg) {                                                                      \
    return of(arg, #name, [](const Tensor& v) {                                                      \
      return with_derivative(                                                                        \
          v, [](const Tensor& x) { return value; },                                                  \
          []([[maybe_unused]] const Tensor& x, [[maybe_unused]] const Tensor& y, const Tensor& dy) { \
            return derivative;                                                                       \
          });                                                                                        \
    });                                                                                              \
  }
WEFT_REAL_WITH_DERIVATIVE(of_real, exp2, pow(2.0, x), y* std::numbers::ln2* dy)
WEFT_REAL_WITH_DERIVATIVE(of_real, cbrt, cbrt_of(x), dy / (square(y) * 3.0))
WEFT_REAL_WITH_DERIVATIVE(f32_of_real, tan, sin(x) / cos(x), (square(y) + 1.0) * dy)
WEFT_REAL_WITH_DERIVATIVE(f32_of_real, asin, atan_of(x / sqrt(one_less_square(x))), rsqrt(one_less_square(x)) * dy)
WEFT_REAL_WITH_DERIVATIVE(f32_of_real, acos, atan_above(sqrt((1.0 - x) / (1.0 + x))) * 2.0,
                          neg(dy) * rsqrt(one_less_square(x)))
WEFT_REAL_WITH_DERIVATIVE(of_real, atan, atan_of(x), dy / (square(x) + 1.0))
// The derivatives use sinh_of and cosh_of: custom_grad captures the derivative with each call, so sinh and cosh would
// not end.
WEFT_REAL_WITH_DERIVATIVE(f32_of_real, sinh, sinh_of(x), cosh_of(x) * dy)
WEFT_REAL_WITH_DERIVATIVE(f32_of_real, cosh, cosh_of(x), sinh_of(x) * dy)
WEFT_REAL_WITH_DERIVATIVE(of_real, asinh, asinh_of(x), dy / hypot(x, 1.0))
WEFT_REAL_WITH_DERIVATIVE(of_real, acosh, acosh_of(x), dy / (sqrt(x - 1.0) * sqrt(x + 1.0)))
WEFT_REAL_WITH_DERIVATIVE(of_real, atanh, atanh_of(x), dy / one_less_square(x))
#undef WEFT_REAL_WITH_DERIVATIVE

Tensor log2(const Arg& x) { return log_to(x, 2, "log2"); }
Tensor log10(const Arg& x) { return log_to(x, 10, "log10"); }

Tensor hypot(const Arg& x, const Arg& y) {
  return of_reals(x, y, "hypot", [](const Tensor& u, const Tensor& v) {
    return with_derivative(u, v, hypot_of, [](const Tensor& a, const Tensor& b, const Tensor& h, const Tensor& dy) {
      const Tensor safe = where(eq(h, 0.0), 1.0, h);
      return PairGrads{dy * (a / safe), dy * (b / safe)};
    });
  });
}

Tensor atan2(const Arg& y, const Arg& x) {
  return of_reals(y, x, "atan2", [](const Tensor& u, const Tensor& v) {
    return with_derivative(u, v, atan2_of, [](const Tensor& a, const Tensor& b, const Tensor&, const Tensor& dy) {
      const Tensor h = hypot(a, b), safe = where(eq(h, 0.0), 1.0, h);
      return PairGrads{dy * (b / safe) / safe, neg(dy) * (a / safe) / safe};
    });
  });
}

Tensor deg2rad(const Arg& arg) {
  return of_real(arg, "deg2rad", [](const Tensor& x) { return x * (kPi / 180); });
}
Tensor rad2deg(const Arg& arg) {
  return of_real(arg, "rad2deg", [](const Tensor& x) { return x * (180 / kPi); });
}

Tensor trunc(const Arg& x) {
  LineScope line(x.line());
  const Tensor& t = number_of(x, "trunc");
  return is_floating(t.dtype()) ? where(lt(t, 0.0), ceil(t), floor(t)) : t;
}

Tensor div(const Arg& x, const Arg& y, std::string_view rounding_mode) {
  LineScope line(x.line());
  const Called name("div");
  WEFT_CHECK(rounding_mode == "trunc" || rounding_mode == "floor", "div: rounding_mode is '", rounding_mode,
             "'; need \"trunc\" or \"floor\"");
  const OperandPair p = common(x, y, "div");
  WEFT_CHECK(p.a.dtype() != kBool, "div: operands are bool; need numbers: convert with to(u8)");
  if (rounding_mode == "floor") return floor_divide(p.a, p.b);
  if (is_floating(p.a.dtype())) return trunc(widened(p.a) / widened(p.b)).to(p.a.dtype());
  const Tensor q = floor_divide(p.a, p.b);
  return where(ne(q * p.b, p.a) & lt(q, 0), q + 1, q);
}

Tensor round(const Arg& x, int64_t decimals) {
  const FloatingOperand t(x, "round");
  WEFT_CHECK(decimals >= -300 && decimals <= 300, "round: decimals is ", decimals, "; need -300 to 300");
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  const Tensor v = widened(t);
  return (decimals < 0 ? round(v / scale) * scale : round(v * scale) / scale).to(t.dtype());
}

Tensor frac(const Arg& x) {
  const FloatingOperand t(x, "frac");
  return t - trunc(t);
}

Tensor fmod(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const Called name("fmod");
  const OperandPair p = common(x, y, "fmod");
  WEFT_CHECK(p.a.dtype() != kBool, "fmod: operands are bool; need numbers: convert with to(u8)");
  if (!is_floating(p.a.dtype())) {
    const Tensor r = remainder(p.a, p.b);  // has the sign of b
    return where(ne(r, 0) & ne(lt(p.a, 0), lt(p.b, 0)), r - p.b, r);
  }
  return with_derivative(
      p.a, p.b,
      [](const Tensor& a, const Tensor& b) {
        const Tensor r = remainder(abs(a), abs(b));
        return where(negative(a), neg(r), r);
      },
      [](const Tensor& a, const Tensor& b, const Tensor& r, const Tensor& dy) {
        return PairGrads{dy, neg(dy) * round((a - r) / b)};
      });
}

Tensor copysign(const Arg& x, const Arg& y) {
  return of_reals(x, y, "copysign", [](const Tensor& a, const Tensor& b) {
    const Tensor m = abs(a);
    return where(negative(b), neg(m), m);
  });
}

Tensor signbit(const Arg& x) {
  const FirstOperand t(x, "signbit");
  return is_floating(t.dtype()) ? negative(t) : t.dtype() == kBool ? ne(t, t) : lt(t, 0);
}

Tensor fmax(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const OperandPair p = common(x, y, "fmax");
  return where(isnan(p.b), p.a, where(isnan(p.a), p.b, maximum(p.a, p.b)));
}
Tensor fmin(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const OperandPair p = common(x, y, "fmin");
  return where(isnan(p.b), p.a, where(isnan(p.a), p.b, minimum(p.a, p.b)));
}

namespace {

// The least number above c, by Rump, Zimmermann, Boldo and Melquiond (2009), "Computing predecessor and successor in
// rounding to nearest": u is the unit roundoff, eta the least number above 0.
template <class T>
Tensor successor(const Tensor& c) {
  using Limits = std::numeric_limits<T>;
  const double u = Limits::epsilon() / 2, eta = Limits::denorm_min(), phi = u * (1 + 2 * u);
  const Tensor a = abs(c), large = c + a * phi, scaled = c / u, middle = (scaled + abs(scaled) * phi) * u;
  const Tensor next = where(ge(a, eta / u / u / 2), large, where(lt(a, eta / u), c + eta, middle));
  return where(eq(c, -kInf), -static_cast<double>(Limits::max()), next);
}

// Euclid's algorithm takes the most steps for neighbours in Fibonacci's sequence: 91 for i64, and one to end.
constexpr int64_t kEuclidSteps = 92;

OperandPair integers(const Arg& x, const Arg& y, const char* op) {
  const OperandPair p = common(x, y, op);
  WEFT_CHECK(is_integral(p.a.dtype()), op, ": operands are ", p.a.dtype(), "; need an integer dtype");
  return {abs(p.a), abs(p.b)};
}

Tensor divisor_of(const OperandPair& p, SourceLine line) {
  return run_while(
      [](std::span<const Tensor> c) { return any(ne(c[1], 0)); },
      [](std::span<const Tensor> c) {
        const Tensor end = eq(c[1], 0);
        return std::vector<Tensor>{where(end, c[0], c[1]), where(end, 0, remainder(c[0], where(end, 1, c[1])))};
      },
      {p.a, p.b}, {.max_iterations = kEuclidSteps}, line)[0];
}

}  // namespace

Tensor nextafter(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const OperandPair p = common(x, y, "nextafter");
  const DType t = p.a.dtype();
  WEFT_CHECK(t == kFloat32 || t == kFloat64, "nextafter: operands are ", t, "; need f32 or f64");
  const Tensor b = p.b.detach();
  return internal::with_derivative(
      p.a,
      [&](const Tensor& v) {
        const Tensor a = v.detach(), up = lt(a, b), from = where(up, a, -a);
        const Tensor next = t == kFloat64 ? successor<double>(from) : successor<float>(from);
        return where(eq(a, b) | isnan(b), b, where(up, next, -next));
      },
      [=](const Tensor& v, const Tensor&, const Tensor& dy) { return where(ne(v, b), dy, 0.0); });
}

Tensor gcd(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  return divisor_of(integers(x, y, "gcd"), x.line());
}

Tensor lcm(const Arg& x, const Arg& y) {
  LineScope line(x.line());
  const OperandPair p = integers(x, y, "lcm");
  return floor_divide(p.a, maximum(divisor_of(p, x.line()), 1)) * p.b;
}

Tensor heaviside(const Arg& x, const Arg& values) {
  LineScope line(x.line());
  const OperandPair p = common(x, values, "heaviside");
  return where(eq(p.a, 0), p.b, gt(p.a, 0).to(p.b.dtype()));
}

Tensor positive(const Arg& x) {
  LineScope line(x.line());
  return number_of(x, "positive");
}

Tensor sgn(const Arg& x) {
  LineScope line(x.line());
  return sign(number_of(x, "sgn"));
}

namespace {

// t is x or |x|; no integer equals itself and differs from itself.
Tensor is_infinity(const Tensor& t, double infinity) { return is_floating(t.dtype()) ? eq(t, infinity) : ne(t, t); }

double largest(DType t) {
  switch (t) {
    case kFloat64:
      return std::numeric_limits<double>::max();
    case kBFloat16:
      return 0x1.fep127;
    case kFloat16:
      return 65504;
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace

Tensor isinf(const Arg& x) {
  FirstOperand t(x, "isinf");
  return is_infinity(is_floating(t.dtype()) ? abs(t) : t, kInf);
}
Tensor isposinf(const Arg& x) {
  LineScope line(x.line());
  return is_infinity(tensor_of(x, "isposinf"), kInf);
}
Tensor isneginf(const Arg& x) {
  LineScope line(x.line());
  return is_infinity(tensor_of(x, "isneginf"), -kInf);
}

Tensor nan_to_num(const Arg& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const FirstOperand t(x, "nan_to_num");
  if (!is_floating(t.dtype())) return t;
  const double most = largest(t.dtype());
  const Tensor above = where(eq(t, kInf), posinf.value_or(most), t);
  return where(isnan(t), nan, where(eq(t, -kInf), neginf.value_or(-most), above));
}

Tensor lerp(const Arg& start, const Arg& end, const Arg& weight) {
  LineScope line(start.line());
  const OperandPair p = common(start, end, "lerp");
  WEFT_CHECK(is_floating(p.a.dtype()), "lerp: start and end are ", p.a.dtype(), "; need a floating-point dtype");
  const Tensor a = widened(p.a), b = widened(p.b), d = b - a;
  const auto near = [&](const auto& w) { return a + d * w; };
  const auto far = [&](const auto& w) { return b - d * (1.0 - w); };
  if (!weight.is_tensor()) {
    const double w = weight.number();
    return (std::fabs(w) < 0.5 ? near(w) : far(w)).to(p.a.dtype());
  }
  const Tensor w = tensor_of(weight, "lerp").to(dtype_with(weight.tensor(), a, "lerp"));
  return where(lt(abs(w), 0.5), near(w), far(w)).to(p.a.dtype());
}

// x + value f(a, b), with 16-bit floats in f32.
template <class F>
static Tensor plus_scaled(const Arg& x, const Arg& a, const Arg& b, const Arg& value, const char* op, const F& f) {
  const Called name(op);
  LineScope line(x.line());
  const Tensor &tx = tensor_of(x, op), &ta = tensor_of(a, op), &tb = tensor_of(b, op);
  const Arg* args[] = {&x, &a, &b};
  const DType dtype = result_type(args);
  const DType wide = is_16bit(dtype) ? kFloat32 : dtype;
  const Tensor y = f(ta.to(wide), tb.to(wide));
  const bool once = !value.is_tensor() && value.number() == 1;
  const Tensor scaled = once ? y : value.is_tensor() ? mul(y, value.tensor()) : mul(y, value);
  return (tx.to(wide) + scaled).to(dtype);
}

Tensor addcmul(const Arg& x, const Arg& a, const Arg& b, const Arg& value) {
  return plus_scaled(x, a, b, value, "addcmul", [](const Tensor& u, const Tensor& v) { return u * v; });
}

Tensor addcdiv(const Arg& x, const Arg& a, const Arg& b, const Arg& value) {
  return plus_scaled(x, a, b, value, "addcdiv", [](const Tensor& u, const Tensor& v) {
    WEFT_CHECK(is_floating(u.dtype()), "addcdiv: operands are ", u.dtype(), "; need a floating-point dtype");
    return u / v;
  });
}

}  // namespace weft
