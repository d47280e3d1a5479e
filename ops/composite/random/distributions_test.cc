// Densities against their formulas, samples against their distribution, divergences against sums and integrals.
#include "ops/composite/random/distributions.h"

#include <cmath>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/math/special.h"
#include "ops/composite/random/distribution_parts.h"
#include "ops/composite/random/gamma.h"
#include "ops/core/core.h"

namespace weft::distributions {
namespace {

using testing::expect_error;
using testing::gradcheck;
using testing::same_bits;

constexpr double kInf = std::numeric_limits<double>::infinity();
Tensor vec(const std::vector<double>& v) { return Tensor::from_vector<double>(v, {static_cast<int64_t>(v.size())}); }
double number(const Tensor& t) { return t.item<double>(); }

// The mean and the variance of samples, within five standard errors.
void expect_moments(const Tensor& samples, double mean, double variance) {
  const double n = static_cast<double>(samples.numel());
  EXPECT_NEAR(number(weft::mean(samples.to(kFloat64))), mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(number(weft::var(samples.to(kFloat64))), variance, 40 * variance / std::sqrt(n));
}

TEST(Distributions, SamplesHaveTheMomentsAndShapes) {
  manual_seed(3);
  expect_moments(Normal(2.0, 3.0).sample({40000}), 2, 9);
  expect_moments(Uniform(-1.0, 3.0).sample({40000}), 1, 16.0 / 12);
  expect_moments(Exponential(0.5).sample({40000}), 2, 4);
  expect_moments(Bernoulli(0.3).sample({40000}), 0.3, 0.21);
  const Tensor drawn = Categorical({.logits = log(vec({1, 0, 3, 4}))}).sample({40000});
  EXPECT_EQ(drawn.dtype(), kInt64);
  const std::vector<int64_t> counts = histogram(drawn, 4).to_vector<int64_t>();
  for (auto [i, p] : {std::pair{0, 0.125}, {1, 0.0}, {2, 0.375}, {3, 0.5}})
    EXPECT_NEAR(static_cast<double>(counts[static_cast<size_t>(i)]), 40000 * p, 5 * std::sqrt(40000 * p));
  EXPECT_EQ(Normal(zeros({2, 1}), ones({3})).sample({4}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(Categorical(ones({2, 5})).sample({4, 3}).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(Bernoulli(full({2}, 0.5)).sample().shape(), (Shape{2}));
  EXPECT_EQ(Normal(zeros({0}), ones({0})).sample({3}).shape(), (Shape{3, 0}));
  EXPECT_EQ(Normal(zeros({2}, {.dtype = kBFloat16}), 1.0).sample().dtype(), kBFloat16);
}

// The share of samples below each quantile; quantiles of Gamma(1, 1) and Gamma(0.5, 0.5) (chi-square) are elementary.
TEST(Distributions, GammaHasItsMomentsAndQuantiles) {
  manual_seed(7);
  constexpr int64_t kSamples = 40000;
  for (double a : {0.05, 0.5, 1.0, 3.0, 200.0}) expect_moments(Gamma(vec({a}), 2.0).sample({kSamples}), a / 2, a / 4);
  const Tensor one = Gamma(1.0, 1.0).sample({kSamples}), half = Gamma(0.5, 0.5).sample({kSamples});
  for (double p : {0.1, 0.5, 0.9}) {
    const double within = 5 * std::sqrt(p * (1 - p) / kSamples);
    EXPECT_NEAR(number(mean((one < -std::log1p(-p)).to(kFloat64))), p, within);
    const double root = number(erfinv(vec({p}))) * std::sqrt(2.0);
    EXPECT_NEAR(number(mean((half < root * root).to(kFloat64))), p, within);
  }
  expect_moments(Beta(vec({2}), 3.0).sample({kSamples}), 0.4, 0.04);
  const Dirichlet d(vec({1, 2, 5}));
  const Tensor drawn = d.sample({kSamples});
  EXPECT_EQ(drawn.shape(), (Shape{kSamples, 3}));
  EXPECT_LT(number(amax(abs(sum(drawn, -1) - 1.0))), 1e-15);
  for (int64_t i : {0, 1, 2}) expect_moments(drawn.select(1, i), number(d.mean()[i]), number(d.variance()[i]));
  EXPECT_GT(number(amin(Gamma(full({1000}, 1e-4), 1.0).sample())), 0);
  EXPECT_EQ(Beta(ones({2, 1}), ones({3})).sample({4}).shape(), (Shape{4, 2, 3}));
  // A compiled step draws the numbers of a step that runs op by op.
  auto draw = [](Tensor x) { return std::vector<Tensor>{Gamma(x, 1.0).sample({50}), Dirichlet(x).sample({50})}; };
  const Tensor x = vec({0.3, 1.5, 4});
  manual_seed(4);
  const std::vector<Tensor> eager = compile(draw, {.enabled = false})(x);
  manual_seed(4);
  const std::vector<Tensor> compiled = compile(draw, {.numerics = "eager"})(x);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], compiled[i]));
}

TEST(Distributions, DensitiesAndEntropiesAreTheFormulas) {
  EXPECT_NEAR(number(Normal(vec({1}), 2.0).log_prob(4.0)), -0.5 * 2.25 - std::log(2 * std::sqrt(2 * M_PI)), 1e-14);
  EXPECT_NEAR(number(Normal(vec({1}), 2.0).entropy()), 0.5 * std::log(2 * M_PI * std::exp(1.0) * 4), 1e-14);
  EXPECT_EQ(Uniform(vec({1, 1, 1}), 3.0).log_prob(vec({2, 3, 0})).to_vector<double>(),
            (std::vector<double>{-std::log(2.0), -kInf, -kInf}));
  EXPECT_NEAR(number(Exponential(vec({2})).log_prob(3.0)), std::log(2.0) - 6, 1e-14);
  EXPECT_EQ(number(Exponential(vec({2})).log_prob(-1.0)), -kInf);
  EXPECT_NEAR(number(Exponential(vec({2})).entropy()), 1 - std::log(2.0), 1e-14);
  for (const Bernoulli& b : {Bernoulli(vec({0.3})), Bernoulli({.logits = vec({std::log(0.3 / 0.7)})})}) {
    EXPECT_NEAR(number(b.log_prob(1)), std::log(0.3), 1e-14);
    EXPECT_NEAR(number(b.log_prob(0)), std::log(0.7), 1e-14);
    EXPECT_NEAR(number(b.entropy()), -0.3 * std::log(0.3) - 0.7 * std::log(0.7), 1e-14);
  }
  const double h = -0.25 * std::log(0.25) - 0.75 * std::log(0.75);
  for (const Categorical& c : {Categorical(vec({1, 3, 0})), Categorical({.logits = vec({0, std::log(3.0), -kInf})})}) {
    EXPECT_NEAR(number(c.log_prob(1)), std::log(0.75), 1e-14);
    EXPECT_NEAR(number(c.entropy()), h, 1e-14);
  }
  const Categorical rows(ones({2, 4}));
  EXPECT_EQ(rows.log_prob(arange(4).view({4, 1})).shape(), (Shape{4, 2}));
}

// The mean of log p(x) - log q(x) over many x of p.
TEST(Distributions, DivergencesAreTheMeansOfTheirDefinition) {
  manual_seed(5);
  auto expect_mean = [](const auto& p, const auto& q) {
    const Tensor x = p.sample({60000}), d = p.log_prob(x) - q.log_prob(x);
    EXPECT_NEAR(number(kl_divergence(p, q)), number(mean(d)), 5 * number(weft::std(d)) / std::sqrt(60000.0) + 1e-12);
    EXPECT_NEAR(number(kl_divergence(p, p)), 0, 1e-12);
  };
  const Tensor one = vec({1});
  expect_mean(Normal(one, 2.0), Normal(one * 0.5, 3.0));
  expect_mean(Uniform(one, 2.0), Uniform(one * 0, 4.0));
  expect_mean(Exponential(one), Exponential(one * 3));
  expect_mean(Bernoulli(one * 0.25), Bernoulli(one * 0.5));
  expect_mean(Categorical(vec({1, 2, 3})), Categorical(vec({3, 2, 1})));
  EXPECT_EQ(number(kl_divergence(Uniform(one, 4.0), Uniform(one, 2.0))), kInf);
  EXPECT_EQ(number(kl_divergence(Categorical(vec({1, 1})), Categorical(vec({1, 0})))), kInf);
  EXPECT_NEAR(number(kl_divergence(Categorical(vec({1, 0})), Categorical(vec({1, 1})))), std::log(2.0), 1e-12);
}

TEST(Distributions, HaveGradients) {
  auto check = [](auto fn, const Tensor& x) {
    EXPECT_TRUE(gradcheck([&](std::span<const Tensor> in) { return std::vector<Tensor>{fn(in[0])}; }, {x}));
  };
  const Tensor x = vec({0.7, 1.3, 0.4});
  check([](const Tensor& t) { return Normal(t, square(t)).log_prob(0.3) + Normal(1.0, t).entropy(); }, x);
  check([](const Tensor& t) { return Exponential(t).log_prob(t * 2); }, x);
  check([](const Tensor& t) { return Bernoulli({.logits = t}).log_prob(1) + Bernoulli(t * 0.5).entropy(); }, x);
  check([](const Tensor& t) { return Categorical({.logits = t}).log_prob(2) + Categorical(t).entropy(); }, x);
  check([](const Tensor& t) { return kl_divergence(Categorical(t), Categorical({.logits = t})); }, x);
  check([](const Tensor& t) { return kl_divergence(Normal(t, t), Normal(1.0, t * 2)); }, x);
  manual_seed(1);
  const Tensor loc = vec({1, 2}).requires_grad(), scale = vec({3, 4}).requires_grad();
  const Normal n(loc, scale);
  EXPECT_FALSE(n.sample({5}).requires_grad_enabled());
  const Tensor r = n.rsample();
  const std::vector<Tensor> g = grad(sum(r), {loc, scale});
  EXPECT_EQ(g[0].to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_NEAR(g[1].to_vector<double>()[1], (r.to_vector<double>()[1] - 2) / 4, 1e-14);
  // Probabilities of 0 give no NaN.
  const Tensor p = vec({1, 0, 3}).requires_grad();
  for (double v : grad(Categorical(p).entropy(), {p})[0].to_vector<double>()) EXPECT_TRUE(std::isfinite(v));
}

// References: mpmath with 40 digits, -(d gammainc(a, 0, x) / da) / (x p(x)).
TEST(Distributions, SlopesOfLogGamma) {
  struct SlopeRow {
    double a, y, slope;
  };
  for (const SlopeRow& r : {SlopeRow{0.001, -700.0, 699424.42806818965}, SlopeRow{0.001, -2.0, 1780.1988984609434},
                            SlopeRow{0.1, -5.0, 46.099624060855994}, SlopeRow{0.5, -0.01, 1.8885094461672445},
                            SlopeRow{0.5, 0.01, 1.8680217226312961}, SlopeRow{1.0, 0.0, 1.1735630272247268},
                            SlopeRow{2.0, -1.0, 1.1150540341244324}, SlopeRow{2.0, 2.5, 0.19175609745294578},
                            SlopeRow{30.0, 3.2, 0.037003751893436743}, SlopeRow{30.0, 3.5, 0.031890469971834513},
                            SlopeRow{3000.0, 8.0, 0.0003344142990152068}})
    EXPECT_NEAR(number(internal::slope_of_log_gamma(vec({r.y}), vec({r.a}))) / r.slope, 1, 1e-9) << r.a << " " << r.y;
}

// The mean gradient of draws is the gradient of the mean, within five standard errors. Each draw has its own parameter.
TEST(Distributions, GradientsOfDrawsHaveTheMeanOfTheGradientOfTheMean) {
  manual_seed(11);
  constexpr int64_t kSamples = 20000;
  const auto expect_mean = [](const Tensor& g, double need, const char* what) {
    const double error = std::sqrt(number(weft::var(g)) / kSamples);
    EXPECT_NEAR(number(mean(g)), need, 5 * error + 1e-12) << what;
    EXPECT_TRUE(std::isfinite(number(mean(g)))) << what;
  };
  const auto many = [](double v) { return full({kSamples}, v, {.dtype = kFloat64}).requires_grad(); };
  for (double a : {0.02, 0.7, 1.0, 4.0, 250.0}) {
    const Tensor c = many(a), rate = many(2.0);
    const Gamma d(c, rate);
    const Tensor x = d.rsample();
    const std::vector<Tensor> g = grad(sum(x), {c, rate});
    expect_mean(g[0], 0.5, "Gamma: concentration");
    EXPECT_LT(number(amax(abs(g[1] + x.detach() / 2.0))), 1e-12 * (1 + a * 10));  // x is g / rate
    EXPECT_FALSE(d.sample().requires_grad_enabled());
  }
  // The mean of Beta(a, b) is a / (a + b).
  const Tensor a = many(0.4), b = many(1.5);
  const std::vector<Tensor> g = grad(sum(Beta(a, b).rsample()), {a, b});
  expect_mean(g[0], 1.5 / (1.9 * 1.9), "Beta: a");
  expect_mean(g[1], -0.4 / (1.9 * 1.9), "Beta: b");
  // And of a square, which depends on the whole distribution: E x^2 = a (a + 1) / ((a + b) (a + b + 1)).
  const Tensor h = grad(sum(square(Beta(a, b).rsample())), {a})[0];
  const auto second = [](double p, double q) { return p * (p + 1) / ((p + q) * (p + q + 1)); };
  expect_mean(h, (second(0.4 + 1e-5, 1.5) - second(0.4 - 1e-5, 1.5)) / 2e-5, "Beta: a, of the square");
  const Tensor w = broadcast_to(vec({0.5, 1, 3}), {kSamples, 3}).requires_grad();
  const Tensor d = grad(sum(select(Dirichlet(w).rsample(), 1, 1)), {w})[0];
  for (int i : {0, 1, 2}) expect_mean(select(d, 1, i), i == 1 ? 3.5 / (4.5 * 4.5) : -1 / (4.5 * 4.5), "Dirichlet");
}

TEST(Distributions, GradientsOfDrawsAreThoseOfACompiledStep) {
  const auto step = [](const Tensor& x) {
    const Tensor a = x.requires_grad();
    return grad(sum(square(Gamma(a, 2.0).rsample({3}))) + sum(square(Dirichlet(a).rsample({2}))), {a});
  };
  const Tensor x = Tensor::from_vector<float>({0.3f, 1.5f, 4}, {3});
  manual_seed(4);
  const std::vector<Tensor> eager = compile(step, {.enabled = false})(x);
  manual_seed(4);
  EXPECT_TRUE(same_bits(compile(step, {.numerics = "eager"})(x)[0], eager[0]));
}

TEST(Distributions, CompiledDrawNewNumbersInEachCall) {
  auto draw = [](Tensor x) {
    const Categorical c({.logits = x});
    const Tensor a = c.sample({64});
    return std::vector<Tensor>{a, c.log_prob(a), Normal(x, 1.0).rsample({3}), Bernoulli({.logits = x}).sample({9})};
  };
  const Tensor x = Tensor::from_vector<float>({0.5f, 1, -1}, {3});
  manual_seed(4);
  auto step = compile(draw);
  const std::vector<Tensor> first = step(x), second = step(x);
  EXPECT_FALSE(same_bits(first[0], second[0]));
  EXPECT_FALSE(same_bits(first[2], second[2]));
  EXPECT_TRUE(same_bits(first[1], Categorical({.logits = x}).log_prob(first[0])));
  manual_seed(4);
  EXPECT_TRUE(same_bits(step(x)[0], first[0]));
}

TEST(Distributions, ErrorsSayWhatIsWrong) {
  expect_error([] { Normal(0.0, 0.0); }, "Normal: a scale is not above 0; need positive numbers");
  expect_error([] { Normal(ones({2}), ones({3})); }, "Normal: shapes [2] and [3] do not broadcast");
  expect_error([] { Normal(arange(2), 1.0); }, "Normal: operand is i64[2]; need a floating-point dtype");
  expect_error([] { Uniform(1.0, 1.0); }, "Uniform: a low is not below its high; need low < high");
  for (double end : {double{INFINITY}, 3e38})
    expect_error([&] { Uniform(-end, end); },
                 "Uniform: high - low is not finite; need a range that the dtype can hold");
  expect_error([] { Bernoulli(0.9).log_prob(7); }, "Bernoulli: a value is not 0 or 1; need 0 or 1, as sample() gives");
  expect_error([] { Bernoulli(0.9).log_prob(full({2}, 0.5)); }, "Bernoulli: a value is not 0 or 1");
  expect_error([] { kl_divergence(Categorical(ones({3})), Categorical(ones({4}))); },
               "kl_divergence: Categoricals of 3 and 4 classes; need equal numbers");
  expect_error([] { kl_divergence(Normal(ones({3}), 1.0), Normal(ones({4}), 1.0)); },
               "kl_divergence: shapes [3] and [4] do not broadcast");
  expect_error([] { Exponential(-1.0); }, "Exponential: a rate is not above 0; need positive numbers");
  expect_error([] { Gamma(0.0, 1.0); }, "Gamma: a concentration is not above 0; need positive numbers");
  expect_error([] { Gamma(1.0, -1.0); }, "Gamma: a rate is not above 0; need positive numbers");
  expect_error([] { Beta(1.0, 0.0); }, "Beta: a concentration is not above 0; need positive numbers");
  expect_error([] { Dirichlet(1.0); }, "Dirichlet: concentration is f32[]; need [..., n]");
  expect_error([] { Dirichlet(ones({3})).log_prob(ones({2})); }, "Dirichlet: value is f32[2]; need [..., 3]");
  expect_error([] { Dirichlet(ones({3})).log_prob(ones({3})); }, "Dirichlet: a value is negative or its sum is not 1");
  expect_error([] { Bernoulli(1.5); }, "Bernoulli: a probability is not in [0, 1]; need probs, or logits");
  expect_error([] { Bernoulli(ProbsOrLogits{}); }, "Bernoulli: got neither of probs and logits; need one of them");
  expect_error([] { Categorical({.probs = ones({2}), .logits = ones({2})}); },
               "Categorical: got both probs and logits");
  expect_error([] { Categorical(neg(ones({2}))); }, "Categorical: probs are negative, NaN or sum to 0");
  expect_error([] { Categorical({.logits = full({2}, -kInf)}); }, "Categorical: the logits of a row are NaN");
  expect_error([] { Categorical(ones({2, 0})); }, "Categorical: got f32[2, 0]; need [..., classes]");
  expect_error([] { Categorical(ones({3})).log_prob(3); }, "index 3");
  expect_error([] { Categorical(ones({3})).log_prob(0.5); }, "Categorical: value is");
}

}  // namespace
}  // namespace weft::distributions
