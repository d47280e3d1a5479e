#include "ops/composite/loss/loss_margin.h"

#include <algorithm>
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

const Operand kX{Shape{4, 5}, kFloat32, -2, 2}, kSigns{Shape{4, 5}, kInt64, 0, 1};
const Operand kRowSigns{Shape{4}, kInt64, 0, 1}, kClass{Shape{4}, kInt64, 0, 4}, kWeights{Shape{5}, kFloat32, 0.5, 2};

// 0 and 1 as -1 and 1.
Tensor signs(const Tensor& t) { return t * 2 - 1; }
Real sign_at(const Reals& t, size_t i) { return 2 * t[i] - 1; }

template <class F>
std::function<Reals(const std::vector<Reals>&)> mean_of(size_t count, F f) {
  return [count, f](const std::vector<Reals>& in) {
    Real s = 0;
    for (size_t i = 0; i < count; ++i) s += f(in, i);
    return Reals{s / static_cast<Real>(count)};
  };
}

Real positive(Real x) { return std::max<Real>(x, 0); }

Real distance(const Reals& a, const Reals& b, size_t row, double p, double eps) {
  Real s = 0, most = 0;
  for (size_t k = row * 5; k < row * 5 + 5; ++k) {
    const Real d = std::fabs(a[k] - b[k] + Real(eps));
    s += std::pow(d, Real(p));
    most = std::max(most, d);
  }
  return std::isinf(p) ? most : std::pow(s, 1 / Real(p));
}

CompositeRow triplet(const char* name, double p, bool swap) {
  return {name,
          {kX, kX, kX},
          [=](Args a) {
            return triplet_margin_loss(a[0], a[1], a[2], {.margin = 0.75, .p = p, .eps = 0.0625, .swap = swap});
          },
          mean_of(4,
                  [=](const std::vector<Reals>& in, size_t i) {
                    Real far = distance(in[0], in[2], i, p, 0.0625);
                    if (swap) far = std::min(far, distance(in[1], in[2], i, p, 0.0625));
                    return positive(Real(0.75) + distance(in[0], in[1], i, p, 0.0625) - far);
                  }),
          128,
          true,
          true,
          4};
}

CompositeRow multi_margin(const char* name, int p) {
  return {name,
          {kX, kClass, kWeights},
          [=](Args a) { return multi_margin_loss(a[0], a[1], {.p = p, .margin = 1.5, .weight = a[2]}); },
          mean_of(4,
                  [=](const std::vector<Reals>& in, size_t i) {
                    const auto t = static_cast<size_t>(in[1][i]);
                    Real s = 0;
                    for (size_t c = 0; c < 5; ++c)
                      if (c != t)
                        s += in[2][t] * std::pow(positive(Real(1.5) - in[0][i * 5 + t] + in[0][i * 5 + c]), Real(p));
                    return s / 5;
                  }),
          128,
          true,
          true,
          8};
}

const std::vector<CompositeRow> kTable = {
    {"hinge_embedding_loss",
     {kX, kSigns},
     [](Args a) { return hinge_embedding_loss(a[0], signs(a[1]), 0.75); },
     mean_of(20, [](const std::vector<Reals>& in,
                    size_t i) { return sign_at(in[1], i) > 0 ? in[0][i] : positive(Real(0.75) - in[0][i]); }),
     64,
     true,
     true,
     2},
    {"margin_ranking_loss",
     {kX, kX, kSigns},
     [](Args a) { return margin_ranking_loss(a[0], a[1], signs(a[2]), 0.5); },
     mean_of(20, [](const std::vector<Reals>& in,
                    size_t i) { return positive(Real(0.5) - sign_at(in[2], i) * (in[0][i] - in[1][i])); }),
     64,
     true,
     true,
     2},
    {"soft_margin_loss",
     {kX, kSigns},
     [](Args a) { return soft_margin_loss(a[0], signs(a[1])); },
     mean_of(20, [](const std::vector<Reals>& in,
                    size_t i) { return std::log1p(std::exp(-sign_at(in[1], i) * in[0][i])); }),
     64,
     true,
     true},
    {"cosine_embedding_loss",
     {kX, kX, kRowSigns},
     [](Args a) { return cosine_embedding_loss(a[0], a[1], signs(a[2]), -0.5); },
     mean_of(4,
             [](const std::vector<Reals>& in, size_t i) {
               Real ab = 0, aa = Real(1e-12), bb = Real(1e-12);
               for (size_t k = i * 5; k < i * 5 + 5; ++k) {
                 ab += in[0][k] * in[1][k];
                 aa += in[0][k] * in[0][k];
                 bb += in[1][k] * in[1][k];
               }
               const Real cosine = ab / std::sqrt(aa * bb);
               return sign_at(in[2], i) > 0 ? 1 - cosine : positive(cosine + Real(0.5));
             }),
     64,
     true,
     true,
     2},
    triplet("triplet_margin_loss", 2, false),
    triplet("triplet_margin_loss_1", 1, true),
    triplet("triplet_margin_loss_3", 3, true),
    triplet("triplet_margin_loss_inf", std::numeric_limits<double>::infinity(), false),
    multi_margin("multi_margin_loss", 1),
    multi_margin("multi_margin_loss_2", 2),
    {"multilabel_margin_loss",
     {kX},
     [](Args a) {
       const Tensor targets =
           Tensor::from_vector<int64_t>({3, 0, -1, 1, -1, -1, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4, 4, -1, 0, 0}, {4, 5});
       return multilabel_margin_loss(a[0], targets, "none");
     },
     [](const std::vector<Reals>& in) {
       const std::vector<std::vector<int>> targets = {{3, 0}, {}, {0, 1, 2, 3, 4}, {4, 4}};
       Reals y;
       for (int n = 0; n < 4; ++n) {
         Real s = 0;
         for (int j : targets[n])
           for (int i = 0; i < 5; ++i)
             if (std::count(targets[n].begin(), targets[n].end(), i) == 0)
               s += positive(1 - in[0][n * 5 + j] + in[0][n * 5 + i]);
         y.push_back(s / 5);
       }
       return y;
     },
     64,
     true,
     true,
     2},
    {"multilabel_soft_margin_loss",
     {kX, {Shape{4, 5}, kFloat32, 0, 1}, kWeights},
     [](Args a) { return multilabel_soft_margin_loss(a[0], a[1], {.weight = a[2]}); },
     mean_of(20,
             [](const std::vector<Reals>& in, size_t i) {
               const Real x = in[0][i], t = in[1][i];
               return in[2][i % 5] * (t * std::log1p(std::exp(-x)) + (1 - t) * std::log1p(std::exp(x)));
             }),
     64,
     true,
     true},
};
WEFT_TEST_COMPOSITES(LossMargin, kTable);

TEST(HingeEmbedding, OfOtherTargetsHasBothParts) {
  EXPECT_EQ(hinge_embedding_loss(full({1}, 0.25), zeros({1}), 2).item<float>(), 2);
}

TEST(TripletMargin, OfEqualVectorsHasAFiniteGradient) {
  for (double p : {1.0, 1.5, 2.0, std::numeric_limits<double>::infinity()}) {
    const Tensor x = ones({2, 3}).requires_grad();
    const Tensor y = triplet_margin_loss(x, x, x, {.p = p, .eps = 0});
    EXPECT_EQ(y.item<float>(), 1);
    for (float g : grad(y, {x})[0].to_vector<float>()) EXPECT_TRUE(std::isfinite(g)) << p;
  }
}

TEST(MarginLosses, RefuseWhatDoesNotFit) {
  EXPECT_EQ(error_of([] { hinge_embedding_loss(zeros({2}), zeros({2}, {.dtype = kBool})); }),
            "hinge_embedding_loss: target is bool[2]; need 1 and -1: target.to(kFloat32) * 2 - 1");
  EXPECT_EQ(error_of([] { margin_ranking_loss(zeros({2}), zeros({3}), zeros({2})); }),
            "margin_ranking_loss: x1 has shape [2] and x2 [3]; need equal shapes");
  EXPECT_EQ(error_of([] {
              cosine_embedding_loss(zeros({2, 3}), zeros({2, 3}), zeros({3}));
            }),
            "cosine_embedding_loss: target has shape [3] and x1 [2, 3]; need target [2]");
  EXPECT_EQ(error_of([] { triplet_margin_loss(zeros({}), zeros({}), zeros({})); }),
            "triplet_margin_loss: anchor is f32[]; need vectors in the last dim");
  EXPECT_EQ(error_of([] {
              multi_margin_loss(zeros({2, 3}), zeros({2}));
            }),
            "multi_margin_loss: target is f32[2] and x f32[2, 3]; need integer classes of shape [2]");
  EXPECT_EQ(error_of([] {
              multi_margin_loss(zeros({1, 3}), Tensor::from_vector<int64_t>({5}, {1}));
            }).substr(0, 44),
            "multi_margin_loss: a target is not a class: ");
  EXPECT_EQ(error_of([] {
              multi_margin_loss(zeros({1, 3}), zeros({1}, {.dtype = kInt64}), {.p = 3});
            }),
            "multi_margin_loss: p is 3; need 1 or 2");
  EXPECT_EQ(error_of([] {
              multilabel_margin_loss(zeros({2, 3}), zeros({2}, {.dtype = kInt64}));
            }),
            "multilabel_margin_loss: x has shape [2, 3] and target [2]; need equal shapes");
}

TEST(MarginLosses, OfNothingAndOfOneVector) {
  const Tensor none = zeros({0, 3});
  EXPECT_EQ(hinge_embedding_loss(none, none, 1, "sum").item<float>(), 0);
  EXPECT_EQ(triplet_margin_loss(none, none, none, {.reduction = "none"}).shape(), Shape({0}));
  EXPECT_EQ(multi_margin_loss(none, zeros({0}, {.dtype = kInt64}), {.reduction = "none"}).shape(), Shape({0}));
  const Tensor v = Tensor::from_vector({1, 2, 4}, {3});
  EXPECT_EQ(multi_margin_loss(v, full({}, 2, {.dtype = kInt64})).item<float>(), 0);
  EXPECT_FLOAT_EQ(multilabel_margin_loss(v, Tensor::from_vector<int64_t>({0, -1, 2}, {3})).item<float>(), 2);
  EXPECT_FLOAT_EQ(cosine_embedding_loss(v, v, ones({})).item<float>(), 0);
}

}  // namespace
}  // namespace weft::testing
