#include "ops/composite/loss/loss.h"

#include <algorithm>
#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/state/generator.h"
#include "ops/composite/layers/softmax.h"
#include "ops/composite/literal.h"
#include "ops/composite/loss/loss_likelihood.h"
#include "ops/composite/loss/loss_margin.h"
#include "ops/composite/random/dropout.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

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

// Five positive weights.
const Operand kWeights{Shape{kClasses}, kFloat32, 0.25, 2};

// The loss of each position of class-weighted cross entropy, with the classes of x[2, 5, 3] in dim 1.
struct Weighted {
  Reals loss;
  Real weights = 0;
};
Weighted weighted_cross(const std::vector<Reals>& in, Real smoothing, Real ignored) {
  Weighted out;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t d = 0; d < 3; ++d) {
      Reals x;
      for (int64_t c = 0; c < kClasses; ++c) x.push_back(in[0][(n * kClasses + c) * 3 + d]);
      const Real target = in[1][n * 3 + d];
      out.loss.push_back(0);
      if (target == ignored) continue;
      for (int64_t c = 0; c < kClasses; ++c)
        out.loss.back() += in[2][c] * ((c == target ? 1 - smoothing : 0) + smoothing / kClasses) * (lse(x) - x[c]);
      out.weights += in[2][static_cast<int64_t>(target)];
    }
  return out;
}
const Operand kScoresDim1{Shape{2, kClasses, 3}, kFloat32, -3, 3};

Real sum_of(const Reals& x) {
  Real s = 0;
  for (Real v : x) s += v;
  return s;
}

const std::vector<CompositeRow> kTable = {
    {"cross_entropy_weights_in_dim_1",
     {kScoresDim1, kTargets, kWeights},
     [](Args a) {
       return cross_entropy(a[0], a[1], {.ignore_index = 3, .label_smoothing = 0.25, .weight = a[2], .dim = 1});
     },
     [](const std::vector<Reals>& in) {
       const Weighted w = weighted_cross(in, Real(0.25), 3);
       return Reals{sum_of(w.loss) / w.weights};
     },
     128,
     true,
     true},
    {"cross_entropy_weights_none",
     {kScoresDim1, kTargets, kWeights},
     [](Args a) { return cross_entropy(a[0], a[1], {.reduction = "none", .weight = a[2], .dim = -2}); },
     [](const std::vector<Reals>& in) { return weighted_cross(in, 0, -100).loss; },
     64,
     true,
     true},
    {"cross_entropy_probabilities_weights_in_dim_1",
     {kScoresDim1, {Shape{2, kClasses, 3}, kFloat32, 0, 1}, kWeights},
     [](Args a) { return cross_entropy(a[0], a[1], {.weight = a[2], .dim = 1}); },
     [](const std::vector<Reals>& in) {
       Real s = 0;
       for (int64_t n = 0; n < 2; ++n)
         for (int64_t d = 0; d < 3; ++d) {
           Reals x;
           for (int64_t c = 0; c < kClasses; ++c) x.push_back(in[0][(n * kClasses + c) * 3 + d]);
           for (int64_t c = 0; c < kClasses; ++c) s += in[2][c] * in[1][(n * kClasses + c) * 3 + d] * (lse(x) - x[c]);
         }
       return Reals{s / 6};
     },
     128,
     true,
     true},
    {"nll_loss_weights",
     {kScores, kTargets, kWeights},
     [](Args a) { return nll_loss(a[0], a[1], {.weight = a[2]}); },
     [](const std::vector<Reals>& in) {
       Real s = 0, w = 0;
       for (int64_t i = 0; i < kRowsOf; ++i) {
         const auto c = static_cast<int64_t>(in[1][i]);
         s -= in[2][c] * in[0][i * kClasses + c];
         w += in[2][c];
       }
       return Reals{s / w};
     },
     32,
     true,
     true},
    {"huber_loss",
     {kX, kY},
     [](Args a) { return huber_loss(a[0], a[1], "mean", 0.75); },
     mean_of([](Real x, Real y) {
       const Real d = std::fabs(x - y);
       return d < Real(0.75) ? d * d / 2 : Real(0.75) * (d - Real(0.375));
     }),
     48,
     true,
     true},
    {"smooth_l1_loss",
     {kX, kY},
     [](Args a) { return smooth_l1_loss(a[0], a[1], "mean", 0.75); },
     mean_of([](Real x, Real y) {
       const Real d = std::fabs(x - y);
       return d < Real(0.75) ? d * d / Real(1.5) : d - Real(0.375);
     }),
     48,
     true,
     true},
    {"binary_cross_entropy_with_logits_weights",
     {kX, kY, {Shape{4, 1}, kFloat32, 0.5, 2}, {Shape{5}, kFloat32, 0.5, 3}},
     [](Args a) {
       return binary_cross_entropy_with_logits(a[0], a[1], {.weight = a[2], .reduction = "none", .pos_weight = a[3]});
     },
     [](const std::vector<Reals>& in) {
       Reals y;
       for (int i = 0; i < 20; ++i) {
         const Real x = in[0][i], t = in[1][i];
         y.push_back(in[2][i / 5] * (in[3][i % 5] * t * std::log1p(std::exp(-x)) + (1 - t) * std::log1p(std::exp(x))));
       }
       return y;
     },
     64,
     true,
     true},
    {"binary_cross_entropy",
     {{Shape{4, 5}, kFloat32, 0.05, 0.9}, kY},
     [](Args a) { return binary_cross_entropy(a[0], a[1]); },
     mean_of([](Real x, Real t) { return -t * std::log(x) - (1 - t) * std::log1p(-x); }),
     64,
     true,
     true},
    {"binary_cross_entropy_weights",
     {{Shape{4, 5}, kFloat32, 0.05, 0.9}, kY, {Shape{5}, kFloat32, 0.5, 3}},
     [](Args a) { return binary_cross_entropy(a[0], a[1], {.weight = a[2], .reduction = "sum"}); },
     [](const std::vector<Reals>& in) {
       Real s = 0;
       for (int i = 0; i < 20; ++i)
         s -= in[2][i % 5] * (in[1][i] * std::log(in[0][i]) + (1 - in[1][i]) * std::log1p(-in[0][i]));
       return Reals{s};
     },
     64,
     true,
     true},
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

TEST(NllLoss, IgnoredTargetsHaveNoWeight) {
  const Tensor x = Tensor::from_vector({-1, -2, -3, -4}, {2, 2}), t = Tensor::from_vector<int64_t>({1, 0}, {2}),
               w = Tensor::from_vector({0.5f, 4}, {2});
  EXPECT_EQ(nll_loss(x, t, {.ignore_index = 0, .weight = w}).item<float>(), 2);
  EXPECT_EQ(nll_loss(x, t, {.ignore_index = 0, .reduction = "none", .weight = w}).to_vector<float>(),
            (std::vector<float>{8, 0}));
  // dim 1 of [1, 2, 2]: classes 1 and 0 of the columns.
  EXPECT_EQ(nll_loss(x.unsqueeze(0), t.unsqueeze(0), {.reduction = "none", .dim = 1}).to_vector<float>(),
            (std::vector<float>{3, 2}));
}

TEST(CrossEntropy, SaysThatTheDimOfTheClassesIsOpen) {
  const Tensor x = zeros({2, 3, 3}), classes = zeros({2, 3}, {.dtype = kInt64});
  ::testing::internal::CaptureStderr();
  cross_entropy(x, classes, {.dim = 1});
  cross_entropy(x, classes, {.dim = -1});
  cross_entropy(zeros({2, 3, 4}), classes);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  cross_entropy(x, classes);
  cross_entropy(x, classes);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("weft: cross_entropy: the classes of scores f32[2, 3, 3] with targets i64[2, 3] can be the last "
                      "dim or dim 1; took the last one: give {.dim = -1} or {.dim = 1}; at "),
            std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(BinaryCrossEntropy, IsPyTorchsAtTheEnds) {
  const Tensor x = Tensor::from_vector<float>({0, 1, 0, 1}, {4}).requires_grad();
  const Tensor t = Tensor::from_vector<float>({0, 1, 1, 0}, {4});
  const Tensor loss = binary_cross_entropy(x, t, "none");
  EXPECT_EQ(loss.to_vector<float>(), (std::vector<float>{0, 0, 100, 100}));
  EXPECT_EQ(grad(sum(loss), {x})[0].to_vector<float>(), (std::vector<float>{0, 0, -1e12f, 1e12f}));
  for (float v :
       binary_cross_entropy(Tensor::from_vector<float>({-0.5f, 1.5f}, {2}), zeros({2}), "none").to_vector<float>())
    EXPECT_TRUE(std::isnan(v) || v >= 0);
  EXPECT_TRUE(std::isnan(binary_cross_entropy(full({1}, 1.5), full({1}, 0.5)).item<float>()));
}

// PyTorch promotes as well; a target in f32 would lose half of its digits.
TEST(Losses, OfF64TargetsAreComputedInF64) {
  using Loss = Tensor (*)(const Tensor&, const Tensor&);
  const Loss losses[] = {
      [](const Tensor& x, const Tensor& t) { return mse_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return l1_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return huber_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return binary_cross_entropy_with_logits(x, t); },
      [](const Tensor& x, const Tensor& t) { return cross_entropy(x, t); },
      [](const Tensor& x, const Tensor& t) { return cross_entropy(x, t, {.label_smoothing = 0.25, .dim = 0}); },
      [](const Tensor& x, const Tensor& t) { return kl_div(x, t); },
      [](const Tensor& x, const Tensor& t) { return poisson_nll_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return gaussian_nll_loss(x, t, 0.5); },
      [](const Tensor& x, const Tensor& t) { return gaussian_nll_loss(x, x.detach(), t); },
      [](const Tensor& x, const Tensor& t) { return margin_ranking_loss(x, x.detach() * 2.0, t); },
      [](const Tensor& x, const Tensor& t) { return soft_margin_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return multilabel_soft_margin_loss(x, t); },
      [](const Tensor& x, const Tensor& t) { return triplet_margin_loss(x, t, x.detach() * 2.0); },
  };
  const Tensor t = tensor({{0.1, 0.7}, {0.3, 0.9}}, {.dtype = kFloat64});
  for (size_t i = 0; i < std::size(losses); ++i)
    for (DType dtype : {kFloat32, kBFloat16}) {
      const Tensor x = Tensor::from_vector<float>({0.5f, -1.25f, 2, 0.75f}, {2, 2}).to(dtype).requires_grad();
      const Tensor wide = x.detach().to(kFloat64).requires_grad();
      const Tensor loss = losses[i](x, t), want = losses[i](wide, t);
      EXPECT_EQ(loss.dtype(), kFloat64) << i;
      EXPECT_EQ(loss.item<double>(), want.item<double>()) << i;
      EXPECT_TRUE(same_bits(grad(loss, {x})[0], grad(want, {wide})[0].to(dtype))) << i;
    }
  // Where targets are only compared with 1 and -1, the dtype is x's; the comparison is exact.
  const Tensor x = Tensor::from_vector<float>({0.5f, 0.25f}, {2}), near = tensor({1 + 1e-12, -1}, {.dtype = kFloat64});
  EXPECT_EQ(hinge_embedding_loss(x, near, 1, "none").to_vector<float>(), (std::vector<float>{1, 0.75f}));
  EXPECT_EQ(cosine_embedding_loss(ones({2, 3}), ones({2, 3}), near, 0, "none").to_vector<float>(),
            (std::vector<float>{0, 1}));
}

TEST(Losses, OfNothing) {
  const Tensor x = zeros({0, 3});
  EXPECT_EQ(huber_loss(x, x, "sum").item<float>(), 0);
  EXPECT_TRUE(std::isnan(smooth_l1_loss(x, x).item<float>()));
  EXPECT_EQ(binary_cross_entropy(x, x, "none").shape(), Shape({0, 3}));
  EXPECT_EQ(cross_entropy(x, zeros({0}, {.dtype = kInt64}), {.reduction = "sum", .weight = ones({3})}).item<float>(),
            0);
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
            "the scores; these have them in dim 1, as in PyTorch: give {.dim = 1}");
  EXPECT_EQ(error_of([] {
              cross_entropy(zeros({3, 5, 7}), zeros({3, 5}, {.dtype = kInt64}), {.dim = 1});
            }),
            "cross_entropy: scores f32[3, 5, 7] with targets of shape [3, 5]; need [3, 7]: classes are dim 1 of the "
            "scores");
  EXPECT_EQ(error_of([] {
              cross_entropy(zeros({3, 5}), zeros({3}, {.dtype = kInt64}), {.dim = 2});
            }),
            "cross_entropy: dim is 2 for scores f32[3, 5]; need -2 to 1");
  EXPECT_EQ(error_of([] {
              nll_loss(zeros({3, 5}), zeros({3}, {.dtype = kInt64}), {.weight = ones({3})});
            }),
            "nll_loss: weight is f32[3]; need one floating-point number for each of 5 classes");
  EXPECT_EQ(error_of([] {
              binary_cross_entropy_with_logits(zeros({3, 5}), zeros({3, 5}), {.pos_weight = ones({3})});
            }),
            "binary_cross_entropy_with_logits: pos_weight has shape [3]; need one that broadcasts to [3, 5]");
  EXPECT_EQ(error_of([] { binary_cross_entropy(zeros({3}), zeros({3}), {.pos_weight = ones({3})}); }),
            "binary_cross_entropy: got pos_weight; need binary_cross_entropy_with_logits for it");
  EXPECT_EQ(error_of([] { huber_loss(zeros({2}), zeros({2}), "mean", 0); }),
            "huber_loss: delta is 0; need a number above 0");
  EXPECT_EQ(error_of([] { smooth_l1_loss(zeros({2}), zeros({2}), "mean", -1); }),
            "smooth_l1_loss: beta is -1; need a number >= 0");
  EXPECT_EQ(error_of([] {
              mse_loss(zeros({2, 3}), zeros({3}));
            }),
            "mse_loss: x has shape [2, 3] and target [3]; need equal shapes");
  EXPECT_EQ(error_of([] { mse_loss(zeros({2}), zeros({2}), "avg"); }),
            "mse_loss: reduction is 'avg'; need \"mean\", \"sum\" or \"none\"");
}

// Equal logits give log(classes), and the gradient of even probabilities, however large the logits are.
TEST(Loss, CrossEntropyOfEqualLogitsOfAnySize) {
  for (double size : {0., -1e4, -1e10, -1e30, 1e30, -3.4028234663852886e38}) {
    const Tensor x = full({2, 5}, size).requires_grad(), classes = Tensor::from_vector<int64_t>({1, 3}, {2});
    const Tensor likely = full({2, 5}, 0.2);
    for (const Tensor& loss :
         {cross_entropy(x, classes), cross_entropy(x, classes, {.label_smoothing = 0.5}),
          cross_entropy(x, classes, {.label_smoothing = 0.5, .weight = ones({5})}), cross_entropy(x, likely)})
      EXPECT_NEAR(loss.item<float>(), std::log(5.0), 4 * 0x1p-23) << size;
    const std::vector<float> g = grad(cross_entropy(x, classes), {x})[0].to_vector<float>();
    for (size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], 0.1 - (i == 1 || i == 8 ? 0.5 : 0), 4 * 0x1p-24) << size;
  }
}

// Sure logits of either sign: the loss is e^-|x|, and so is its slope; at 0 the slope is 1/2 - t.
TEST(Loss, BinaryCrossEntropyOfSureLogitsKeepsItsDigits) {
  for (double at : {8., 12., 17., 40.})
    for (double t : {0., 1.}) {
      const Tensor x = full({1, 1}, t == 0 ? -at : at).requires_grad(), target = full({1, 1}, t), w = full({1, 1}, 1);
      const double want = std::log1p(std::exp(-at)), slope = (t == 0 ? 1 : -1) / (1 + std::exp(at));
      for (const Tensor& loss : {binary_cross_entropy_with_logits(x, target), multilabel_soft_margin_loss(x, target),
                                 binary_cross_entropy_with_logits(x, target, {.pos_weight = w})}) {
        EXPECT_NEAR(loss.item<float>(), want, 8 * 0x1p-24 * want) << at;
        EXPECT_NEAR(grad(loss, {x})[0].item<float>(), slope, 8 * 0x1p-24 * std::abs(slope)) << at;
      }
    }
  const Tensor zero = zeros({2}).requires_grad(), targets = Tensor::from_vector<float>({0, 1}, {2});
  EXPECT_EQ(grad(binary_cross_entropy_with_logits(zero, targets, "sum"), {zero})[0].to_vector<float>(),
            (std::vector<float>{0.5, -0.5}));
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
