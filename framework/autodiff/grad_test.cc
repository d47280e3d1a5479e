// Tests grad() over the eager tape.
#include "framework/autodiff/grad.h"

#include "framework/testing/gradcheck.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

Tensor leaf(const std::vector<double>& v, const Shape& shape = {}) {
  return Tensor::from_vector<double>(v, shape).requires_grad();
}
double value(const Tensor& t) { return t.item<double>(); }

TEST(Grad, OfAProduct) {
  Tensor x = leaf({3}), y = leaf({4});
  auto g = grad(x * y + x, {x, y});
  EXPECT_EQ(value(g[0]), 5);
  EXPECT_EQ(value(g[1]), 3);
}

TEST(Grad, AddsUpOverAllUses) {
  Tensor x = leaf({2});
  Tensor y = x * x;
  EXPECT_EQ(value(grad(y * y + y, {x})[0]), 4 * 8 + 4);
}

TEST(Grad, FollowsControlFlowOfTheHost) {
  auto f = [](Tensor x) {
    for (int i = 0; i < 5; ++i) x = x.item<double>() > 10 ? x - 1.0 : x * 2.0;
    return x;
  };
  Tensor x = leaf({3});  // 6, 12, 11, 10, 20: three doublings
  EXPECT_EQ(value(f(x)), 20);
  EXPECT_EQ(value(grad(f(x), {x})[0]), 8);
}

TEST(Grad, IsZeroOfWhatIsNotUsed) {
  Tensor x = leaf({3}), unused = leaf({1, 2}, {2}), integer_path = leaf({2});
  Tensor loss = x * integer_path.to(kInt64);
  auto g = grad(loss, {unused, integer_path, x});
  EXPECT_EQ(g[0].shape(), Shape{2});
  EXPECT_EQ(value(sum(g[0])), 0);
  EXPECT_EQ(value(g[1]), 0);
  EXPECT_EQ(value(g[2]), 2);
}

TEST(Grad, OfALeafItselfIsOne) {
  Tensor x = leaf({3});
  EXPECT_EQ(value(grad(x, {x})[0]), 1);
}

TEST(Grad, OfAnIntermediateValue) {
  Tensor x = leaf({3});
  Tensor y = x * 2.0, loss = y * y;
  auto g = grad(loss, {y, x});
  EXPECT_EQ(value(g[0]), 12);
  EXPECT_EQ(value(g[1]), 24);
}

TEST(Grad, TheSameOperandTwiceGetsTheSameGradientTwice) {
  Tensor x = leaf({3});
  auto g = grad(x * x, {x, x});
  EXPECT_EQ(value(g[0]), 6);
  EXPECT_EQ(value(g[1]), 6);
}

TEST(Grad, NoGradAndDetachCutTheTape) {
  Tensor x = leaf({3}), cut;
  {
    NoGrad guard;
    cut = x * x;
    EXPECT_FALSE(cut.requires_grad_enabled());
    EnableGrad again;
    EXPECT_TRUE((x * x).requires_grad_enabled());
  }
  EXPECT_EQ(value(grad(x * cut, {x})[0]), 9);
  EXPECT_EQ(value(grad(x * (x * x).detach(), {x})[0]), 9);
  EXPECT_FALSE(x.detach().requires_grad_enabled());
  EXPECT_FALSE(x.requires_grad(false).requires_grad_enabled());
}

TEST(Grad, OfParametersUnlessFrozen) {
  Parameter w(Tensor::from_vector<float>({2, 3}, {2}), "w");
  auto g = grad(sum(w * w), std::vector<Parameter>{w});
  EXPECT_EQ(g[0].to_vector<float>(), (std::vector<float>{4, 6}));
  w.requires_grad(false);
  EXPECT_FALSE(w.value().requires_grad_enabled());
  EXPECT_EQ(error_of([&] { grad(sum(w * w), std::vector<Parameter>{w}); }).find("grad: parameter 'w' is frozen"), 0u);
}

TEST(Grad, OfBroadcastOperandsIsSummed) {
  Tensor x = leaf({1, 2, 3}, {3, 1}), y = leaf({1, 2}, {2}), s = leaf({5});
  auto g = grad(sum(x * y + s), {x, y, s});
  EXPECT_EQ(g[0].to_vector<double>(), (std::vector<double>{3, 3, 3}));
  EXPECT_EQ(g[1].to_vector<double>(), (std::vector<double>{6, 6}));
  EXPECT_EQ(value(g[2]), 6);
}

TEST(Grad, WithAGivenGradientOfTheResult) {
  Tensor x = leaf({1, 2, 3}, {3});
  Tensor seed = Tensor::from_vector<double>({1, 10, 100}, {3});
  EXPECT_EQ(grad(x * x, {x}, {.grad_output = seed})[0].to_vector<double>(), (std::vector<double>{2, 40, 600}));
}

TEST(Grad, OfHigherOrder) {
  Tensor x = leaf({2});
  Tensor y = pow(x, 5.0);
  Tensor d = y;
  const double want[] = {80, 160, 240, 240, 120};
  for (double w : want) {
    d = grad(d, {x}, {.create_graph = true})[0];
    EXPECT_NEAR(value(d), w, 1e-10 * w);
  }
}

TEST(Grad, OfMixedSecondOrder) {
  Random random(3);
  std::vector<Tensor> in{random_tensor(kFloat64, {3, 4}, random), random_tensor(kFloat64, {4, 2}, random)};
  TensorFn fn = [](std::span<const Tensor> a) { return std::vector<Tensor>{exp(sin(matmul(a[0], a[1])))}; };
  EXPECT_TRUE(gradcheck(fn, in));
  EXPECT_TRUE(gradgradcheck(fn, in));
}

TEST(Grad, WithoutCreateGraphDoesNotRecord) {
  Tensor x = leaf({2});
  EXPECT_FALSE(grad(x * x, {x})[0].requires_grad_enabled());
  EXPECT_TRUE(grad(x * x, {x}, {.create_graph = true})[0].requires_grad_enabled());
}

TEST(Grad, MayBeAskedTwiceOfOneTape) {
  Tensor x = leaf({2});
  Tensor loss = x * x * x;
  EXPECT_EQ(value(grad(loss, {x})[0]), 12);
  EXPECT_EQ(value(grad(loss, {x})[0]), 12);
}

TEST(Grad, OfALongChainNeedsNoDeepStack) {
  Tensor x = leaf({1}), y = x;
  for (int i = 0; i < 200000; ++i) y = y + 1.0;
  EXPECT_EQ(value(grad(y, {x})[0]), 1);
}

TEST(Grad, ThroughSeveralResultsOfOneOp) {
  Tensor x = leaf({3, 1, 2, 5}, {4});
  TopK best = topk(x, 2);
  EXPECT_EQ(grad(sum(best.values * best.values), {x})[0].to_vector<double>(), (std::vector<double>{6, 0, 0, 10}));
}

TEST(Grad, KeepsTheOperandsDtype) {
  Tensor x = Tensor::from_vector<bfloat16>({1.f, 2.f}, {2}).requires_grad();
  Tensor w = Tensor::from_vector<float>({3, 4}, {2}).requires_grad();
  auto g = grad(sum(x * w), {x, w});
  EXPECT_EQ(g[0].dtype(), kBFloat16);
  EXPECT_EQ(g[1].dtype(), kFloat32);
  EXPECT_EQ(g[0].to_vector<float>(), (std::vector<float>{3, 4}));
}

TEST(GradErrors, SayWhatIsMissing) {
  Tensor x = leaf({1, 2}, {2}), plain = Tensor::from_vector<double>({1, 2}, {2});
  auto text = [](auto fn) { return error_of(fn); };
  EXPECT_EQ(text([&] { grad(x * x, {x}); }), "grad: the loss is f64[2]; need one element, or give options.grad_output");
  EXPECT_NE(text([&] { grad(sum(x), {plain}); }).find("grad: operand 0 (f64[2]) does not record; need a Parameter's"),
            std::string::npos);
  EXPECT_NE(text([&] { grad(sum(plain), {x}); }).find("grad: the loss does not depend on anything that records"),
            std::string::npos);
  EXPECT_NE(
      text([&] { grad(sum(x), {x}, {.grad_output = plain}); }).find("grad_output has shape [2]; need the loss's []"),
      std::string::npos);
  EXPECT_NE(text([&] { sum(x).to(kInt64).requires_grad(); }).find("requires_grad: a tensor of i64 has no gradient"),
            std::string::npos);
  EXPECT_NE(text([&] { grad(sum(x), {sum(x).to(kInt64)}); }).find("cannot differentiate with respect to i64"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::testing
