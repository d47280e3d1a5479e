#include "ops/composite/activation.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

std::function<Reals(const std::vector<Reals>&)> each(Real (*f)(Real)) {
  return [f](const std::vector<Reals>& in) {
    Reals y;
    for (Real x : in[0]) y.push_back(f(x));
    return y;
  };
}

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

TEST(Activation, ClampKeepsNanDtypeAndItsGradientAtTheEnds) {
  Tensor x = of({-2, -1, 0, 1, 2, std::nan("")});
  std::vector<double> y = clamp(x, -1, 1).to_vector<double>();
  EXPECT_EQ(std::vector<double>(y.begin(), y.end() - 1), (std::vector<double>{-1, -1, 0, 1, 1}));
  EXPECT_TRUE(std::isnan(y.back()));
  EXPECT_EQ(slope([](const Arg& a) { return clamp(a, -1, 1); }, {-2, -1, 0, 1, 2}),
            (std::vector<double>{0, 1, 1, 1, 0}));
  EXPECT_EQ(clamp(Tensor::from_vector<int64_t>({-5, 5}, {2}), 0, 3).dtype(), kInt64);
  EXPECT_EQ(clamp(of({0}), 3, 2).item<double>(), 2);
}

TEST(ActivationErrors, NameTheFunction) {
  EXPECT_EQ(error_of([] { gelu(Tensor::from_vector<int64_t>({1}, {1})); }),
            "gelu: operand is i64[1]; need a floating-point dtype");
  EXPECT_EQ(error_of([] { gelu(zeros({2}), "fast"); }), "gelu: approximate is 'fast'; need \"none\" or \"tanh\"");
  EXPECT_EQ(error_of([] { softplus(zeros({2}), 0); }), "softplus: beta is 0; need a positive number");
}

}  // namespace
}  // namespace weft::testing
