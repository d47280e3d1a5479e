#include "ops/composite/layers/softmax.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/composite/layers/norm.h"
#include "ops/composite/math/cumulative.h"
#include "ops/composite/math/math.h"
#include "ops/composite/math/special.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

Real lse(const Reals& x) {
  Real s = 0;
  for (Real v : x) s += std::exp(v);
  return std::log(s);
}
// Applies f to rows of `columns` elements; f(row, position).
std::function<Reals(const std::vector<Reals>&)> rows(int64_t columns, Real (*f)(const Reals&, size_t)) {
  return [=](const std::vector<Reals>& in) {
    Reals y;
    for (size_t i = 0; i < in[0].size() / columns; ++i) {
      Reals row = row_of(in[0], i, columns);
      for (int64_t j = 0; j < columns; ++j) y.push_back(f(row, j));
    }
    return y;
  };
}
Real moments(const Reals& x, Real* variance) {
  Real mean = 0;
  for (Real v : x) mean += v / x.size();
  *variance = 0;
  for (Real v : x) *variance += (v - mean) * (v - mean) / x.size();
  return mean;
}

const Operand kData{Shape{3, 17}, kFloat32, -6, 6};

const std::vector<CompositeRow> kTable = {
    {"softmax",
     {kData},
     [](Args a) { return softmax(a[0], -1); },
     rows(17, [](const Reals& x, size_t j) { return std::exp(x[j] - lse(x)); }),
     32},
    {"softmax_first_dim",
     {{Shape{4, 1}}},
     [](Args a) { return softmax(a[0], 0); },
     rows(4, [](const Reals& x, size_t j) { return std::exp(x[j] - lse(x)); }),
     32},
    {"log_softmax",
     {kData},
     [](Args a) { return log_softmax(a[0], 1); },
     rows(17, [](const Reals& x, size_t j) { return x[j] - lse(x); }),
     32},
    {"logsumexp",
     {kData},
     [](Args a) { return logsumexp(a[0], -1); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 3; ++i) y.push_back(lse(row_of(in[0], i, 17)));
       return y;
     },
     32},
    {"layer_norm",
     {kData, {Shape{17}}, {Shape{17}}},
     [](Args a) { return layer_norm(a[0], {17}, a[1], a[2], 1e-3); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 3; ++i) {
         Reals x = row_of(in[0], i, 17);
         Real var, mean = moments(x, &var);
         for (int j = 0; j < 17; ++j) y.push_back((x[j] - mean) / std::sqrt(var + Real(1e-3)) * in[1][j] + in[2][j]);
       }
       return y;
     },
     48},
    {"layer_norm_two_dims",
     {{Shape{2, 3, 4}}},
     [](Args a) {
       return layer_norm(a[0], {3, 4});
     },
     rows(12,
          [](const Reals& x, size_t j) {
            Real var, mean = moments(x, &var);
            return (x[j] - mean) / std::sqrt(var + Real(1e-5));
          }),
     48},
    {"rms_norm",
     {kData, {Shape{17}}},
     [](Args a) { return rms_norm(a[0], a[1], 1e-3); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 3; ++i) {
         Reals x = row_of(in[0], i, 17);
         Real s = 0;
         for (Real v : x) s += v * v / 17;
         for (int j = 0; j < 17; ++j) y.push_back(x[j] / std::sqrt(s + Real(1e-3)) * in[1][j]);
       }
       return y;
     },
     48},
};
WEFT_TEST_COMPOSITES(Rows, kTable);

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Softmax, OfLargeAndInfiniteValues) {
  Tensor x = Tensor::from_vector<float>({1e30f, 1e30f, -kInf, -1e30f}, {4});
  EXPECT_EQ(softmax(x, 0).to_vector<float>(), (std::vector<float>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(x.softmax(0).to_vector<float>(), (std::vector<float>{0.5, 0.5, 0, 0}));
}

// Equal entries share the gradient, however large they are.
TEST(Softmax, GradientsOfLogSumsOfLargeValues) {
  for (DType t : {kFloat64, kFloat32, kBFloat16})
    for (double size : {1e30, -1e30}) {
      const Tensor x = full({4}, size, {.dtype = t}).requires_grad(), two = slice(x, 0, 0, 2);
      const auto expect = [&](const Tensor& y, const std::vector<double>& want) {
        EXPECT_EQ(grad(sum(y), {x})[0].to(kFloat64).to_vector<double>(), want) << t << " " << size;
      };
      expect(logsumexp(x, 0), {0.25, 0.25, 0.25, 0.25});
      expect(slice(logcumsumexp(x, 0), 0, 3, 4), {0.25, 0.25, 0.25, 0.25});
      expect(logaddexp(select(two, 0, 0), select(two, 0, 1)), {0.5, 0.5, 0, 0});
    }
}

TEST(Softmax, SoftminIsThatOfTheNegative) {
  Tensor x = Tensor::from_vector<float>({1, 2, -3}, {3});
  EXPECT_TRUE(same_bits(softmin(x, 0), softmax(-x, 0)));
}

TEST(GumbelSoftmax, DrawsClassesWithTheirProbabilities) {
  manual_seed(3);
  const Tensor logits = log(Tensor::from_vector<float>({0.5, 0.3, 0.2}, {3})).expand({20000, 3});
  const Tensor soft = gumbel_softmax(logits, 0.5), drawn = gumbel_softmax(logits, 0.5, true);
  for (float s : sum(soft, 1).to_vector<float>()) EXPECT_NEAR(s, 1, 1e-6);
  const std::vector<float> share = mean(drawn, 0).to_vector<float>();
  EXPECT_NEAR(share[0], 0.5, 0.02);  // more than 5 standard deviations
  EXPECT_NEAR(share[1], 0.3, 0.02);
  EXPECT_NEAR(share[2], 0.2, 0.02);
  EXPECT_EQ(gumbel_softmax(zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(gumbel_softmax(zeros({2, 3}, {.dtype = kBFloat16}), 1, true, 0).dtype(), kBFloat16);
}

TEST(GumbelSoftmax, HardHasTheGradientOfSoft) {
  const Tensor w = Tensor::from_vector<float>({1, -2, 4}, {3});
  Tensor g[2];
  for (bool hard : {false, true}) {
    manual_seed(3);
    Tensor x = zeros({5, 3}).requires_grad();
    g[hard] = grad(sum(gumbel_softmax(x, 1, hard) * w), {x})[0];
  }
  EXPECT_TRUE(same_bits(g[0], g[1]));
  EXPECT_EQ(error_of([] { gumbel_softmax(zeros({3}), 0); }), "gumbel_softmax: tau is 0; need a positive number");
}

// A scalar has the dims 0 and -1 of one element, as in PyTorch.
TEST(Softmax, OfAScalar) {
  for (int64_t dim : {0, -1}) {
    EXPECT_EQ(softmax(full({}, 3.0), dim).item<float>(), 1);
    EXPECT_EQ(log_softmax(full({}, 3.0), dim).item<float>(), 0);
    EXPECT_EQ(softmax(full({}, 3.0), dim).dim(), 0);
  }
  EXPECT_EQ(error_of([] { softmax(zeros({}), 1); }),
            "softmax: dim 1 is out of range for a tensor of 0 dimensions; need -1 to 0");
}

TEST(Softmax, OfNothing) { EXPECT_EQ(softmax(zeros({3, 0}), -1).shape(), (Shape{3, 0})); }

TEST(Logsumexp, OfMinusInfinityOnlyIsMinusInfinityWithZeroGradient) {
  Tensor x = Tensor::from_vector<float>({-kInf, -kInf, -kInf, 0, 0, -kInf, kInf, 0, 0}, {3, 3}).requires_grad();
  Tensor y = logsumexp(x, -1);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{-kInf, std::log(2.f), kInf}));
  std::vector<float> g = grad(y, {x}, {.grad_output = ones({3})})[0].to_vector<float>();
  EXPECT_EQ(std::vector<float>(g.begin(), g.begin() + 6), (std::vector<float>{0, 0, 0, 0.5, 0.5, 0}));
}

TEST(Norm, ConstantRowsGiveTheBias) {
  Tensor y = layer_norm(full({2, 8}, 3.0), {8}, ones({8}), full({8}, 0.25));
  for (float v : y.to_vector<float>()) EXPECT_EQ(v, 0.25f);
}

TEST(NormErrors, NameShapes) {
  EXPECT_EQ(error_of([] {
              layer_norm(zeros({2, 3}), {4});
            }),
            "layer_norm: x has shape [2, 3]; need one that ends in normalized_shape [4]");
  EXPECT_EQ(error_of([] {
              rms_norm(zeros({2, 3}), {3}, zeros({2}));
            }),
            "rms_norm: weight has shape [2]; need normalized_shape [3]");
  EXPECT_EQ(error_of([] {
              softmax(zeros({2, 3}), 2);
            }),
            "softmax: dim 2 is out of range for a tensor of 2 dimensions; need -2 to 1");
}

}  // namespace
}  // namespace weft::testing
