#include "ops/composite/math/special.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
const Real kPi = std::acos(Real(-1));

Operand between(double lo, double hi) { return {Shape{3, 7}, kFloat32, lo, hi}; }

// The asymptotic series after a shift to 60, and reflection.
Real digamma_reference(Real x) {
  if (x < Real(0.5)) {
    const Real f = x - std::rint(x);
    return digamma_reference(1 - x) - kPi * std::cos(kPi * f) / std::sin(kPi * f);
  }
  Real sum = 0;
  for (; x < 60; x += 1) sum -= 1 / x;
  const Real r = 1 / (x * x);
  return sum + std::log(x) - 1 / (2 * x) -
         r * (Real(1) / 12 - r * (Real(1) / 120 - r * (Real(1) / 252 - r * (Real(1) / 240 - r / 132))));
}

// Bisection of erf, or of erfc near 1.
Real erfinv_reference(Real x) {
  const Real a = std::fabs(x);
  if (a < 1e-9) return x * std::sqrt(kPi) / 2;
  Real lo = 0, hi = 7;
  for (int i = 0; i < 80; ++i) {
    const Real m = (lo + hi) / 2;
    (a < Real(0.5) ? std::erf(m) < a : std::erfc(m) > 1 - a) ? lo = m : hi = m;
  }
  return std::copysign((lo + hi) / 2, x);
}

Real sinc_reference(Real x) { return x == 0 ? 1 : std::sin(kPi * x) / (kPi * x); }

#define ROW(name, lo, hi, reference)                                              \
  {                                                                               \
#name, {between(lo, hi) }, [](Args a) { return name(a[0]); }, each(reference) \
  }
#define ROW2(name, lo, hi, reference)                                                                    \
  {                                                                                                      \
#name, {between(lo, hi), between(lo, hi) }, [](Args a) { return name(a[0], a[1]); }, each(reference) \
  }

const std::vector<CompositeRow> kTable = {
    ROW(erfc, -3, 3, [](Real x) { return std::erfc(x); }),
    ROW(erfinv, -0.9, 0.9, erfinv_reference),
    {"lgamma", {between(0.3, 5)}, [](Args a) { return lgamma(a[0]); }, each([](Real x) { return std::lgamma(x); }), 64},
    {"lgamma_below_0",
     {between(-1.8, -1.2)},
     [](Args a) { return lgamma(a[0]); },
     each([](Real x) { return std::lgamma(x); }),
     64},
    ROW(digamma, 0.3, 5, digamma_reference),
    {"digamma_below_0", {between(-1.8, -1.2)}, [](Args a) { return digamma(a[0]); }, each(digamma_reference)},
    ROW(sinc, -2.5, 2.5, sinc_reference),
    ROW(logit, 0.1, 0.9, [](Real x) { return std::log(x / (1 - x)); }),
    {"logit_limited", {between(-0.2, 1.2)}, [](Args a) { return logit(a[0], 0.0625); }, each([](Real x) {
       const Real y = std::min<Real>(std::max<Real>(x, 0.0625), 0.9375);
       return std::log(y / (1 - y));
     })},
    ROW2(xlogy, 0.2, 4, [](Real x, Real y) { return x * std::log(y); }),
    ROW2(logaddexp, -4, 4, [](Real a, Real b) { return std::log(std::exp(a) + std::exp(b)); }),
    ROW2(logaddexp2, -4, 4, [](Real a, Real b) { return std::log2(std::exp2(a) + std::exp2(b)); }),
};
WEFT_TEST_COMPOSITES(Special, kTable);

Tensor of(const std::vector<double>& v) {
  return Tensor::from_vector<double>(v, Shape{static_cast<int64_t>(v.size())});
}
std::vector<double> slopes(const std::function<Tensor(const Tensor&)>& f, const std::vector<double>& at) {
  Tensor x = of(at).requires_grad();
  return grad(sum(f(x)), {x})[0].to_vector<double>();
}

TEST(Special, ValuesAtTheEndsOfDomains) {
  expect_values(erfc(of({-kInf, 0, 30, kInf, kNan})), {2, 1, 0, 0, kNan});
  expect_values(erfinv(of({-1, 0, 1, 2, kNan})), {-kInf, 0, kInf, kNan, kNan});
  expect_values(lgamma(of({1, 2, 0, -1, -3, kInf, -kInf, kNan})), {0, 0, kInf, kInf, kInf, kInf, kInf, kNan});
  expect_values(digamma(of({0, -0.0, -2, kInf, kNan})), {-kInf, kInf, kNan, kInf, kNan});
  expect_values(sinc(of({0, 1, -2, 3, kNan})), {1, 0, 0, 0, kNan});
  expect_values(logit(of({0, 0.5, 1, -1, 2})), {-kInf, 0, kInf, kNan, kNan});
  expect_values(xlogy(of({0, 0, 0, 2, 0}), of({0, kInf, -1, 0, kNan})), {0, 0, 0, -kInf, kNan});
  expect_values(logaddexp(of({-kInf, kInf, -kInf, 1000, kInf}), of({-kInf, kInf, 3, -1000, -kInf})),
                {-kInf, kInf, 3, 1000, kInf});
  expect_values(logaddexp2(of({10, -kInf}), of({10, -kInf})), {11, -kInf});
  EXPECT_EQ(lgamma(ones({2}, {.dtype = kInt64})).dtype(), kFloat32);
  for (Tensor (*f)(const Arg&) : {erfc, erfinv, lgamma, digamma, sinc})
    EXPECT_EQ(f(zeros({0, 3})).shape(), (Shape{0, 3}));
}

TEST(Special, SlopesAtCornersAreFinite) {
  EXPECT_EQ(slopes([](const Tensor& x) { return sinc(x); }, {0, 1, -2}), (std::vector<double>{0, -1, -0.5}));
  EXPECT_EQ(slopes([](const Tensor& x) { return xlogy(x, 0.0); }, {0}), (std::vector<double>{0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return xlogy(0.0, x); }, {0, 2}), (std::vector<double>{0, 0}));
  EXPECT_EQ(slopes([](const Tensor& x) { return logaddexp(x, x); }, {-kInf, 0, 3}), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(slopes([](const Tensor& x) { return erfc(x); }, {-40, 40}), (std::vector<double>{0, 0}));
  EXPECT_NEAR(slopes([](const Tensor& x) { return lgamma(x); }, {1})[0], -0.57721566490153286, 1e-15);
}

// The largest error over random points: in ulp of the result, or of 1 for smaller results where `beside_zero` says that
// a zero of the function is not a zero of the formula.
struct Accuracy {
  const char* name;
  Tensor (*f)(const Arg&);
  Real (*reference)(Real);
  double lo, hi;
  double ulp, ulp_f64;
  bool beside_zero = false;
};

TEST(Special, IsAccurateToAFewUlp) {
  const std::vector<Accuracy> rows = {
      {"erfc", erfc, [](Real x) { return std::erfc(x); }, -6, 10.5, 6, 6},
      {"erfinv", erfinv, erfinv_reference, -1, 1, 6, 6},
      {"lgamma", lgamma, [](Real x) { return std::lgamma(x); }, 0, 3, 1, 250},
      {"lgamma", lgamma, [](Real x) { return std::lgamma(x); }, 3, 1000, 1, 100},
      {"lgamma below 0", lgamma, [](Real x) { return std::lgamma(x); }, -20, 0, 1, 100, true},
      {"digamma", digamma, digamma_reference, 0, 100, 1, 20, true},
      {"digamma below 0", digamma, digamma_reference, -20, 0, 1, 20, true},
      {"sinc", sinc, sinc_reference, -0.9, 0.9, 4, 4},
  };
  for (const Accuracy& row : rows)
    for (DType t : {kFloat32, kFloat64}) {
      SCOPED_TRACE(str_cat(row.name, " ", t));
      Random random(7);
      std::vector<Real> points;
      for (int i = 0; i < 10000; ++i) {
        points.push_back(rounded(random.between(row.lo, row.hi, false), t));
        if (std::fabs(points.back()) == std::fabs(row.hi)) points.pop_back();
      }
      const std::vector<Real> got = to_reals(row.f(from_reals(points, {t, {}, {static_cast<int64_t>(points.size())}})));
      Real worst = 0, at = 0;
      for (size_t i = 0; i < points.size(); ++i) {
        const Real want = row.reference(points[i]);
        int exponent = std::max(std::ilogb(want), t == kFloat32 ? -126 : -1022);
        if (row.beside_zero && t == kFloat64) exponent = std::max(exponent, 0);
        const Real error = std::fabs(got[i] - want) / std::scalbn(2 * Real(unit_roundoff(t)), exponent);
        if (!(error <= worst)) worst = error, at = points[i];
      }
      EXPECT_LE(worst, t == kFloat32 ? row.ulp : row.ulp_f64) << "at " << at;
    }
}

}  // namespace
}  // namespace weft::testing
