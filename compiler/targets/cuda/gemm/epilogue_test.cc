// Bodies that are epilogues of cuBLASLt, in any spelling, and bodies that are none. A recognised epilogue computes the
// body.
#include "compiler/targets/cuda/gemm/epilogue.h"

#include <gtest/gtest.h>

#include <functional>

#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using Inputs = std::span<const Tensor>;
using Body = std::function<std::vector<Tensor>(Inputs)>;

// x[0] [6, 4], x[1] [4, 8], x[2] bias [8], x[3] and x[4] [6, 8], x[5] bias [8] in f32.
std::optional<LtEpilogue> match(DType t, const Body& body, bool round_like_eager = false) {
  const std::vector<TensorType> types{{t, Device::cpu(), {6, 4}}, {t, Device::cpu(), {4, 8}},
                                      {t, Device::cpu(), {8}},    {t, Device::cpu(), {6, 8}},
                                      {t, Device::cpu(), {6, 8}}, {kFloat32, Device::cpu(), {8}}};
  const Ref<Graph> g = capture_graph(body, types);
  for (int32_t i = 0; i < g->size(); ++i)
    if (g->node(i).op == &dot_op) return match_epilogue(*g, i, round_like_eager);
  ADD_FAILURE() << "no dot";
  return {};
}

Tensor product(Inputs x) { return mm(x[0], x[1]); }

TEST(Epilogue, KindsAndOperands) {
  auto e = match(kFloat32, [](Inputs x) { return std::vector{product(x)}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->kind, MatmulEpilogue::none);
  EXPECT_EQ(e->alpha, 1);
  EXPECT_EQ(e->beta, 0);
  e = match(kFloat32, [](Inputs x) { return std::vector{product(x) + x[2]}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->kind, MatmulEpilogue::bias);
  EXPECT_EQ(e->bias, 2);
  EXPECT_EQ(e->c, -1);
  e = match(kFloat32, [](Inputs x) { return std::vector{x[3] + product(x)}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->kind, MatmulEpilogue::none);
  EXPECT_EQ(e->c, 3);
  EXPECT_EQ(e->beta, 1);
  e = match(kFloat32, [](Inputs x) { return std::vector{product(x) * 0.125}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->alpha, 0.125);
  e = match(kFloat32, [](Inputs x) { return std::vector{product(x) / 3.0}; });  // f32 cannot represent 1/3
  EXPECT_TRUE(!e || std::abs(e->alpha * 3 - 1) < 1e-12);
}

TEST(Epilogue, SixteenBitsMayRoundLess) {
  for (DType t : {kBFloat16, kFloat16}) {
    auto e = match(t, [](Inputs x) { return std::vector{(product(x) + x[2]) * 2.0 + x[3] * 0.5 - x[2]}; });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->alpha, 2);
    EXPECT_EQ(e->beta, 0.5);
    EXPECT_EQ(e->bias, 2);
    e = match(t, [](Inputs x) { return std::vector{gelu(product(x) + x[2], "tanh")}; });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->kind, MatmulEpilogue::gelu_bias);
    // Written by hand.
    e = match(t, [](Inputs x) {
      const Tensor p = product(x);
      return std::vector{p * 0.5 * (tanh((p + p * p * p * 0.044715) * 0.7978845608028654) + 1.0)};
    });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->kind, MatmulEpilogue::gelu);
    e = match(t, [](Inputs x) {
      const Tensor p = product(x);
      return std::vector{gelu(p, "tanh"), p};
    });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->kind, MatmulEpilogue::gelu_aux);
    EXPECT_EQ(e->output, 0);
    EXPECT_EQ(e->aux_output, 1);
    const Body backward = [](Inputs x) {
      const Tensor u = x[3], s = sigmoid(u * (square(u) * 0.07135481627260025 + 1.5957691216057308));
      const Tensor slope = s + u * s * (1.0 - s) * (square(u) * (3 * 0.07135481627260025) + 1.5957691216057308);
      const Tensor g = product(x) * slope;
      return std::vector{g, g.sum({0})};
    };
    e = match(t, backward);
    ASSERT_TRUE(e);
    EXPECT_EQ(e->kind, MatmulEpilogue::dgelu_bias_grad);
    EXPECT_EQ(e->aux_input, 3);
    EXPECT_EQ(e->bias_output, 1);
    // Its sums have the dtype of the result.
    EXPECT_FALSE(match(t, [&](Inputs x) {
      const Tensor g = backward(x)[0];
      return std::vector{g, cast(g, kFloat32).sum({0})};
    }));
    e = match(t, [&](Inputs x) { return std::vector{backward(x)[0]}; });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->kind, MatmulEpilogue::dgelu);
  }
}

// The bias of a layer whose parameters are f32.
TEST(Epilogue, BiasThatTheBodyCasts) {
  auto e = match(kBFloat16, [](Inputs x) { return std::vector{product(x) + cast(x[5], kBFloat16)}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->kind, MatmulEpilogue::bias);
  EXPECT_EQ(e->bias, 5);
  e = match(kBFloat16, [](Inputs x) { return std::vector{gelu(product(x) + cast(x[5], kBFloat16), "tanh")}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->kind, MatmulEpilogue::gelu_bias);
  EXPECT_FALSE(match(kBFloat16, [](Inputs x) { return std::vector{cast(product(x) + x[5], kBFloat16)}; }));
}

TEST(Epilogue, Batches) {
  const std::vector<TensorType> types{{kBFloat16, Device::cpu(), {3, 6, 4}},
                                      {kBFloat16, Device::cpu(), {3, 4, 8}},
                                      {kBFloat16, Device::cpu(), {8}},
                                      {kBFloat16, Device::cpu(), {3, 6, 8}}};
  auto match_batch = [&](const Body& body) {
    const Ref<Graph> g = capture_graph(body, types);
    int32_t dot = 0;
    while (g->node(dot).op != &dot_op) ++dot;
    return match_epilogue(*g, dot, false);
  };
  auto e = match_batch([](Inputs x) { return std::vector{bmm(x[0], x[1]) + x[2]}; });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->kind, MatmulEpilogue::bias);
  // Each product of a batch would have separate sums.
  EXPECT_FALSE(match_batch([](Inputs x) {
    const Tensor y = bmm(x[0], x[1]);
    return std::vector{y, y.sum({0, 1})};
  }));
}

TEST(Epilogue, BitsThatMustNotChange) {
  for (bool eager : {false, true})
    for (DType t : {kFloat32, kBFloat16}) {
      if (t == kBFloat16 && !eager) continue;
      EXPECT_FALSE(match(
          t, [](Inputs x) { return std::vector{gelu(product(x), "tanh")}; }, eager));
      EXPECT_FALSE(match(
          t, [](Inputs x) { return std::vector{(product(x) + x[2]) + x[3]}; }, eager));
      EXPECT_FALSE(match(
          t, [](Inputs x) { return std::vector{product(x) * 2.0 + x[2]}; }, eager));
      EXPECT_TRUE(match(
          t, [](Inputs x) { return std::vector{product(x)}; }, eager));
    }
  EXPECT_FALSE(match(
      kBFloat16, [](Inputs x) { return std::vector{product(x) + x[2]}; }, true));
}

TEST(Epilogue, WhatIsNone) {
  auto none = [](const Body& body) { EXPECT_FALSE(match(kBFloat16, body)); };
  none([](Inputs x) { return std::vector{gelu(product(x))}; });  // gelu by erf
  none([](Inputs x) { return std::vector{silu(product(x))}; });
  none([](Inputs x) { return std::vector{relu(product(x))}; });
  none([](Inputs x) { return std::vector{product(x) * x[3]}; });
  none([](Inputs x) { return std::vector{product(x) * x[2]}; });
  none([](Inputs x) { return std::vector{product(x) + x[3] + x[4]}; });
  none([](Inputs x) { return std::vector{product(x) + 1.0}; });
  none([](Inputs x) { return std::vector{product(x).sum({0})}; });
  none([](Inputs x) { return std::vector{transpose(product(x), 0, 1)}; });
  none([](Inputs x) { return std::vector{product(x) + slice(x[3], 0, 0, 1)}; });
  none([](Inputs x) { return std::vector{product(x), product(x) + x[3]}; });
}

}  // namespace
}  // namespace weft::cuda
