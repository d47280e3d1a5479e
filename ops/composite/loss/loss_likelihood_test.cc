#include "ops/composite/loss/loss_likelihood.h"

#include <cmath>
#include <numbers>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

const Operand kX{Shape{4, 5}, kFloat32, -2, 2}, kPositive{Shape{4, 5}, kFloat32, 0.125, 3};
constexpr Real kPi = std::numbers::pi_v<Real>;

template <class F>
std::function<Reals(const std::vector<Reals>&)> each(F f) {
  return [f](const std::vector<Reals>& in) {
    Reals y;
    for (size_t i = 0; i < in[0].size(); ++i) y.push_back(f(in, i));
    return y;
  };
}

template <class F>
std::function<Reals(const std::vector<Reals>&)> sum_over(F f, Real divisor) {
  return [f, divisor](const std::vector<Reals>& in) {
    Real s = 0;
    for (size_t i = 0; i < in[0].size(); ++i) s += f(in, i);
    return Reals{s / divisor};
  };
}

Real kl(const std::vector<Reals>& in, size_t i) { return in[1][i] * (std::log(in[1][i]) - in[0][i]); }
Real kl_log(const std::vector<Reals>& in, size_t i) { return std::exp(in[1][i]) * (in[1][i] - in[0][i]); }
Real gaussian(Real x, Real t, Real v) { return (std::log(v) + (x - t) * (x - t) / v) / 2; }

const std::vector<CompositeRow> kTable = {
    {"kl_div", {kX, kPositive}, [](Args a) { return kl_div(a[0], a[1]); }, sum_over(kl, 20), 64, true, true, 8},
    {"kl_div_batchmean",
     {kX, kPositive},
     [](Args a) { return kl_div(a[0], a[1], "batchmean"); },
     sum_over(kl, 4),
     64,
     true,
     true,
     32},
    {"kl_div_log_target",
     {kX, kX},
     [](Args a) { return kl_div(a[0], a[1], "none", true); },
     each(kl_log),
     32,
     true,
     true,
     8},
    {"poisson_nll_loss",
     {kX, kPositive},
     [](Args a) { return poisson_nll_loss(a[0], a[1], {.reduction = "none"}); },
     each([](const std::vector<Reals>& in, size_t i) { return std::exp(in[0][i]) - in[1][i] * in[0][i]; }),
     32,
     true,
     true},
    {"poisson_nll_loss_full",
     {kPositive, kPositive},
     [](Args a) { return poisson_nll_loss(a[0], a[1], {.log_input = false, .full = true, .eps = 0.25}); },
     sum_over(
         [](const std::vector<Reals>& in, size_t i) {
           const Real x = in[0][i], t = in[1][i];
           const Real stirling = t > 1 ? t * std::log(t) - t + std::log(2 * kPi * t) / 2 : 0;
           return x - t * std::log(x + Real(0.25)) + stirling;
         },
         20),
     96,
     true,
     true,
     4},
    {"gaussian_nll_loss",
     {kX, kX, kPositive},
     [](Args a) { return gaussian_nll_loss(a[0], a[1], a[2], {.reduction = "none"}); },
     each([](const std::vector<Reals>& in, size_t i) { return gaussian(in[0][i], in[1][i], in[2][i]); }),
     64,
     true,
     true},
    {"gaussian_nll_loss_full",
     {kX, kX, {Shape{4}, kFloat32, 0.25, 2}},
     [](Args a) { return gaussian_nll_loss(a[0], a[1], a[2], {.full = true}); },
     sum_over([](const std::vector<Reals>& in,
                 size_t i) { return gaussian(in[0][i], in[1][i], in[2][i / 5]) + std::log(2 * kPi) / 2; },
              20),
     64,
     true,
     true},
};
WEFT_TEST_COMPOSITES(LossLikelihood, kTable);

TEST(KlDiv, TakesZeroProbabilities) {
  const Tensor x = Tensor::from_vector<double>({-1, -2}, {2}), t = Tensor::from_vector<double>({0, 1}, {2});
  const Tensor at = t.requires_grad();
  EXPECT_EQ(kl_div(x, t, "none").to_vector<double>(), (std::vector<double>{0, 2}));
  for (double g : grad(kl_div(x, at, "sum"), {at})[0].to_vector<double>()) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(error_of([&] { kl_div(x, t, "batch"); }),
            "kl_div: reduction is 'batch'; need \"mean\", \"sum\" or \"none\"");
  EXPECT_EQ(kl_div(zeros({}), ones({}), "batchmean").item<float>(), 0);
}

TEST(GaussianNll, LimitsTheVariance) {
  const Tensor x = zeros({3}), t = ones({3});
  const Tensor v = Tensor::from_vector<float>({0, 0.5f, 2}, {3}).requires_grad();
  const Tensor y = gaussian_nll_loss(x, t, v, {.eps = 0.5, .reduction = "none"});
  const std::vector<float> got = y.to_vector<float>();
  EXPECT_EQ(got[0], got[1]);
  // d/dv (log v + 1/v)/2 = (1/v - 1/v^2)/2, at 0.5 for the first two, as in PyTorch.
  EXPECT_EQ(grad(sum(y), {v})[0].to_vector<float>(), (std::vector<float>{-1, -1, 0.125f}));
  EXPECT_TRUE(std::isnan(gaussian_nll_loss(zeros({1}), ones({1}), full({1}, -1)).item<float>()));
  EXPECT_EQ(gaussian_nll_loss(zeros({2}), ones({2}), 1.0).item<float>(), 0.5f);
  EXPECT_EQ(gaussian_nll_loss(zeros({2, 3}), ones({2, 3}), ones({2, 1})).item<float>(), 0.5f);
  EXPECT_EQ(error_of([] {
              gaussian_nll_loss(zeros({2, 3}), ones({2, 3}), ones({3}));
            }),
            "gaussian_nll_loss: var has shape [3] and x [2, 3]; need equal shapes, extents of 1, or no last dim");
  EXPECT_EQ(gaussian_nll_loss(zeros({0, 3}), ones({0, 3}), ones({0}), {.reduction = "sum"}).item<float>(), 0);
}

}  // namespace
}  // namespace weft::testing
