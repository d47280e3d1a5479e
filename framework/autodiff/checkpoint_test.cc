// Tests checkpoint and custom_grad: bodies with their own derivative.
#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/generator.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/random/dropout.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

Tensor block(const Tensor& x, const Tensor& w) { return dropout(tanh(matmul(x, w)), 0.3) + x; }

// The loss and gradients of three blocks, each wrapped by `wrap`.
template <class Wrap>
std::vector<Tensor> losses(Wrap wrap, const std::vector<Tensor>& in) {
  Tensor x = in[0].requires_grad(), w = in[1].requires_grad();
  Tensor y = x;
  for (int i = 0; i < 3; ++i) y = wrap(y, w);
  Tensor loss = mean(y * y);
  auto g = grad(loss, {x, w});
  return {loss, g[0], g[1]};
}

std::vector<Tensor> inputs(DType t) {
  Random random(7);
  return {random_tensor(t, {4, 6}, random), random_tensor(t, {6, 6}, random)};
}

const auto plain = [](const Tensor& x, const Tensor& w) { return block(x, w); };
const auto once = [](const Tensor& x, const Tensor& w) { return checkpoint(block, x, w); };
const auto nested = [](const Tensor& x, const Tensor& w) {
  return checkpoint([](Tensor a, Tensor b) { return checkpoint(block, a, b) * 1.0; }, x, w);
};
// Closes over w instead of taking it as an operand.
const auto closing = [](const Tensor& x, const Tensor& w) {
  return checkpoint([&](Tensor a) { return block(a, w); }, x);
};

TEST(Checkpoint, GivesTheSameBitsWithDropoutInside) {
  auto in = inputs(kFloat32);
  auto run = [&](auto wrap) {
    manual_seed(11);
    return losses(wrap, in);
  };
  auto want = run(plain);
  for (const auto& got : {run(once), run(nested), run(closing)})
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

TEST(Checkpoint, GivesTheSameBitsInsideCapture) {
  auto in = inputs(kFloat32);
  std::vector<TensorType> types{in[0].type(), in[1].type()};
  auto run = [&](auto wrap) {
    manual_seed(11);
    Ref<Graph> g = capture_graph([&](std::span<const Tensor> a) { return losses(wrap, {a.begin(), a.end()}); }, types);
    verify(*g);
    Ref<Graph> joint = expand_grad(*g);
    verify(*joint);
    auto expanded = interpret(*joint, in), direct = interpret(*g, in);
    for (size_t i = 0; i < expanded.size(); ++i) EXPECT_TRUE(same_bits(expanded[i], direct[i])) << i;
    return expanded;
  };
  auto want = run(plain);
  for (const auto& got : {run(once), run(nested), run(closing)})
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
}

TEST(Checkpoint, RecomputesBehindABarrier) {
  auto in = inputs(kFloat32);
  std::vector<TensorType> types{in[0].type(), in[1].type()};
  Ref<Graph> joint = expand_grad(*capture_graph(
      [&](std::span<const Tensor> a) {
        return losses(once, {a.begin(), a.end()});
      },
      types));
  int barriers = 0;
  for (int32_t id = 0; id < joint->size(); ++id) barriers += joint->node(id).op == &barrier_op;
  EXPECT_GE(barriers, 3);
}

TEST(Checkpoint, IsDifferentiableTwice) {
  auto in = inputs(kFloat64);
  TensorFn fn = [](std::span<const Tensor> a) {
    return std::vector<Tensor>{checkpoint([](Tensor x, Tensor w) { return tanh(matmul(x, w)); }, a[0], a[1])};
  };
  EXPECT_TRUE(gradcheck(fn, in, {.elements = 8}));
  EXPECT_TRUE(gradcheck(fn, in, {.elements = 4, .captured = true}));
  EXPECT_TRUE(gradgradcheck(fn, in, {.elements = 4}));
}

TEST(Checkpoint, OfSeveralResults) {
  Tensor x = Tensor::from_vector<double>({2}, {}).requires_grad();
  auto out = checkpoint_n([](std::span<const Tensor> a) { return std::vector<Tensor>{a[0] * a[0], exp(a[0])}; }, {x});
  EXPECT_EQ(grad(out[0], {x})[0].item<double>(), 4);
  EXPECT_EQ(grad(out[0] * 2.0 + out[1], {x})[0].item<double>(), 8 + std::exp(2.0));
}

TEST(Checkpoint, ReadsParametersItClosesOver) {
  Parameter w(Tensor::from_vector<double>({3}, {}), "w");
  Tensor x = Tensor::from_vector<double>({2}, {}).requires_grad();
  Tensor y = checkpoint([&](Tensor a) { return a * w * w; }, x);
  EXPECT_EQ(grad(y, {x, w.value()})[0].item<double>(), 9);
  EXPECT_EQ(grad(y, std::vector<Parameter>{w})[0].item<double>(), 12);
}

TEST(CustomGrad, ReplacesTheDerivative) {
  auto clip = custom_grad([](Tensor x) { return x * 2.0; },
                          [](Tensor x, Tensor y, Tensor dy) { return minimum(dy * 2.0, 1.0) + x * 0.0 + y * 0.0; });
  Tensor x = Tensor::from_vector<double>({3}, {}).requires_grad();
  EXPECT_EQ(clip(x).item<double>(), 6);
  EXPECT_EQ(grad(clip(x) * 100.0, {x})[0].item<double>(), 1);
  Graph g = capture(
      [&](Tensor a) {
        a = a.requires_grad();
        return grad(clip(a) * 100.0, {a})[0];
      },
      x);
  EXPECT_EQ(interpret(*expand_grad(g), {{x.detach()}})[0].item<double>(), 1);
  EXPECT_EQ(interpret(g, {{x.detach()}})[0].item<double>(), 1);
}

TEST(CustomGrad, OfSeveralInputsWithOneUndefined) {
  auto f = custom_grad([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] * in[1]}; },
                       [](std::span<const Tensor> in, std::span<const Tensor>, std::span<const Tensor> g) {
                         return std::vector<Tensor>{Tensor(), g[0] * in[0]};
                       });
  Tensor a = Tensor::from_vector<double>({3}, {}).requires_grad(),
         b = Tensor::from_vector<double>({4}, {}).requires_grad();
  auto g = grad(f(a, b), {a, b});
  EXPECT_EQ(g[0].item<double>(), 0);
  EXPECT_EQ(g[1].item<double>(), 3);
}

TEST(CustomGrad, BackwardMayCloseOverTensors) {
  Tensor factor = Tensor::from_vector<double>({7}, {});
  auto f = custom_grad([](Tensor x) { return x; }, [&](Tensor, Tensor, Tensor dy) { return dy * factor; });
  Tensor x = Tensor::from_vector<double>({3}, {}).requires_grad();
  EXPECT_EQ(grad(f(x), {x})[0].item<double>(), 7);
}

TEST(CustomGrad, OfWrongShapeIsAnError) {
  auto f = custom_grad([](Tensor x) { return x; }, [](Tensor, Tensor, Tensor dy) { return sum(dy); });
  Tensor x = Tensor::from_vector<double>({3, 4}, {2}).requires_grad();
  EXPECT_NE(error_of([&] { f(x); }).find("custom_grad: the gradient of input 0 has shape []; need [2]"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::testing
