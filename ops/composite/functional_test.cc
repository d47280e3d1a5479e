#include "ops/composite/functional.h"

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::expect_error;
using testing::same_bits;

Tensor vec(const std::vector<double>& v) { return Tensor::from_vector<double>(v, {static_cast<int64_t>(v.size())}); }
using Values = std::vector<double>;

TEST(Functional, AreTheDerivativesByHand) {
  // f(x, y) = (x^2 y, x + y^3): the Jacobian is [[2 x y, x^2], [1, 3 y^2]].
  const TensorFunction f = [](const Tensor& v) {
    const Tensor x = v[0], y = v[1];
    return stack({x * x * y, x + y * y * y});
  };
  const Tensor at = vec({2, 3});
  const Tensor j = jacobian(f, at);
  EXPECT_EQ(j.shape(), (Shape{2, 2}));
  EXPECT_EQ(j.to_vector<double>(), (Values{12, 4, 1, 27}));
  EXPECT_FALSE(j.requires_grad_enabled());
  const FunctionalProduct back = vjp(f, at, vec({1, 10})), forward = jvp(f, at, vec({1, 10}));
  EXPECT_EQ(back.output.to_vector<double>(), (Values{12, 29}));
  EXPECT_EQ(back.product.to_vector<double>(), (Values{22, 274}));
  EXPECT_EQ(forward.product.to_vector<double>(), (Values{52, 271}));
  // x^2 y + y^3: the Hessian is [[2 y, 2 x], [2 x, 6 y]].
  const TensorFunction g = [](const Tensor& v) { return v[0] * v[0] * v[1] + v[1] * v[1] * v[1]; };
  EXPECT_EQ(hessian(g, at).to_vector<double>(), (Values{6, 4, 4, 18}));
  EXPECT_EQ(vjp(g, at).product.to_vector<double>(), (Values{12, 31}));
  // A derivative of a derivative, through create_graph: d/dx of 2 x y + x^2 + 1 + 3 y^2.
  const Tensor x = at.requires_grad();
  const Tensor total = sum(jacobian(f, x, {.create_graph = true}));
  EXPECT_EQ(grad(total, {x})[0].to_vector<double>(), (Values{6 + 4, 4 + 18}));
}

TEST(Functional, ShapesConstantsAndZeroExtents) {
  const Tensor m = ones({2, 3});
  EXPECT_EQ(jacobian([](const Tensor& x) { return sum(x, 0); }, m).shape(), (Shape{3, 2, 3}));
  EXPECT_EQ(hessian([](const Tensor& x) { return sum(x * x); }, m).shape(), (Shape{2, 3, 2, 3}));
  const TensorFunction constant = [](const Tensor&) { return ones({2}); };
  EXPECT_TRUE(same_bits(jacobian(constant, m), zeros({2, 2, 3})));
  EXPECT_TRUE(same_bits(vjp(constant, m, ones({2})).product, zeros({2, 3})));
  EXPECT_TRUE(same_bits(jvp(constant, m, m).product, zeros({2})));
  EXPECT_TRUE(same_bits(hessian([](const Tensor& x) { return sum(x); }, m), zeros({2, 3, 2, 3})));
  EXPECT_EQ(jacobian([](const Tensor& x) { return x * 2; }, zeros({0})).shape(), (Shape{0, 0}));
  NoGrad guard;  // they record by themselves
  EXPECT_EQ(jacobian([](const Tensor& x) { return x * x; }, vec({3})).item<double>(), 6);
}

TEST(Functional, CompiledGiveTheSameBits) {
  auto all = [](Tensor x) {
    const TensorFunction f = [](const Tensor& v) { return tanh(v) * sum(v * v); };
    return std::vector{jacobian(f, x), hessian([&](const Tensor& v) { return sum(f(v)); }, x), vjp(f, x, x).product,
                       jvp(f, x, x * 2).product};
  };
  const Tensor x = vec({0.5, -1, 2});
  const std::vector<Tensor> eager = all(x), compiled = compile(all, {.numerics = "eager"})(x);
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(compiled[i], eager[i])) << i;
}

TEST(Functional, ErrorsSayWhatIsWrong) {
  const TensorFunction same = [](const Tensor& x) { return x; };
  expect_error([&] { jacobian(same, arange(3)); }, "jacobian: operand is i64[3]; need a floating-point dtype");
  expect_error([&] { hessian(same, ones({2})); }, "hessian: the function returned f32[2]; need one number");
  expect_error([&] { vjp(same, ones({2})); }, "vjp: the function returned f32[2]; need v of that shape");
  expect_error([&] { vjp(same, ones({2}), ones({3})); }, "vjp: v has shape [3]; need f(x)'s shape, [2]");
  expect_error([&] { jvp(same, ones({2}), ones({3})); }, "jvp: v has shape [3]; need x's shape, [2]");
  expect_error([&] { jacobian([](const Tensor& x) { return gt(x, 0); }, ones({2})); },
               "jacobian: the function returned bool[2]; need a floating-point tensor");
  expect_error([&] { jacobian(same, ones({1, 1, 1, 1, 1})); }, "need at most 8 dims together");
}

}  // namespace
}  // namespace weft
