#include "ops/composite/layers/activation.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

const Operand kData{Shape{3, 7}, kFloat32, -4, 4};

const std::vector<CompositeRow> kTable = {
    {"gelu", {kData}, [](Args a) { return gelu(a[0]); }, each([](Real x) {
       return x / 2 * (1 + std::erf(x / std::sqrt(Real(2))));
     })},
    {"gelu_tanh", {kData}, [](Args a) { return gelu(a[0], "tanh"); }, each([](Real x) {
       return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<Real>) * (x + Real(0.044715) * x * x * x)));
     })},
    {"silu", {kData}, [](Args a) { return silu(a[0]); }, each([](Real x) { return x / (1 + std::exp(-x)); })},
    {"softplus", {kData}, [](Args a) { return softplus(a[0]); }, each([](Real x) { return std::log1p(std::exp(x)); })},
    {"softplus_beta", {kData}, [](Args a) { return softplus(a[0], 3); }, each([](Real x) {
       return std::log1p(std::exp(3 * x)) / 3;
     })},
    {"logsigmoid", {kData}, [](Args a) { return logsigmoid(a[0]); }, each([](Real x) {
       return -std::log1p(std::exp(-x));
     })},
    {"leaky_relu", {kData}, [](Args a) { return leaky_relu(a[0], 0.125); }, each([](Real x) {
       return x > 0 ? x : x / 8;
     })},
    {"elu", {kData}, [](Args a) { return elu(a[0], 2); }, each([](Real x) { return x > 0 ? x : 2 * std::expm1(x); })},
    {"clamp", {kData}, [](Args a) { return clamp(a[0], -1.5, 2.0); }, each([](Real x) {
       return std::min<Real>(std::max<Real>(x, -1.5), 2);
     })},
    {"selu", {kData}, [](Args a) { return selu(a[0]); }, each([](Real x) {
       return Real(1.0507009873554804934L) * (x > 0 ? x : Real(1.6732632423543772848L) * std::expm1(x));
     })},
    {"celu", {kData}, [](Args a) { return celu(a[0], 2); }, each([](Real x) {
       return x > 0 ? x : 2 * std::expm1(x / 2);
     })},
    {"glu",
     {{Shape{2, 6, 3}}},
     [](Args a) { return glu(a[0], 1); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int b = 0; b < 2; ++b)
         for (int i = 0; i < 9; ++i) y.push_back(in[0][b * 18 + i] / (1 + std::exp(-in[0][b * 18 + 9 + i])));
       return y;
     }},
    {"mish", {kData}, [](Args a) { return mish(a[0]); }, each([](Real x) {
       return x * std::tanh(std::log1p(std::exp(x)));
     })},
    {"swish", {kData}, [](Args a) { return swish(a[0]); }, each([](Real x) { return x / (1 + std::exp(-x)); })},
    {"hardtanh", {kData}, [](Args a) { return hardtanh(a[0], -1.5, 2); }, each([](Real x) {
       return std::min<Real>(std::max<Real>(x, -1.5), 2);
     })},
    {"relu6", {{Shape{3, 7}, kFloat32, -4, 9}}, [](Args a) { return relu6(a[0]); }, each([](Real x) {
       return std::min<Real>(std::max<Real>(x, 0), 6);
     })},
    {"hardsigmoid", {kData}, [](Args a) { return hardsigmoid(a[0]); }, each([](Real x) {
       return std::min<Real>(std::max<Real>(x + 3, 0), 6) / 6;
     })},
    {"hardswish", {kData}, [](Args a) { return hardswish(a[0]); }, each([](Real x) {
       return x * std::min<Real>(std::max<Real>(x + 3, 0), 6) / 6;
     })},
    {"softsign", {kData}, [](Args a) { return softsign(a[0]); }, each([](Real x) { return x / (1 + std::fabs(x)); })},
    {"tanhshrink", {kData}, [](Args a) { return tanhshrink(a[0]); }, each([](Real x) { return x - std::tanh(x); })},
    {"hardshrink", {kData}, [](Args a) { return hardshrink(a[0], 1.5); }, each([](Real x) {
       return std::fabs(x) <= Real(1.5) ? 0 : x;
     })},
    {"softshrink", {kData}, [](Args a) { return softshrink(a[0], 1.5); }, each([](Real x) {
       return x > Real(1.5) ? x - Real(1.5) : x < Real(-1.5) ? x + Real(1.5) : 0;
     })},
    {"threshold", {kData}, [](Args a) { return threshold(a[0], 0.5, -2); }, each([](Real x) {
       return x > Real(0.5) ? x : -2;
     })},
    {"prelu",
     {{Shape{2, 3, 2}}, {Shape{3}}},
     [](Args a) { return prelu(a[0], a[1]); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 12; ++i) y.push_back(in[0][i] > 0 ? in[0][i] : in[0][i] * in[1][i / 2 % 3]);
       return y;
     }},
};
WEFT_TEST_COMPOSITES(Activation, kTable);

Tensor of(const std::vector<double>& v) {
  return Tensor::from_vector<double>(v, Shape{static_cast<int64_t>(v.size())});
}
std::vector<double> slope(Tensor (*f)(const Arg&), const std::vector<double>& at) {
  Tensor x = of(at).requires_grad();
  return grad(sum(f(x)), {x})[0].to_vector<double>();
}

TEST(Activation, FarOutThereIsNoOverflowAndNoNan) {
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = Tensor::from_vector<float>({-200, -100, 0, 100, 200}, {5});
  EXPECT_EQ(softplus(x).to_vector<float>(), (std::vector<float>{0, std::exp(-100.f), std::log(2.f), 100, 200}));
  EXPECT_EQ(logsigmoid(x).to_vector<float>(), (std::vector<float>{-200, -100, -std::log(2.f), -std::exp(-100.f), 0}));
  EXPECT_EQ(silu(x).to_vector<float>()[0], 0);
  EXPECT_EQ(softplus(of({-inf, inf})).to_vector<double>(), (std::vector<double>{0, inf}));
  EXPECT_EQ(slope([](const Arg& a) { return softplus(a); }, {-800, 0, 800}), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(slope([](const Arg& a) { return logsigmoid(a); }, {-800, 0, 800}), (std::vector<double>{1, 0.5, 0}));
  EXPECT_EQ(slope([](const Arg& a) { return elu(a); }, {-800, 800}), (std::vector<double>{0, 1}));
}

// Slopes in f32 at numbers that are exact in f32, against f64. A bound is a number of roundings u of the terms of the
// slope, with the factor by which e^t enlarges a rounding of t.
struct SlopeRow {
  const char* name;
  Tensor (*fn)(const Arg&);
  double (*slope)(double x);
  double (*bound)(double x);  // a multiple of u
  std::vector<float> at;
};
double cdf(double x) { return std::erfc(-x * M_SQRT1_2) / 2; }
double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double tail(double x) { return std::exp(-std::abs(x)); }
constexpr double kSelu = 1.6732632423543772848 * 1.0507009873554804934;

const SlopeRow kSlopes[] = {
    // elu(x) is e^x - 1 far below 0, whose last digit is 6e-8: the slope e^x must not come from it.
    {"elu",
     [](const Arg& x) { return elu(x); },
     [](double x) { return std::exp(x); },
     [](double x) { return 4 * std::exp(x); },
     {-1, -8, -12, -17, -40, -80}},
    {"selu",
     selu,
     [](double x) { return kSelu * std::exp(x); },
     [](double x) { return 4 * kSelu * std::exp(x); },
     {-1, -8, -12, -17, -40, -80}},
    {"celu",
     [](const Arg& x) { return celu(x, 2); },
     [](double x) { return std::exp(x / 2); },
     [](double x) { return 4 * std::exp(x / 2); },
     {-1, -8, -12, -17, -40, -80}},
    {"expm1",
     expm1,
     [](double x) { return std::exp(x); },
     [](double x) { return 4 * std::exp(x); },
     {-1, -8, -12, -17, -40, -80}},
    // cdf + x density, where cdf comes from erf(x) + 1, as in PyTorch: far below 0 it has the roundings of 1. In
    // e^(-x^2 / 2), x^2 / 2 has three roundings.
    {"gelu",
     [](const Arg& x) { return gelu(x); },
     [](double x) { return cdf(x) + x * density(x); },
     [](double x) { return 4 + (8 + 1.5 * x * x) * std::abs(x) * density(x); },
     {-12, -8, -5, -4, -3, -2, -1.5, -1, -0.5, 0, 1, 5, 12}},
    // tanh(x)^2, not 1 - (1 - tanh(x)^2).
    {"tanhshrink",
     tanhshrink,
     [](double x) { return std::tanh(x) * std::tanh(x); },
     [](double x) { return 12 * std::tanh(x) * std::tanh(x); },
     {-9, -1, -0.25, -0x1p-7, 0x1p-12, 0x1p-20, 0.5, 1, 4}},
    {"softplus",
     [](const Arg& x) { return softplus(x); },
     [](double x) { return 1 / (1 + std::exp(-x)); },
     [](double x) { return 8 / (1 + std::exp(-x)); },
     {-80, -17, -8, 0, 8}},
    {"logsigmoid",
     logsigmoid,
     [](double x) { return 1 / (1 + std::exp(x)); },
     [](double x) { return 8 / (1 + std::exp(x)); },
     {-8, 0, 8, 17, 60}},
    {"silu",
     silu,
     [](double x) { return (1 + x / (1 + std::exp(x))) / (1 + std::exp(-x)); },
     [](double x) { return (8 + 8 * std::abs(x)) * (x < 0 ? tail(x) : 1); },
     {-60, -17, -8, 0, 8, 17, 60}},
    // As in PyTorch, these come from the result y alone, so that a step keeps one value: 1 - y and 1 - y^2 have the
    // roundings of y, which is near 1.
    {"sigmoid",
     sigmoid,
     [](double x) { return tail(x) / ((1 + tail(x)) * (1 + tail(x))); },
     [](double x) { return x < 0 ? 8 * tail(x) : 4; },
     {-60, -17, -8, 0, 8, 17}},
    {"tanh",
     tanh,
     [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); },
     [](double) { return 6.0; },
     {-9, -4, 0, 0.5, 4, 9}},
};

TEST(Activation, SlopesKeepTheirDigits) {
  for (const SlopeRow& row : kSlopes) {
    const Tensor x = Tensor::from_vector<float>(row.at, {static_cast<int64_t>(row.at.size())}).requires_grad();
    const std::vector<float> got = grad(sum(row.fn(x)), {x})[0].to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], row.slope(row.at[i]), row.bound(row.at[i]) * 0x1p-24 + 0x1p-149)
          << row.name << " " << row.at[i];
  }
}

// Differences of nearly equal numbers.
TEST(Activation, ValuesKeepTheirDigits) {
  for (float x : {-1.0f, -0.99f, -0.25f, 0x1p-5f, 0x1p-10f, 0x1p-20f, 0.999f, 1.5f, 9.0f}) {
    const double a = std::abs(x), z = a * a;
    const double y = (a < 0.01 ? a * z * (1.0 / 3 - z * (2.0 / 15)) : a - std::tanh(a)) * (x < 0 ? -1 : 1);
    EXPECT_NEAR(tanhshrink(full({}, x)).item<float>(), y, 10 * 0x1p-24 * std::abs(y)) << x;
  }
}

TEST(Activation, ClampKeepsNanDtypeAndItsGradientAtTheEnds) {
  Tensor x = of({-2, -1, 0, 1, 2, std::nan("")});
  std::vector<double> y = clamp(x, -1, 1).to_vector<double>();
  EXPECT_EQ(std::vector<double>(y.begin(), y.end() - 1), (std::vector<double>{-1, -1, 0, 1, 1}));
  EXPECT_TRUE(std::isnan(y.back()));
  EXPECT_EQ(slope([](const Arg& a) { return clamp(a, -1, 1); }, {-2, -1, 0, 1, 2}),
            (std::vector<double>{0, 0, 1, 0, 0}));
  EXPECT_EQ(clamp(Tensor::from_vector<int64_t>({-5, 5}, {2}), 0, 3).dtype(), kInt64);
  EXPECT_EQ(clamp(of({0}), 3, 2).item<double>(), 2);
}

TEST(Activation, NanAndInfinitiesPassAsInPytorch) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor x = of({-inf, inf, nan});
  expect_values(hardtanh(x), {-1, 1, nan});
  expect_values(hardsigmoid(x), {0, 1, nan});
  expect_values(hardshrink(x), {-inf, inf, nan});
  expect_values(softshrink(x), {-inf, inf, nan});
  expect_values(threshold(x, 0, 3), {3, inf, nan});
  expect_values(mish(of({-800, 800, nan})), {0, 800, nan});
  expect_values(selu(of({-800, nan})), {-1.6732632423543772848 * 1.0507009873554804934, nan});
  EXPECT_EQ(threshold(Tensor::from_vector<int64_t>({1, 5}, {2}), 2, -7).to_vector<int64_t>(),
            (std::vector<int64_t>{-7, 5}));
}

TEST(Activation, SlopesAtTheCornersAreThoseOfPytorch) {
  EXPECT_EQ(slope([](const Arg& a) { return hardtanh(a); }, {-1, 0, 1}), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(slope([](const Arg& a) { return relu6(a); }, {0, 3, 6}), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(slope([](const Arg& a) { return hardswish(a); }, {-3, 3, 5}), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(slope([](const Arg& a) { return softshrink(a); }, {-0.5, 0.5, 1}), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(slope([](const Arg& a) { return mish(a); }, {-800, 800}), (std::vector<double>{0, 1}));
  EXPECT_EQ(slope([](const Arg& a) { return celu(a, 0.5); }, {-800, 0, 800}), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(slope([](const Arg& a) { return elu(a, 2); }, {0}), (std::vector<double>{2}));
  EXPECT_DOUBLE_EQ(slope([](const Arg& a) { return mish(a); }, {0})[0], 0.6);
  EXPECT_DOUBLE_EQ(slope([](const Arg& a) { return mish(a); }, {20})[0], 1);
  EXPECT_EQ(slope([](const Arg& a) { return softplus(a, 1, 0); }, {0}), (std::vector<double>{0.5}));
}

TEST(ActivationErrors, NameTheFunction) {
  EXPECT_EQ(error_of([] { glu(zeros({2, 3})); }), "glu: dim 1 of [2, 3] has extent 3; need an even one");
  EXPECT_EQ(error_of([] { glu(zeros({})); }), "glu: got a scalar; need a dim to halve");
  EXPECT_EQ(error_of([] { celu(zeros({2}), 0); }), "celu: alpha is 0; need another number");
  EXPECT_EQ(error_of([] {
              prelu(zeros({2, 3}), zeros({2}));
            }),
            "prelu: weight [2] does not fit x [2, 3]; need one element, or one for each slice along dim 1");
  EXPECT_EQ(error_of([] { hardtanh(zeros({2}), 1, 0); }), "hardtanh: the limits are 1 and 0; need min_val <= max_val");
  EXPECT_EQ(error_of([] { softshrink(zeros({2}), -1); }), "softshrink: lambd is -1; need 0 or more");
  EXPECT_EQ(error_of([] { gelu(Tensor::from_vector<int64_t>({1}, {1})); }),
            "gelu: operand is i64[1]; need a floating-point dtype");
  EXPECT_EQ(error_of([] { gelu(zeros({2}), "fast"); }), "gelu: approximate is 'fast'; need \"none\" or \"tanh\"");
  EXPECT_EQ(error_of([] { softplus(zeros({2}), 0); }), "softplus: beta is 0; need a positive number");
}

}  // namespace
}  // namespace weft::testing
