// CompileOptions::autocast: values within bounds of f64, gradients in the parameters' f32, a training loop like f32's,
// eager and compiled alike, and on a mesh. (The dtypes of functions: rows with the tag [autocast] of
// models/testing/pytorch/cases.txt.)
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

using testing::unit_roundoff;

// Each element of `got` is within `parts` roundings to `low` of `need`, relative to `size`, the same sums of products
// of magnitudes, besides roundings to f32.
void expect_within(const Tensor& got, const Tensor& need, const Tensor& size, double parts, DType low) {
  const std::vector<double> a = got.to_vector<double>(), b = need.to_vector<double>(), s = size.to_vector<double>();
  const double u = unit_roundoff(low), bound = std::pow(1 + u, parts) - 1 + 0x1p-16;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::fabs(a[i] - b[i]), bound * s[i] + testing::tiny_roundoff(low) * 64) << i << " of " << got.shape();
}

struct Product {
  const char* name;
  Shape x, w;
  std::function<Tensor(const Tensor&, const Tensor&)> fn;
};
const std::vector<Product>& products() {
  static const std::vector<Product> all = {
      {"matmul", {5, 24}, {24, 7}, [](Tensor x, Tensor w) { return matmul(x, w); }},
      {"linear", {5, 24}, {7, 24}, [](Tensor x, Tensor w) { return linear(x, w); }},
      {"bmm", {2, 5, 24}, {2, 24, 3}, [](Tensor x, Tensor w) { return bmm(x, w); }},
      {"einsum",
       {3, 4, 8},
       {8, 4, 5},
       [](Tensor x, Tensor w) {
         return einsum("ijk,kjm->im", {x, w});
       }},
      {"conv2d", {2, 3, 6, 6}, {4, 3, 3, 3}, [](Tensor x, Tensor w) { return conv2d(x, w); }},
      {"winograd", {1, 32, 5, 5}, {32, 32, 3, 3}, [](Tensor x, Tensor w) { return conv_transpose2d(x, w); }},
      {"conv_transpose2d", {2, 3, 5, 5}, {3, 4, 3, 3}, [](Tensor x, Tensor w) { return conv_transpose2d(x, w); }},
  };
  return all;
}

// Both operands are rounded, and the result; in backward the gradient, the other operand, and the result.
TEST(Autocast, ProductsAndTheirGradientsAreWithinTheRoundingsOfTheirOperands) {
  for (DType low : {kBFloat16, kFloat16})
    for (const Product& p : products()) {
      SCOPED_TRACE(p.name);
      manual_seed(1);
      const Tensor x = randn(p.x), w = randn(p.w), g = randn(p.fn(x, w).shape());
      const auto all = [&](const Tensor& x, const Tensor& w, const Tensor& g) {
        const Tensor a = x.requires_grad(), b = w.requires_grad(), y = p.fn(a, b);
        const std::vector<Tensor> d = grad(sum(y * g), std::vector<Tensor>{a, b});
        return std::vector<Tensor>{y, d[0], d[1]};
      };
      const std::vector<Tensor> need = all(x.to(kFloat64), w.to(kFloat64), g.to(kFloat64));
      const std::vector<Tensor> size = all(abs(x.to(kFloat64)), abs(w.to(kFloat64)), abs(g.to(kFloat64)));
      for (bool compiled : {false, true}) {
        const auto got = compile(all, {.enabled = compiled, .autocast = low})(x, w, g);
        EXPECT_EQ(got[0].dtype(), low);
        for (int i = 0; i < 3; ++i) {
          if (i) {
            EXPECT_EQ(got[i].dtype(), kFloat32);  // as the operand
          }
          expect_within(got[i], need[i], size[i], 3, low);
        }
      }
    }
}

// Written-out attention becomes attention's kernel, whose mod reads 16-bit scores: two products, and the roundings of
// scores, probabilities and result.
TEST(Autocast, WrittenOutAttentionIsWithinTheRoundingsOfItsScores) {
  manual_seed(1);
  const Tensor q = randn({2, 2, 9, 16}), k = randn({2, 2, 11, 16}), v = randn({2, 2, 11, 16});
  const Tensor visible = ge(unsqueeze(arange(9), 1) + 2, unsqueeze(arange(11), 0));
  for (double hidden : {-1e9, -65504., -std::numeric_limits<double>::infinity()})
    for (DType low : {kBFloat16, kFloat16}) {
      if (low == kFloat16 && hidden == -1e9) continue;  // f16 has no such number
      const auto fn = [&](Tensor q, Tensor k, Tensor v) {
        return matmul(softmax(where(visible, matmul(q, k.mT()) / 4.0, hidden), -1), v);
      };
      const Tensor need = fn(q.to(kFloat64), k.to(kFloat64), v.to(kFloat64));
      const double u = unit_roundoff(low), score = matmul(abs(q), abs(k).mT()).amax().item<double>() / 4;
      const double relative = std::expm1(2 * 4 * u * score) + 4 * u;
      for (bool compiled : {false, true}) {
        const Tensor got = compile(fn, {.enabled = compiled, .autocast = low})(q, k, v);
        EXPECT_EQ(got.dtype(), low);
        EXPECT_LE((got.to(kFloat64) - need).abs().amax().item<double>(), relative * abs(v).amax().item<double>());
      }
    }
}

struct Mlp : nn::Module {
  nn::Linear a{16, 32}, b{32, 32}, c{32, 4};
  nn::LayerNorm norm{32};
  Mlp() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
    register_module("norm", norm);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const {
    const Tensor h = gelu(a(x));
    return cross_entropy(c(norm(h + b(h)).to(kFloat32)), y);
  }
};

std::vector<double> losses(CompileOptions options, int steps = 40) {
  manual_seed(5);
  const Mlp model;
  optim::AdamW opt(model.parameters(), {.lr = 3e-3});
  const Tensor x = randn({64, 16}), y = argmax(matmul(x, randn({16, 4})), 1);
  const auto fn = [&](const Tensor& x, const Tensor& y) {
    const Tensor loss = model.loss(x, y);
    const std::vector<Tensor> grads = grad(loss, opt.parameters());
    for (const Tensor& g : grads) EXPECT_EQ(g.dtype(), kFloat32);
    opt.step(grads);
    return loss;
  };
  const auto step = options.mesh.size() > 1 ? dist::compile(fn, options) : compile(fn, options);
  std::vector<double> out;
  for (int i = 0; i < steps; ++i) out.push_back(step(x, y).item());
  return out;
}

TEST(Autocast, TrainsLikeF32AndAlikeEagerlyAndCompiled) {
  const std::vector<double> f32 = losses({});
  ASSERT_LT(f32.back(), f32[0] / 4);  // it learns
  for (DType low : {kBFloat16, kFloat16}) {
    const std::vector<double> eager = losses({.enabled = false, .autocast = low}),
                              compiled = losses({.autocast = low, .numerics = "eager"});
    EXPECT_EQ(eager, compiled);
    EXPECT_NE(compiled, f32);
    // A loss is off by the roundings of four products in a row, of the operands and results: a share of the logits,
    // which are below 16 here, so of at most 16 * 12 u, while the path of training is the same up to this.
    for (size_t i = 0; i < f32.size(); ++i) EXPECT_NEAR(compiled[i], f32[i], 16 * 12 * unit_roundoff(low)) << i;
    EXPECT_LT(compiled.back(), f32[0] / 4);
  }
}

TEST(Autocast, OnAMeshAsOnOneDevice) {
  const CompileOptions one{.autocast = kBFloat16};
  CompileOptions two = one;
  two.mesh = dist::Mesh::parse("dp2");
  const std::vector<double> a = losses(one, 10), b = losses(two, 10);
  // The first losses have equal products. The gradients of both halves are rounded to bf16 before their sum.
  EXPECT_NEAR(a[0], b[0], 64 * unit_roundoff(kFloat32) * a[0]);
  for (size_t i = 1; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 16 * unit_roundoff(kBFloat16)) << i;
}

// Casts of f32[32, 32], the shape of one weight, in the joint graph.
int casts(const Graph& g) {
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& node = g.node(id);
    n += std::string(node.op->name) == "cast" && is_cell(g.node(node.inputs[0])) &&
         node.outputs[0].dtype == kBFloat16 && node.outputs[0].shape == Shape{32, 32};
  }
  return n;
}

TEST(Autocast, AWeightIsCastOnceInAStep) {
  const nn::Linear w(32, 32);
  const auto fn = [&](const Tensor& x) {
    const Tensor loss = sum(square(w(gelu(w(x)))));
    return grad(loss, w.parameters());
  };
  const auto step = compile(fn, {.autocast = kBFloat16});
  step(randn({8, 32}));
  EXPECT_EQ(casts(step.graph("joint")), 1);
}

TEST(Autocast, OfAnF64OperandAndWithinAnOffScope) {
  const Tensor x = randn({4, 4}), wide = x.to(kFloat64);
  const auto step = compile(
      [](const Tensor& x, const Tensor& wide) {
        const Tensor off = [&] {
          const Autocast scope(std::nullopt);
          return matmul(x, x);
        }();
        return std::vector<Tensor>{matmul(wide, wide), off, matmul(x, x)};
      },
      {.autocast = kBFloat16});
  const std::vector<Tensor> y = step(x, wide);
  EXPECT_TRUE(testing::same_bits(y[0], matmul(wide, wide)));
  EXPECT_TRUE(testing::same_bits(y[1], matmul(x, x)));
  EXPECT_EQ(y[2].dtype(), kBFloat16);
}

// vmap, scan and checkpoint run traced code again: a product that was computed in f32 stays so.
TEST(Autocast, BodiesAreNotCastTwice) {
  const Tensor x = randn({3, 4, 4});
  const auto apart = [](const Tensor& t) {
    const Autocast off(std::nullopt);
    return matmul(t, t);
  };
  for (bool enabled : {false, true}) {
    const auto step = compile(
        [&](const Tensor& x) {
          return std::vector<Tensor>{vmap(apart)(x), vmap([](const Tensor& t) { return matmul(t, t); })(x),
                                     checkpoint(apart, x), checkpoint([](const Tensor& t) { return matmul(t, t); }, x)};
        },
        {.enabled = enabled, .autocast = kBFloat16});
    const std::vector<Tensor> y = step(x);
    for (int i : {0, 2}) EXPECT_TRUE(testing::same_bits(y[i], matmul(x, x))) << i;
    for (int i : {1, 3}) EXPECT_EQ(y[i].dtype(), kBFloat16) << i;
  }
}

// Each layer runs, and its parameters get finite f32 gradients, which are alike eagerly and compiled.
template <class Layer, class... In>
void check_layer(const char* name, DType result, const Layer& layer, const In&... in) {
  SCOPED_TRACE(name);
  const auto first = [](const auto& r) -> Tensor {
    if constexpr (requires { r.output; }) {
      return r.output;
    } else if constexpr (requires { r.y; }) {
      return r.y;
    } else {
      return r;
    }
  };
  const auto fn = [&](const auto&... x) {
    const Tensor y = first(layer(x...));
    std::vector<Tensor> out = grad(sum(square(y)), layer.parameters());
    out.push_back(y);
    return out;
  };
  const std::vector<Tensor> eager = compile(fn, {.enabled = false, .autocast = kBFloat16})(in...),
                            compiled = compile(fn, {.autocast = kBFloat16, .numerics = "eager"})(in...);
  EXPECT_EQ(eager.back().dtype(), result);
  for (size_t i = 0; i < eager.size(); ++i) {
    if (i + 1 < eager.size()) {
      EXPECT_EQ(eager[i].dtype(), kFloat32);
    }
    EXPECT_TRUE(all(isfinite(eager[i])).item<bool>());
    EXPECT_TRUE(testing::same_bits(eager[i], compiled[i])) << i;
  }
}

TEST(Autocast, LayersRunAndTrain) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  manual_seed(2);
  const Tensor b = randn({2, 5, 8}), image = randn({2, 3, 6, 6});
  check_layer("LSTM", kBFloat16, nn::LSTM(8, 6, {.num_layers = 2, .batch_first = true, .bidirectional = true}), b);
  check_layer("GRU", kBFloat16, nn::GRU(8, 6), b);
  check_layer("GRUCell", kBFloat16, nn::GRUCell(8, 6), b[0]);
  check_layer("Bilinear", kFloat32, nn::Bilinear(8, 8, 3), b, b);
  check_layer("MultiheadAttention", kBFloat16, nn::MultiheadAttention(8, 2), b, b, b);
  check_layer("TransformerEncoderLayer", kFloat32, nn::TransformerEncoderLayer(8, 2, {.dropout = 0}), b);
  check_layer("TransformerBlock", kFloat32, nn::TransformerBlock(8, {.heads = 2}), b);
  check_layer("MoE", kBFloat16, nn::MoE(8, {.hidden = 6}), b);
  check_layer("CNN", kBFloat16,
              nn::Sequential(nn::Conv2d(3, 4, 3, {.padding = 1}), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2),
                             nn::ConvTranspose2d(4, 2, 2)),
              image);
  check_layer("Embedding", kFloat32, nn::Embedding(9, 4), tensor({1, 2}));
}

// A body is differentiated where it is captured. inner is a product that Autocast leaves f32, and so is its gradient.
TEST(Autocast, GradientsInsideBodiesHaveTheDtypesOfTheForwardOps) {
  const Tensor x = randn({3, 5, 8}), w = randn({4, 8});
  const auto gradients = vmap([&](const Tensor& t) { return grad(sum(sin(inner(t, w))), std::vector<Tensor>{t})[0]; });
  const Tensor need = gradients(x);
  const Autocast scope(kBFloat16);
  const Tensor got = gradients(x);
  EXPECT_EQ(got.dtype(), kFloat32);
  EXPECT_TRUE(testing::same_bits(got, need));
}

// A product of square matrices without a kernel.
const CustomOp& own_product() {
  static const CustomOp op{{
      .name = "test.own_product",
      .num_inputs = 2,
      .infer = [](const InferCall& c) { return Types{c.in[0]}; },
      .vjp =
          [](const VjpCall& c) {
            return Grads{matmul(c.grad[0], c.in[1].t()), matmul(c.in[0].t(), c.grad[0])};
          },
      .decompose = [](const Attrs&, std::span<const Tensor> in) { return std::vector<Tensor>{matmul(in[0], in[1])}; },
  }};
  return op;
}

// The body has a gradient, so the op is decomposed where the body is captured, under Autocast.
TEST(Autocast, OwnOpsInsideBodiesKeepTheirDtypes) {
  const Tensor x = randn({3, 4, 4});
  const auto gradients = vmap([](const Tensor& t) {
    return grad(sum(square(own_product()({t, t}))), std::vector<Tensor>{t})[0];
  });
  const Tensor need = gradients(x);
  const Autocast scope(kBFloat16);
  const Tensor got = gradients(x);
  EXPECT_EQ(got.dtype(), kFloat32);
  EXPECT_TRUE(testing::same_bits(got, need));
}

TEST(Autocast, AnotherDtypeIsAnError) {
  testing::expect_error([] { compile([](const Tensor& x) { return x; }, {.autocast = kFloat32}); },
                        "autocast: got f32; need bf16 or f16");
}

}  // namespace
}  // namespace weft
