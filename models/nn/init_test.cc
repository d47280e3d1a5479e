#include "models/nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/dispatch/capture.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;

Parameter parameter(const Shape& shape, DType dtype = kFloat32) {
  return Parameter(zeros(shape, {.dtype = dtype}), "p");
}

struct Moments {
  double mean = 0, variance = 0, least = 0, most = 0;
};
Moments moments(const Parameter& p) {
  const std::vector<double> v = p.value().to_vector<double>();
  Moments m;
  for (double x : v) m.mean += x / static_cast<double>(v.size());
  for (double x : v) m.variance += (x - m.mean) * (x - m.mean) / static_cast<double>(v.size());
  m.least = *std::min_element(v.begin(), v.end());
  m.most = *std::max_element(v.begin(), v.end());
  return m;
}

// Allows five standard deviations of the mean and of the variance of n numbers with this kurtosis.
void expect_moments(const Parameter& p, double mean, double variance, double kurtosis) {
  const auto n = static_cast<double>(p.numel());
  const Moments m = moments(p);
  EXPECT_NEAR(m.mean, mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(m.variance, variance, 5 * variance * std::sqrt((kurtosis - 1) / n));
}

TEST(Init, UniformAndNormal) {
  const Parameter p = parameter({200, 100});
  init::uniform(p, -1, 3);
  expect_moments(p, 1, 16.0 / 12, 1.8);
  EXPECT_GE(moments(p).least, -1);
  EXPECT_LT(moments(p).most, 3);
  init::normal(p, 2, 0.5);
  expect_moments(p, 2, 0.25, 3);
  init::constant(p, 7);
  EXPECT_EQ(moments(p).least, 7);
  init::ones(p);
  EXPECT_EQ(moments(p).most, 1);
  init::zeros(p);
  EXPECT_EQ(moments(p).most, 0);
}

TEST(Init, VarianceScaling) {
  const Parameter p = parameter({64, 32, 3, 3});  // fan in 288, fan out 576
  init::xavier_uniform(p, 2);
  expect_moments(p, 0, 4 * 2.0 / 864, 1.8);
  EXPECT_LE(moments(p).most, 2 * std::sqrt(6.0 / 864));
  init::xavier_normal(p);
  expect_moments(p, 0, 2.0 / 864, 3);
  init::kaiming_uniform(p);
  expect_moments(p, 0, 2.0 / 288, 1.8);
  init::kaiming_normal(p, 0.5, "fan_out", "leaky_relu");
  expect_moments(p, 0, 2 / 1.25 / 576, 3);
  init::kaiming_normal(p, 0, "fan_in", "relu");
  expect_moments(p, 0, 2.0 / 288, 3);
}

TEST(Init, GainsArePyTorchs) {
  EXPECT_EQ(init::calculate_gain("linear"), 1);
  EXPECT_EQ(init::calculate_gain("conv_transpose2d"), 1);
  EXPECT_EQ(init::calculate_gain("tanh"), 5.0 / 3);
  EXPECT_EQ(init::calculate_gain("relu"), std::sqrt(2.0));
  EXPECT_EQ(init::calculate_gain("leaky_relu"), std::sqrt(2 / (1 + 0.01 * 0.01)));
  EXPECT_EQ(init::calculate_gain("leaky_relu", 0.5), std::sqrt(2 / 1.25));
  EXPECT_EQ(init::calculate_gain("selu"), 0.75);
}

// The share of the truncated distribution below each of its sorted numbers is uniform: Kolmogorov and Smirnov's test.
TEST(Init, TruncatedNormal) {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const double cases[][4] = {{0, 1, -2, 2}, {0, 1, -9, 9},  {1, 0.5, 2, 3},
                             {0, 1, 6, 8},  {0, 1, -8, -6}, {-3, 2, -2, 40}};
  for (const auto& [mean, std, a, b] : cases) {
    SCOPED_TRACE(a);
    const Parameter p = parameter({20000}, kFloat64);
    init::trunc_normal(p, mean, std, a, b);
    std::vector<double> v = p.value().to_vector<double>();
    std::sort(v.begin(), v.end());
    EXPECT_GE(v.front(), a);
    EXPECT_LE(v.back(), b);
    // In a tail, shares of the other side are precise.
    const double lo = (a - mean) / std, hi = (b - mean) / std;
    const double side = lo > 0 ? -1 : 1, whole = side * (below(side * hi) - below(side * lo));
    double worst = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      const double share = side * (below(side * (v[i] - mean) / std) - below(side * lo)) / whole;
      worst = std::max(worst, std::fabs(share - (static_cast<double>(i) + 0.5) / static_cast<double>(v.size())));
    }
    EXPECT_LT(worst, 2.2 / std::sqrt(20000.0));  // 1.2e-4 of all samples are beyond
  }
}

TEST(Init, EyeAndDirac) {
  const Parameter p = parameter({2, 3});
  init::eye(p);
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{1, 0, 0, 0, 1, 0}));
  const Parameter conv = parameter({4, 2, 3, 2});
  init::dirac(conv, 2);
  std::vector<float> want(4 * 2 * 3 * 2);
  for (int o = 0; o < 4; ++o) want[((o * 2 + o % 2) * 3 + 1) * 2 + 1] = 1;
  EXPECT_EQ(conv.value().to_vector<float>(), want);
}

TEST(Init, OrthogonalRowsOrColumns) {
  for (const Shape& shape : {Shape{5, 12}, Shape{12, 5}, Shape{6, 2, 3}}) {
    const Parameter p = parameter(shape, kFloat64);
    init::orthogonal(p, 2);
    const Tensor m = p.value().reshape({shape[0], -1});
    const bool wide = m.size(0) <= m.size(1);
    const std::vector<double> gram = (wide ? matmul(m, m.t()) : matmul(m.t(), m)).to_vector<double>();
    const auto n = static_cast<size_t>(std::sqrt(static_cast<double>(gram.size())));
    for (size_t i = 0; i < gram.size(); ++i) EXPECT_NEAR(gram[i], i % (n + 1) == 0 ? 4 : 0, 1e-13);
  }
  const Parameter half = parameter({3, 3}, kBFloat16);
  init::orthogonal(half);
  EXPECT_NEAR(moments(half).variance + moments(half).mean * moments(half).mean, 1.0 / 3, 0.01);
}

TEST(Init, SparseColumns) {
  const Parameter p = parameter({10, 7});
  init::sparse(p, 0.25);
  const std::vector<float> v = p.value().to_vector<float>();
  for (int c = 0; c < 7; ++c) {
    int none = 0;
    for (int r = 0; r < 10; ++r) none += v[r * 7 + c] == 0;
    EXPECT_EQ(none, 3);  // 2.5 rounded up
  }
}

TEST(Init, TakesNothingAndRefusesWhatDoesNotFit) {
  const Parameter none = parameter({0, 3});
  init::kaiming_uniform(none);
  init::orthogonal(none);
  init::trunc_normal(none);
  const Parameter v = parameter({3}), m = parameter({3, 3});
  EXPECT_EQ(error_of([&] { init::xavier_uniform(v); }),
            "init::xavier_uniform: the parameter has shape [3]; need two or more dims");
  EXPECT_EQ(error_of([&] { init::eye(v); }), "init::eye: the parameter has shape [3]; need two dims");
  EXPECT_EQ(error_of([&] { init::normal(Buffer(zeros({2}, {.dtype = kInt64}))); }),
            "init::normal: the parameter is i64[2]; need a floating-point dtype");
  EXPECT_EQ(error_of([&] { init::kaiming_normal(m, 0, "fan"); }),
            "init::kaiming_normal: mode is 'fan'; need \"fan_in\" or \"fan_out\"");
  EXPECT_EQ(error_of([&] { init::calculate_gain("gelu"); }).substr(0, 53),
            "init::calculate_gain: nonlinearity is 'gelu'; need \"l");
  EXPECT_EQ(error_of([&] { init::trunc_normal(m, 0, 1, 50, 51); }),
            "init::trunc_normal: [50, 51] has no normal numbers with mean 0 and std 1; need an interval nearer to the "
            "mean");
  EXPECT_EQ(error_of([&] {
              init::dirac(parameter({3, 2, 1}), 2);
            }),
            "init::dirac: 3 outputs in 2 groups; need a number of groups that divides the outputs");
  EXPECT_EQ(error_of([&] { capture([&](Tensor t) { return init::orthogonal(m), t; }, ones({})); }),
            "init::orthogonal: called inside a compiled function; need a call before it");
}

}  // namespace
}  // namespace weft::nn
