#include "ops/composite/math/special.h"

#include <limits>
#include <numbers>

#include "ops/composite/layers/activation.h"
#include "ops/composite/math/derivative.h"
#include "ops/composite/math/math.h"
#include "ops/composite/precision.h"

namespace weft {

using namespace internal;

namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// log(erfc(z) / t) + z^2 for z >= 0 with t = 2 / (2 + z), as a polynomial of u = 2 t - 1 (the form of Shepherd and
// Laframboise 1981); the errors are 1.4e-8 and 3.3e-17.
Tensor erfc_exponent(const Tensor& u) {
  if (u.dtype() != kFloat64)
    return polynomial(u,
                      {-9.2464577956331022e-5, 8.5083166098205826e-6, 0.00058807168875983845, -0.00022919226001198894,
                       -0.0023031434654053822, 0.0017952014937328141, 0.0088151569561257874, -0.0098804316375826865,
                       -0.046894781015071706, 0.047343940394620339, 0.67264321248554814, -0.67179409277580503});
  return polynomial(u,
                    {4.0592034168713197e-9,  -1.6257634004200003e-9, -3.9153823681150643e-8,  3.996584549064402e-8,
                     1.532694522477242e-7,   -3.1750365681754218e-7, -1.6833321758830403e-7,  1.3278447814608565e-6,
                     -1.2725384918465064e-6, -3.0087258428155395e-6, 8.5628278070380242e-6,   1.706564368260805e-7,
                     -3.0188008635174026e-5, 3.1732769210255438e-5,  7.1401064969692758e-5,   -0.00017429974539128115,
                     -9.3735044992088042e-5, 0.00067367824876192594, -0.00014624686098279686, -0.0023458124421948411,
                     0.0017589335575530585,  0.0088249385535571708,  -0.0098726893663768652,  -0.046895610231077164,
                     0.047343306841904155,   0.67264322397765591,    -0.67179408405669227});
}

Tensor erfc_of(const Tensor& x) {
  // erfc(28) is 0 in f64 too. h has few enough bits that its square is exact: an error of z^2 would be an error of the
  // result.
  const double grid = x.dtype() == kFloat64 ? 0x1p20 : 0x1p8;
  const Tensor z = minimum(abs(x), 28.0), h = round(z * grid) * (1 / grid), d = z + 2.0;
  const Tensor rest = erfc_exponent((2.0 - z) / d) + (h - z) * (h + z);
  const Tensor y = exp(rest) * (2.0 / d) * exp(neg(square(h)));
  return where(lt(x, 0.0), 2.0 - y, y);
}

Tensor erfinv_of(const Tensor& x) {
  const Tensor a = abs(x), inside = lt(a, 1.0), c = where(inside, a, 0.0);
  // Polynomials of w with relative error 5e-7, then one step of Halley's method. Near 1, erfc has the digits.
  const Tensor w = neg(log((1.0 - c) * (1.0 + c))), s = sqrt(w);
  const Tensor centre = polynomial(w, {3.561808433e-7, -9.406510159e-6, 8.981545378e-5, -0.0002183992516,
                                       -0.002230183103, 0.01148786599, 0.232027783, 0.886226378});
  const Tensor tail = polynomial(s, {5.097773832e-7, -1.973621303e-5, 0.0003333339912, -0.003204890075, 0.01912306054,
                                     -0.071768041, 0.1596892849, -0.1624500399, 0.958789325});
  const Tensor y = where(lt(w, 5.0), c * centre, s * tail);
  const Tensor excess = where(lt(c, 0.5), erf(y) - c, (1.0 - c) - erfc_of(y));
  const Tensor step = excess / (exp(neg(square(y))) * (2 * std::numbers::inv_sqrtpi));
  const Tensor exact = where(inside, y - step / (y * step + 1.0), where(eq(a, 1.0), kInf, kNan));
  return where(eq(x, 0.0), x, where(lt(x, 0.0), neg(exact), exact));
}

// x minus the nearest whole number: sin(pi x) and tan(pi x) need no more, and it is exact.
Tensor fraction(const Tensor& x) { return x - round(x); }

// Recurrence up to 10 and the asymptotic series there; the reflection formula below 1/2. Its derivative is made of the
// parts' derivatives, so the branch that is not taken must be finite.
Tensor digamma_of(const Tensor& x) {
  const Tensor reflect = lt(x, 0.5), z = where(reflect, 1.0 - x, x);
  const Tensor near = lt(z, 10.0), low = where(near, z, 10.0);
  Tensor sum = reciprocal(low);
  for (int k = 1; k < 10; ++k) sum = sum + reciprocal(low + static_cast<double>(k));
  const Tensor w = where(near, z + 10.0, z), inverse = reciprocal(w), r = square(inverse);
  const Tensor series =
      polynomial(r, {1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12});
  const Tensor psi = log(w) - inverse * 0.5 - series * r - where(near, sum, 0.0);
  const Tensor f = fraction(x), pole = reflect & eq(f, 0.0);
  const Tensor angle = where(reflect & ne(f, 0.0), f, 0.25) * kPi;
  const Tensor y = psi - where(reflect, cos(angle) / sin(angle) * kPi, 0.0);
  return where(pole, where(eq(x, 0.0), neg(reciprocal(x)).detach(), kNan), y);
}

// lgamma(2 + u) / (u (1 + u)) for |u| <= 1/2, error 1e-16: the zeros at 1 and 2 are exact factors.
Tensor lgamma_near_two(const Tensor& u) {
  return polynomial(u, {-2.4890295296503957e-7, 5.2365685348413621e-7, -8.2476880829059131e-7, 1.749054030806819e-6,
                        -3.8546221362515833e-6, 8.2374766746362501e-6, -1.7660586231652297e-5, 3.8166605933399916e-5,
                        -8.3095221469151261e-5, 0.00018255283839072259, -0.00040570739285611585, 0.00091537691250878313,
                        -0.0021081308340694719, 0.0049986411649353729, -0.01238419219337021, 0.03296500062115359,
                        -0.10031730167435392, 0.42278433509846714});
}

Tensor lgamma_of(const Tensor& x) {
  const Tensor reflect = lt(x, 0.5), z = where(reflect, 1.0 - x, x), small = lt(z, 2.5);
  // [1/2, 5/2): Gamma(z) = Gamma(z + 1) / z below 3/2.
  const Tensor s = where(small, z, 2.0), first = lt(s, 1.5), u = where(first, s - 1.0, s - 2.0);
  const Tensor low = u * (u + 1.0) * lgamma_near_two(u) - log(where(first, s, 1.0));
  // From 5/2 on, Stirling's series, at z + 8 for z < 10.
  const Tensor t = where(small, 10.0, z), near = lt(t, 10.0), q = where(near, t, 1.0);
  Tensor product = q;
  for (int k = 1; k < 8; ++k) product = product * (q + static_cast<double>(k));
  const Tensor w = where(near, t + 8.0, t), inverse = reciprocal(w), r = square(inverse);
  const Tensor series =
      polynomial(r, {1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12});
  const double constant = (std::numbers::ln2 + 1.1447298858494001741 - 1) / 2;  // (log(2 pi) - 1) / 2
  const Tensor high = (w - 0.5) * (log(w) - 1.0) + constant + series * inverse - where(near, log(product), 0.0);
  const Tensor y = where(small, low, high);
  const Tensor reflected = log(kPi / abs(sin(fraction(x) * kPi))) - y;
  return where(eq(x, -kInf), kInf, where(reflect, reflected, y));
}

}  // namespace

Tensor erfc(const Arg& arg) {
  return of_real(arg, "erfc", [](const Tensor& v) {
    return with_derivative(v, erfc_of, [](const Tensor& x, const Tensor&, const Tensor& dy) {
      return dy * (exp(neg(square(x))) * (-2 * std::numbers::inv_sqrtpi));
    });
  });
}

Tensor erfinv(const Arg& arg) {
  return f32_of_real(arg, "erfinv", [](const Tensor& v) {
    return with_derivative(v, erfinv_of, [](const Tensor&, const Tensor& y, const Tensor& dy) {
      return dy * (exp(square(y)) * (0.5 / std::numbers::inv_sqrtpi));
    });
  });
}

Tensor digamma(const Arg& arg) {
  return of_real(arg, "digamma", [](const Tensor& x) { return digamma_of(x.to(kFloat64)).to(x.dtype()); });
}

Tensor lgamma(const Arg& arg) {
  return of_real(arg, "lgamma", [](const Tensor& v) {
    return with_derivative(v.to(kFloat64), lgamma_of,
                           [](const Tensor& x, const Tensor&, const Tensor& dy) { return dy * digamma_of(x); })
        .to(v.dtype());
  });
}

Tensor sinc(const Arg& arg) {
  return of_real(arg, "sinc", [](const Tensor& x) {
    // The power series near 0, where the derivative of the quotient cancels.
    const Tensor small = lt(abs(x), 0.16);
    const Tensor z = square(where(small, x, 0.0) * kPi);
    const Tensor series = polynomial(z, {-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
                                         -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1});
    const Tensor far = where(small, 1.0, x), half = round(far) * 0.5;
    const Tensor sign = 1.0 - (half - floor(half)) * 4.0;
    return where(small, series, sign * sin(fraction(far) * kPi) / (far * kPi));
  });
}

Tensor logit(const Arg& arg, std::optional<double> eps) {
  return of_real(arg, "logit", [=](const Tensor& v) {
    // The lower end comes first if the ends are exchanged (eps > 1/2), as in PyTorch.
    const Tensor inside = !eps ? v : where(lt(v, *eps), *eps, clamp_max(v, 1 - *eps));
    return with_derivative(
        inside,
        [](const Tensor& x) {
          // Near 1/2 the quotient is near 1, and 2 x - 1 is exact.
          const Tensor rest = 1.0 - x, middle = lt(abs(x - 0.5), 0.25);
          return where(middle, log1p((x * 2.0 - 1.0) / rest), log(x / rest));
        },
        [](const Tensor& x, const Tensor&, const Tensor& dy) { return dy / (x * (1.0 - x)); });
  });
}

Tensor xlogy(const Arg& a, const Arg& b) {
  return of_reals(a, b, "xlogy", [](const Tensor& x, const Tensor& y) {
    const Tensor limit = eq(x, 0.0) & (le(y, 0.0) | eq(y, kInf));
    return x * log(where(limit, 1.0, y));
  });
}

// max(a, b) + log(1 + e^(-scale |a - b|)) / scale.
static Tensor log_add(const Arg& x, const Arg& y, double scale, const char* op) {
  return of_reals(x, y, op, [=](const Tensor& u, const Tensor& v) {
    // Equal infinities have difference 0.
    const auto difference = [](const Tensor& a, const Tensor& b) { return where(eq(a, b) & isinf(a), 0.0, a - b); };
    return with_derivative(
        u, v,
        [=](const Tensor& a, const Tensor& b) {
          return maximum(a, b) + log1p(exp(abs(difference(a, b)) * -scale)) * (1 / scale);
        },
        [=](const Tensor& a, const Tensor& b, const Tensor&, const Tensor& dy) {
          const Tensor d = difference(a, b) * scale;
          return PairGrads{dy * sigmoid(d), dy * sigmoid(neg(d))};
        });
  });
}

Tensor logaddexp(const Arg& a, const Arg& b) { return log_add(a, b, 1, "logaddexp"); }
Tensor logaddexp2(const Arg& a, const Arg& b) { return log_add(a, b, std::numbers::ln2, "logaddexp2"); }

}  // namespace weft
