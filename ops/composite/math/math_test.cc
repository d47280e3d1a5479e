#include "ops/composite/math/math.h"

#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
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

Operand between(double lo, double hi) { return {Shape{3, 7}, kFloat32, lo, hi}; }

#define ROW(name, lo, hi)                                                                                   \
  {                                                                                                         \
#name, {between(lo, hi) }, [](Args a) { return name(a[0]); }, each([](Real x) { return std::name(x); }) \
  }

const std::vector<CompositeRow> kTable = {
    ROW(exp2, -3, 3),
    ROW(log2, 0.2, 5),
    ROW(log10, 0.2, 5),
    ROW(cbrt, 0.2, 4),
    ROW(tan, -1.2, 1.2),
    ROW(asin, -0.9, 0.9),
    ROW(acos, -0.9, 0.9),
    ROW(atan, -4, 4),
    ROW(sinh, -3, 3),
    ROW(cosh, -3, 3),
    ROW(asinh, -4, 4),
    ROW(acosh, 1.2, 4),
    ROW(atanh, -0.9, 0.9),
    ROW(trunc, -4, 4),
    {"hypot", {between(-3, 3), between(-3, 3)}, [](Args a) { return hypot(a[0], a[1]); }, each([](Real a, Real b) {
       return std::hypot(a, b);
     })},
    {"atan2", {between(-3, 3), between(-3, 3)}, [](Args a) { return atan2(a[0], a[1]); }, each([](Real a, Real b) {
       return std::atan2(a, b);
     })},
    {"fmod", {between(-9, 9), between(1, 3)}, [](Args a) { return fmod(a[0], a[1]); }, each([](Real a, Real b) {
       return std::fmod(a, b);
     })},
    {"copysign",
     {between(-3, 3), between(-3, 3)},
     [](Args a) { return copysign(a[0], a[1]); },
     each([](Real a, Real b) { return std::copysign(a, b); })},
    {"deg2rad", {between(-180, 180)}, [](Args a) { return deg2rad(a[0]); }, each([](Real x) {
       return x * std::acos(Real(-1)) / 180;
     })},
    {"rad2deg", {between(-4, 4)}, [](Args a) { return rad2deg(a[0]); }, each([](Real x) {
       return x * 180 / std::acos(Real(-1));
     })},
    {"lerp", {between(-2, 2), between(-2, 2)}, [](Args a) { return lerp(a[0], a[1], 0.3); }, each([](Real a, Real b) {
       return a + Real(0.3) * (b - a);
     })},
    {"lerp_by_tensor",
     {between(-2, 2), between(-2, 2), between(0, 1)},
     [](Args a) { return lerp(a[0], a[1], a[2]); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (size_t i = 0; i < in[0].size(); ++i) y.push_back(in[0][i] + in[2][i] * (in[1][i] - in[0][i]));
       return y;
     }},
    {"addcmul",
     {between(-2, 2), between(-2, 2), between(0, 1)},
     [](Args a) { return addcmul(a[0], a[1], a[2], 0.5); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (size_t i = 0; i < in[0].size(); ++i) y.push_back(in[0][i] + in[1][i] * in[2][i] / 2);
       return y;
     }},
    {"addcdiv",
     {between(-2, 2), between(-2, 2), between(0.5, 1)},
     [](Args a) { return addcdiv(a[0], a[1], a[2], 0.5); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (size_t i = 0; i < in[0].size(); ++i) y.push_back(in[0][i] + in[1][i] / in[2][i] / 2);
       return y;
     }},
};
WEFT_TEST_COMPOSITES(Math, kTable);

Tensor of(const std::vector<double>& v) {
  return Tensor::from_vector<double>(v, Shape{static_cast<int64_t>(v.size())});
}

TEST(Math, TheAxesAndInfinitiesOfAngles) {
  const std::vector<double> edges{0, -0.0, 1, -1, kInf, -kInf};
  for (DType t : {kFloat64, kFloat32})
    for (double a : edges)
      for (double b : edges) {
        SCOPED_TRACE(str_cat(t, " ", a, " ", b));
        const Tensor x = full({}, a, {.dtype = t}), y = full({}, b, {.dtype = t});
        const double angle = atan2(x, y).item<double>();
        EXPECT_NEAR(angle, std::atan2(a, b), t == kFloat64 ? 1e-15 : 2e-7);
        EXPECT_EQ(std::signbit(angle), std::signbit(std::atan2(a, b)));
        EXPECT_DOUBLE_EQ(hypot(x, y).item<double>(), t == kFloat64 ? std::hypot(a, b) : std::hypot(float(a), float(b)));
        const double r = fmod(x, y).item<double>(), want = std::fmod(a, b);
        EXPECT_EQ(std::isnan(r), std::isnan(want));
        if (!std::isnan(want)) {
          EXPECT_TRUE(r == want && std::signbit(r) == std::signbit(want)) << r;
        }
        EXPECT_EQ(std::signbit(copysign(x, y).item<double>()), std::signbit(b));
      }
}

TEST(Math, ValuesAtTheEndsOfDomains) {
  expect_values(log2(of({0, 1, 8, 0x1p-1070, kInf, -1, kNan})), {-kInf, 0, 3, -1070, kInf, kNan, kNan});
  expect_values(log10(of({0, 1, 1000, 0.001, 1e300})), {-kInf, 0, 3, -3, 300});
  expect_values(exp2(of({-kInf, -1074, 10, 1023, kInf, kNan})), {0, 0x1p-1074, 1024, 0x1p1023, kInf, kNan});
  expect_values(cbrt(of({-27, 0, 1000, kInf, -kInf, kNan})), {-3, 0, 10, kInf, -kInf, kNan});
  expect_values(atanh(of({-1, 0, 1, 2, kNan})), {-kInf, 0, kInf, kNan, kNan});
  expect_values(acosh(of({1, 0.5, -3, -1e9, kInf})), {0, kNan, kNan, kNan, kInf});
  expect_values(asinh(of({-kInf, 0, kInf})), {-kInf, 0, kInf});
  expect_values(sinh(of({-800, 0, 800, kNan})), {-kInf, 0, kInf, kNan});
  expect_values(asin(of({-2, 0, kInf, kNan})), {kNan, 0, kNan, kNan});
  expect_values(acos(of({1, 2, -2})), {0, kNan, kNan});
  for (Tensor (*f)(const Arg&) : {cbrt, tan, asin, atan, sinh, asinh, atanh})
    EXPECT_TRUE(std::signbit(f(of({-0.0})).item<double>()));
  EXPECT_EQ(hypot(of({3e300}), of({4e300})).item<double>(), 5e300);
  EXPECT_EQ(hypot(of({kInf}), of({kNan})).item<double>(), kInf);
}

TEST(Math, SlopesAtCornersAreFinite) {
  Tensor a = of({0, 3}).requires_grad(), b = of({0, 4}).requires_grad();
  std::vector<Tensor> g = grad(sum(hypot(a, b)), {a, b});
  expect_values(g[0], {0, 0.6});
  expect_values(g[1], {0, 0.8});
  g = grad(sum(atan2(a, b)), {a, b});
  expect_values(g[0], {0, 0.16});
  expect_values(g[1], {0, -0.12});
  Tensor x = of({-1e200, 0, 1e200}).requires_grad();
  expect_values(grad(sum(asinh(x)), {x})[0], {1e-200, 1, 1e-200});
  expect_values(grad(sum(atan(x)), {x})[0], {0, 1, 0});
  expect_values(grad(sum(frac(x)), {x})[0], {1, 1, 1});
  expect_values(grad(sum(fmod(x, 2.0)), {x})[0], {1, 1, 1});
}

TEST(Math, IntegersAndBroadcasting) {
  const Tensor i = Tensor::from_vector<int64_t>({-7, 0, 7}, {3});
  EXPECT_EQ(exp2(i).dtype(), kFloat32);
  expect_values(exp2(i), {0x1p-7, 1, 128});
  EXPECT_EQ(fmod(i, 3).to_vector<int64_t>(), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(fmod(i, -3).to_vector<int64_t>(), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(fmod(Tensor::from_vector<int64_t>({INT64_MIN}, {1}), 3).item<int64_t>(), -2);
  EXPECT_EQ(trunc(i).dtype(), kInt64);
  EXPECT_EQ(positive(i).dtype(), kInt64);
  EXPECT_EQ(sgn(i).to_vector<int64_t>(), (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_EQ(addcmul(i, i, i, 2).to_vector<int64_t>(), (std::vector<int64_t>{91, 0, 105}));
  EXPECT_EQ(hypot(ones({2, 1}), ones({3})).shape(), (Shape{2, 3}));
  EXPECT_EQ(atan2(ones({2}, {.dtype = kBFloat16}), 1.0).dtype(), kBFloat16);
  expect_values(heaviside(of({-2, 0, 3, kNan}), 0.5), {0, 0.5, 1, 0});
  for (Tensor (*f)(const Arg&) : {exp2, log2, cbrt, tan, acos, atan, sinh, asinh, trunc, frac, isinf})
    EXPECT_EQ(f(zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(hypot(zeros({0, 3}), zeros({3})).shape(), (Shape{0, 3}));
}

TEST(Math, NumbersNextToEachOther) {
  const auto check = [](auto least) {
    using T = decltype(least);
    using Limits = std::numeric_limits<T>;
    std::vector<T> a, b, want;
    std::vector<T> points{0, -T(0), least, Limits::min(), Limits::max(), T(kInf), T(kNan), 1, T(1) / 3};
    for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent; ++e)  // around all powers of 2
      for (T p : {std::ldexp(T(1), e), std::ldexp(T(1.75), e)}) points.push_back(std::nextafter(p, T(0)));
    for (size_t i = points.size(); i-- > 0;) points.push_back(-points[i]);
    for (T x : points)
      for (T y : {T(kInf), -T(kInf), T(0), -x, x, T(kNan)}) a.push_back(x), b.push_back(y);
    for (size_t i = 0; i < a.size(); ++i) want.push_back(std::nextafter(a[i], b[i]));
    const Shape shape{static_cast<int64_t>(a.size())};
    const Tensor x = Tensor::from_vector<T>(a, shape), y = Tensor::from_vector<T>(b, shape);
    const Tensor next = nextafter(x, y), compiled = compile([](Tensor s, Tensor t) { return nextafter(s, t); })(x, y);
    const std::vector<T> got = next.template to_vector<T>();
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << a[i] << " to " << b[i];
    EXPECT_TRUE(same_bits(compiled, next));
  };
  check(std::numeric_limits<float>::denorm_min());
  check(std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::signbit(nextafter(of({0.0}), of({-0.0})).item<double>()));
  EXPECT_EQ(error_of([] { nextafter(zeros({2}, {.dtype = kFloat16}), 1.0); }),
            "nextafter: operands are f16; need f32 or f64");
}

TEST(Math, WholeQuotientsAndDivisorsAreExact) {
  using I = std::vector<int64_t>;
  const auto ints = [](const I& v) { return Tensor::from_vector(v, {static_cast<int64_t>(v.size())}); };
  const Tensor a = ints({INT64_MAX, -INT64_MAX, 7, -7, -6}), b = ints({2, 2, -2, 2, 3});
  EXPECT_EQ(div(a, b, "trunc").to_vector<int64_t>(), (I{INT64_MAX / 2, -INT64_MAX / 2, -3, -3, -2}));
  EXPECT_EQ(div(a, b, "floor").to_vector<int64_t>(), (I{INT64_MAX / 2, -INT64_MAX / 2 - 1, -4, -4, -2}));
  EXPECT_EQ(div(ints({7}).to(kUInt8), 2, "trunc").to_vector<int64_t>(), (I{3}));
  // Neighbours in Fibonacci's sequence take the most steps.
  const Tensor p = ints({7540113804746346429, 0, 0, -12, INT64_MAX}), q = ints({4660046610375530309, 0, 5, 18, 1});
  const auto both = [](Tensor x, Tensor y) { return std::vector{gcd(x, y), lcm(gcd(x, y), y)}; };
  EXPECT_EQ(gcd(p, q).to_vector<int64_t>(), (I{1, 0, 5, 6, 1}));
  EXPECT_EQ(lcm(ints({4, 0, -6}), ints({6, 3, 4})).to_vector<int64_t>(), (I{12, 0, 12}));
  const std::vector<Tensor> eager = both(p, q), compiled = compile(both)(p, q);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(compiled[i], eager[i]));
  EXPECT_EQ(error_of([] { gcd(zeros({2}), 1); }), "gcd: operands are f32; need an integer dtype");
  EXPECT_EQ(error_of([&] { div(a, b, "up"); }), "div: rounding_mode is 'up'; need \"trunc\" or \"floor\"");
}

TEST(Math, InfinitiesAreFoundAndReplaced) {
  const Tensor x = of({-kInf, 1, kInf, kNan});
  expect_values(isinf(x), {1, 0, 1, 0});
  expect_values(isposinf(x), {0, 0, 1, 0});
  expect_values(isneginf(x), {1, 0, 0, 0});
  expect_values(isinf(ones({2}, {.dtype = kInt64})), {0, 0});
  expect_values(isposinf(ones({2}, {.dtype = kBool})), {0, 0});
  const double most = std::numeric_limits<double>::max();
  expect_values(nan_to_num(x), {-most, 1, most, 0});
  expect_values(nan_to_num(x, 7, 8, -9), {-9, 1, 8, 7});
  expect_values(nan_to_num(x.to(kFloat16)), {-65504, 1, 65504, 0});
  expect_values(nan_to_num(x.to(kBFloat16)), {-0x1.fep127, 1, 0x1.fep127, 0});
}

TEST(MathErrors, NameTheFunction) {
  EXPECT_EQ(error_of([] { hypot(zeros({2}), zeros({3})); }),
            "hypot: shapes [2] and [3] do not broadcast: dimension 0 has 2 and 3; need equal extents or 1");
  EXPECT_EQ(error_of([] { frac(zeros({2}, {.dtype = kInt64})); }),
            "frac: operand is i64[2]; need a floating-point dtype");
  EXPECT_EQ(error_of([] { trunc(zeros({2}, {.dtype = kBool})); }),
            "trunc: operand is bool[2]; need numbers: convert with to(u8)");
  const Tensor i = ones({2}, {.dtype = kInt64});
  EXPECT_EQ(error_of([&] { addcdiv(i, i, i); }), "addcdiv: operands are i64; need a floating-point dtype");
  EXPECT_EQ(error_of([&] { lerp(i, i, 0.5); }), "lerp: start and end are i64; need a floating-point dtype");
}

// The largest error over random points of the whole domain, in ulp of the result.
struct Accuracy {
  const char* name;
  Tensor (*f)(const Arg&);
  Real (*reference)(Real);
  double lo, hi;      // half of the points are uniform here
  double least_log2;  // the others have magnitudes from 2^least_log2 (f32; 8 times that in f64) to hi
  double ulp;
};

void PrintTo(const Accuracy& row, std::ostream* out) { *out << row.name; }

class MathAccuracy : public ::testing::TestWithParam<Accuracy> {};

#define ACCURACY(name, ...)                                       \
  Accuracy {                                                      \
#name, name, [](Real x) { return std::name(x); }, __VA_ARGS__ \
  }

TEST_P(MathAccuracy, IsAFewUlp) {
  const Accuracy& row = GetParam();
  Random random(7);
  for (DType t : {kFloat32, kFloat64}) {
    SCOPED_TRACE(str_cat(t));
    std::vector<Real> points;
    for (int i = 0; i < 20000; ++i) {
      double x = random.between(row.lo, row.hi, false);
      if (i % 2) {
        const double low = row.least_log2 * (t == kFloat64 ? 8 : 1);
        x = std::exp2(random.between(low, std::log2(row.hi), false)) * (row.lo < 0 && i % 4 == 1 ? -1 : 1);
      }
      if (x >= row.lo) points.push_back(rounded(x, t));
    }
    const Tensor y = row.f(from_reals(points, {t, {}, {static_cast<int64_t>(points.size())}}));
    const std::vector<Real> got = to_reals(y);
    Real worst = 0, at = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const Real want = row.reference(points[i]);
      if (std::fabs(want) > max_finite(t)) {
        EXPECT_TRUE(std::isinf(got[i])) << points[i];
        continue;
      }
      const int exponent = std::max(std::ilogb(want), t == kFloat32 ? -126 : -1022);
      const Real error = std::fabs(got[i] - want) / std::scalbn(2 * Real(unit_roundoff(t)), exponent);
      if (!(error <= worst)) worst = error, at = points[i];
    }
    EXPECT_LE(worst, row.ulp) << "at " << at;
    RecordProperty(str_cat("ulp_", t), str_cat(static_cast<double>(worst)));
  }
}

INSTANTIATE_TEST_SUITE_P(Math, MathAccuracy,
                         ::testing::Values(ACCURACY(exp2, -150, 128, -20, 1), ACCURACY(log2, 0, 100, -126, 2),
                                           ACCURACY(log10, 0, 100, -126, 3), ACCURACY(cbrt, -100, 100, -126, 1),
                                           ACCURACY(tan, -100, 100, -100, 5), ACCURACY(asin, -1, 1, -100, 5),
                                           ACCURACY(acos, -1, 1, -20, 5), ACCURACY(atan, -100, 100, -100, 4),
                                           ACCURACY(sinh, -89, 89, -100, 4), ACCURACY(cosh, -89, 89, -20, 4),
                                           ACCURACY(asinh, -1e10, 1e10, -100, 3), ACCURACY(acosh, 1, 1e10, 0, 4),
                                           ACCURACY(atanh, -1, 1, -100, 3)),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::testing
