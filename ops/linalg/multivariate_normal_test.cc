// Samples against their distribution, and their gradient; densities are compared with PyTorch's in
// models/testing/pytorch.
#include "ops/linalg/multivariate_normal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/testing/error_of.h"
#include "framework/dispatch/state/generator.h"
#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "ops/core/core.h"
#include "ops/linalg/linalg.h"

namespace weft::distributions {
namespace {

using testing::expect_error;

const Tensor kLoc = Tensor::from_vector<double>({1, -2}, {2});
const Tensor kCovariance = Tensor::from_vector<double>({2, 0.5, 0.5, 1}, {2, 2});

TEST(MultivariateNormal, SamplesHaveTheMomentsAndShapes) {
  manual_seed(2);
  constexpr int64_t kSamples = 40000;
  const MultivariateNormal n(kLoc, kCovariance);
  const Tensor x = n.sample({kSamples}) - kLoc;
  // Standard errors of a mean are sqrt(variance / n), of a covariance at most sqrt(2) variance / sqrt(n).
  const std::vector<double> mean = weft::mean(x, 0).to_vector<double>();
  const std::vector<double> got = (matmul(x.t(), x) / static_cast<double>(kSamples)).to_vector<double>();
  for (double m : mean) EXPECT_NEAR(m, 0, 5 * std::sqrt(2.0 / kSamples));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(got[i], kCovariance.to_vector<double>()[i], 5 * std::sqrt(2.0) * 2 / std::sqrt(kSamples * 1.0));
  EXPECT_EQ(MultivariateNormal(ones({3, 1, 2}), Covariance{.scale_tril = eye(2)}).sample({4}).shape(),
            (Shape{4, 3, 1, 2}));
  EXPECT_TRUE(testing::close(n.covariance_matrix(), kCovariance, kFloat64, 8));
}

TEST(MultivariateNormal, SamplesHaveGradients) {
  const auto draw = [](std::span<const Tensor> in) {
    manual_seed(3);
    return std::vector<Tensor>{MultivariateNormal(in[0], matmul(in[1], in[1].t()) + eye(2)).rsample({3})};
  };
  EXPECT_TRUE(testing::gradcheck(draw, {kLoc, kCovariance}));
  EXPECT_FALSE(MultivariateNormal(kLoc.requires_grad(), kCovariance).sample().requires_grad_enabled());
}

TEST(MultivariateNormal, ErrorsSayWhatIsWrong) {
  expect_error([] { MultivariateNormal(kLoc, Covariance{}); },
               "MultivariateNormal: got 0 of covariance_matrix, precision_matrix and scale_tril; need one");
  expect_error([] { MultivariateNormal(kLoc, eye(3)); },
               "MultivariateNormal: loc is f64[2] and the matrix f32[3, 3]; need [..., n] and [..., n, n]");
  expect_error(
      [] {
        MultivariateNormal(kLoc, Covariance{.scale_tril = ones({2, 2})});
      },
      "MultivariateNormal: scale_tril has numbers above its diagonal; need a lower triangle");
  expect_error([] { MultivariateNormal(kLoc, kCovariance).log_prob(ones({3, 1, 1, 5})); }, "do not broadcast");
}

}  // namespace
}  // namespace weft::distributions
