#include "ops/composite/loss.h"

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/generator.h"
#include "ops/composite/dropout.h"
#include "ops/composite/softmax.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

constexpr int64_t kRowsOf = 6, kClasses = 5;

Real lse(const Reals& x) {
  Real s = 0;
  for (Real v : x) s += std::exp(v);
  return std::log(s);
}

// Sum over the rows whose target counts, and the number of these rows.
struct Totals {
  Real loss = 0;
  int counted = 0;
};
Totals cross(const std::vector<Reals>& in, Real smoothing, Real z, Real ignored) {
  Totals t;
  for (int64_t i = 0; i < kRowsOf; ++i) {
    if (in[1][i] == ignored) continue;
    Reals x = row_of(in[0], i, kClasses);
    Real l = lse(x);
    for (int64_t c = 0; c < kClasses; ++c) {
      Real target = (c == in[1][i] ? 1 - smoothing : 0) + smoothing / kClasses;
      t.loss += target * (l - x[c]);
    }
    t.loss += z * l * l;
    ++t.counted;
  }
  return t;
}

const Operand kScores{Shape{2, 3, kClasses}, kFloat32, -3, 3}, kTargets{Shape{2, 3}, kInt64, 0, kClasses - 1};
const Operand kX{Shape{4, 5}, kFloat32, -3, 3}, kY{Shape{4, 5}, kFloat32, 0.1, 0.9};

template <class F>
std::function<Reals(const std::vector<Reals>&)> mean_of(F f) {
  return [f](const std::vector<Reals>& in) {
    Real s = 0;
    for (size_t i = 0; i < in[0].size(); ++i) s += f(in[0][i], in[1][i]);
    return Reals{s / static_cast<Real>(in[0].size())};
  };
}

const std::vector<CompositeRow> kTable = {
    {"cross_entropy",
     {kScores, kTargets},
     [](Args a) { return cross_entropy(a[0], a[1]); },
     [](const std::vector<Reals>& in) {
       Totals t = cross(in, 0, 0, -100);
       return Reals{t.loss / t.counted};
     },
     64,
     true,
     true},
    {"cross_entropy_everything",
     {kScores, kTargets},
     [](Args a) {
       return cross_entropy(a[0], a[1],
                            {.ignore_index = 2, .label_smoothing = 0.25, .reduction = "mean", .z_loss = 0.5});
     },
     [](const std::vector<Reals>& in) {
       Totals t = cross(in, Real(0.25), Real(0.5), 2);
       return Reals{t.loss / t.counted};
     },
     64,
     true,
     true},
    {"cross_entropy_sum",
     {kScores, {Shape{2, 3}, kInt32, 0, 4}},
     [](Args a) { return cross_entropy(a[0], a[1], {.reduction = "sum"}); },
     [](const std::vector<Reals>& in) { return Reals{cross(in, 0, 0, -100).loss}; },
     64,
     true,
     true},
    {"cross_entropy_probabilities",
     {kX, kY},
     [](Args a) { return cross_entropy(a[0], a[1], {.label_smoothing = 0.5, .reduction = "none"}); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 4; ++i) {
         Reals x = row_of(in[0], i, 5), p = row_of(in[1], i, 5);
         Real s = 0;
         for (int c = 0; c < 5; ++c) s += (p[c] / 2 + Real(0.1)) * (lse(x) - x[c]);
         y.push_back(s);
       }
       return y;
     },
     64,
     true,
     true},
    {"nll_loss",
     {kScores, kTargets},
     [](Args a) { return nll_loss(a[0], a[1], {.ignore_index = 0, .reduction = "none"}); },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int64_t i = 0; i < kRowsOf; ++i)
         y.push_back(in[1][i] == 0 ? 0 : -in[0][i * kClasses + static_cast<int64_t>(in[1][i])]);
       return y;
     },
     4,
     false,
     true},
    {"mse_loss",
     {kX, kY},
     [](Args a) { return mse_loss(a[0], a[1]); },
     mean_of([](Real x, Real y) { return (x - y) * (x - y); }),
     32,
     true,
     true},
    {"l1_loss",
     {kX, kY},
     [](Args a) { return l1_loss(a[0], a[1]); },
     mean_of([](Real x, Real y) { return std::fabs(x - y); }),
     32,
     false,
     true},
    {"binary_cross_entropy_with_logits",
     {kX, kY},
     [](Args a) { return binary_cross_entropy_with_logits(a[0], a[1]); },
     mean_of([](Real x, Real t) { return t * std::log1p(std::exp(-x)) + (1 - t) * std::log1p(std::exp(x)); }),
     48,
     true,
     true},
};
WEFT_TEST_COMPOSITES(Loss, kTable);

TEST(CrossEntropy, GradientIsSoftmaxMinusOneHot) {
  Tensor x = Tensor::from_vector<double>({1, 2, 3}, {1, 3}).requires_grad();
  std::vector<double> g = grad(cross_entropy(x, Tensor::from_vector<int64_t>({2}, {1})), {x})[0].to_vector<double>();
  std::vector<double> p = softmax(x, -1).to_vector<double>();
  EXPECT_NEAR(g[0], p[0], 1e-15);
  EXPECT_NEAR(g[2], p[2] - 1, 1e-15);
}

TEST(CrossEntropy, OfConfidentLogitsDoesNotOverflow) {
  Tensor x = Tensor::from_vector<float>({1e4f, -1e4f, 0, 0}, {2, 2});
  EXPECT_EQ(cross_entropy(x, Tensor::from_vector<int64_t>({1, 0}, {2}), {.reduction = "none"}).to_vector<float>(),
            (std::vector<float>{2e4f, std::log(2.f)}));
}

TEST(CrossEntropy, WithAllTargetsIgnoredIsNanAsInPyTorch) {
  Tensor y = cross_entropy(zeros({2, 3}), Tensor::from_vector<int64_t>({-100, -100}, {2}));
  EXPECT_TRUE(std::isnan(y.item<float>()));
}

TEST(CrossEntropyErrors, NameTargetAndPosition) {
  auto text = error_of([] { cross_entropy(zeros({2, 2, 3}), Tensor::from_vector<int64_t>({0, 1, 7, 2}, {2, 2})); });
  EXPECT_EQ(text, "cross_entropy: a target is not a class: gather: index 7 at position 2 is out of range; need 0 to 2");
  EXPECT_NE(error_of([] {
              cross_entropy(zeros({2, 3}), Tensor::from_vector<int64_t>({0, -1}, {2}));
            }).find("-1"),
            std::string::npos);
  EXPECT_EQ(
      error_of([] {
        cross_entropy(zeros({2, 3}), zeros({3}, {.dtype = kInt64}));
      }),
      "cross_entropy: scores f32[2, 3] with targets of shape [3]; need [2]: classes are the last dim of the scores");
  EXPECT_EQ(error_of([] {
              cross_entropy(zeros({3, 5, 7}), zeros({3, 7}, {.dtype = kInt64}));
            }),
            "cross_entropy: scores f32[3, 5, 7] with targets of shape [3, 7]; need [3, 5]: classes are the last dim of "
            "the scores; these have them in dim 1, as in PyTorch: use movedim(scores, 1, -1)");
  EXPECT_EQ(error_of([] {
              mse_loss(zeros({2, 3}), zeros({3}));
            }),
            "mse_loss: x has shape [2, 3] and target [3]; need equal shapes");
  EXPECT_EQ(error_of([] { mse_loss(zeros({2}), zeros({2}), "avg"); }),
            "mse_loss: reduction is 'avg'; need \"mean\", \"sum\" or \"none\"");
}

TEST(Dropout, DropsTheShareAndScalesTheRest) {
  manual_seed(1);
  Tensor y = dropout(ones({100000}), 0.3);
  int dropped = 0;
  for (float v : y.to_vector<float>()) {
    EXPECT_TRUE(v == 0 || v == 1 / 0.7f) << v;
    dropped += v == 0;
  }
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(dropped, 30000, 5 * std::sqrt(100000 * 0.3 * 0.7));
}

TEST(Dropout, IsRepeatableAndItsGradientUsesTheSameElements) {
  auto run = [] {
    manual_seed(5);
    return dropout(ones({50}), 0.5).to_vector<float>();
  };
  EXPECT_EQ(run(), run());
  manual_seed(5);
  Tensor x = ones({50}).requires_grad();
  Tensor y = dropout(x, 0.5);
  EXPECT_EQ(grad(sum(y), {x})[0].to_vector<float>(), y.to_vector<float>());
}

TEST(Dropout, EndsOfTheRange) {
  Tensor x = ones({4});
  EXPECT_EQ(dropout(x, 0).to_vector<float>(), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(dropout(x, 1).to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(dropout(x, 0.9, false).to_vector<float>(), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(error_of([&] { dropout(x, 1.5); }), "dropout: p is 1.5; need a probability from 0 to 1");
}

}  // namespace
}  // namespace weft::testing
