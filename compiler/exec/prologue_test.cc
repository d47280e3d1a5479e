// Operands of products computed while they are packed: the bits of the ops one by one, for any layout, dims and number
// of threads; and the memory that a training step keeps for a value that two products can compute.
#include "compiler/loop_ir/prologue.h"

#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::lowered_body;
using testing::normal;
using Args = std::span<const Tensor>;
using Tensors = std::vector<Tensor>;

void check(const TensorFn& fn, const Tensors& in) {
  EXPECT_EQ(loop_ir::cannot_lower(*lowered_body(fn, in)), "");
  EXPECT_TRUE(loop_ir::take_apart(*lowered_body(fn, in)));
  testing::expect_fused_bits(fn, in, {1, 3});
}

TEST(Prologue, EitherOperandEitherWayRound) {
  for (DType t : {kFloat32, kBFloat16})
    for (auto [m, n, k] : {std::array<int64_t, 3>{17, 20, 40}, {300, 520, 64}, {130, 96, 700}, {64, 16, 1100}}) {
      SCOPED_TRACE(str_cat(t, " ", m, " ", n, " ", k));
      check([](Args x) { return Tensors{matmul(gelu(x[0], "tanh"), x[1])}; }, {normal({m, k}, t), normal({k, n}, t)});
      check([](Args x) { return Tensors{matmul(x[0], exp(x[1]) * x[2]) + x[3]}; },
            {normal({m, k}, t), normal({k, n}, t), normal({n}, t), normal({m, n}, t)});
      check([](Args x) { return Tensors{matmul((x[0] * x[1]).transpose(0, 1), relu(x[2]))}; },
            {normal({k, m}, t), normal({k, 1}, t), normal({k, n}, t)});
      check([](Args x) { return Tensors{matmul(x[0], sigmoid(x[1]).transpose(0, 1)) * x[2]}; },
            {normal({m, k}, t), normal({n, k}, t), normal({m, n}, t)});
    }
}

TEST(Prologue, BatchesMasksAndInterleavedHeads) {
  const int64_t B = 3, H = 2, T = 40, D = 24;
  check(
      [&](Args x) {
        const Tensor p = where(x[3], exp(x[0] - x[1]) / x[2], 0.0);
        return Tensors{matmul(p, x[4])};
      },
      {normal({B, H, T, T}), normal({B, H, T, 1}), normal({B, H, T, 1}), normal({T, T}) > 0.0, normal({B, H, T, D})});
  check([&](Args x) { return Tensors{matmul((exp(x[0] - x[1])).transpose(-1, -2), x[2])}; },
        {normal({B, H, T, T}), normal({B, H, T, 1}), normal({B, H, T, D})});
  // Rows of the operand are the lines of [B, T, H, D] that heads share.
  check([&](Args x) { return Tensors{matmul((x[0] * x[1]).transpose(1, 2), x[2])}; },
        {normal({B, T, H, D}), normal({B, T, H, 1}), normal({B, H, D, 9})});
  check(
      [&](Args x) {
        return Tensors{matmul((x[0] + x[1]).reshape({B * T, H * D}), x[2])};
      },
      {normal({B, T, H, D}), normal({H, 1}), normal({H * D, 33})});
  // Operands that are transposed in memory.
  check([&](Args x) { return Tensors{matmul(tanh(x[0]), x[1])}; }, {normal({D, T}).transpose(0, 1), normal({D, 33})});
}

TEST(Prologue, WhatProductsCannotTakeInPieces) {
  auto why = [](const TensorFn& fn, const Tensors& in) { return loop_ir::cannot_lower(*lowered_body(fn, in)); };
  auto rows = [](Args x) { return Tensors{matmul(exp(x[0]), x[1])}; };
  EXPECT_NE(why(rows, {normal({3, 64}), normal({64, 64})}), "");  // streamed: another order of sums
  EXPECT_NE(why(rows, {normal({16, 128}), normal({128, 64})}), "");
  EXPECT_EQ(why(rows, {normal({17, 128}), normal({128, 64})}), "");
  EXPECT_EQ(why(rows, {normal({16, 127}), normal({127, 64})}), "");  // short sums are packed
  EXPECT_NE(why(rows, {normal({30, 64}), normal({64, 1})}), "");
  EXPECT_NE(why(rows, {normal({30, 64}, kFloat64), normal({64, 30}, kFloat64)}), "");
  EXPECT_NE(why([](Args x) { return Tensors{matmul(softmax(x[0], -1), x[1])}; }, {normal({30, 64}), normal({64, 30})}),
            "");
}

TEST(Prologue, FewRowsKeepTheirBitsForEitherLayout) {
  const auto fn = [](Tensor x, Tensor up, Tensor down) {
    return matmul(gelu(matmul(x * 0.5, sigmoid(up).transpose(0, 1)), "tanh"), tanh(down));
  };
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t rows : {1, 4, 5, 16, 17}) {
      const Tensor x = normal({rows, 160}, t), up = normal({144, 160}, t), down = normal({144, 40}, t);
      auto step = compile(fn, {.numerics = "eager"});
      EXPECT_TRUE(testing::same_bits(step(x, up, down), fn(x, up, down))) << rows << " " << t;
    }
}

// gelu and the norm's result are read by two products each, and are written if there is memory for them.
TEST(Prologue, TrainingStepsKeepWhatProductsComputeIfTheBudgetAllows) {
  const int64_t rows = 512, dim = 64, hidden = 256, layers = 4;
  auto make = [&] {
    testing::Program p;
    const Parameter norm(TensorType{kFloat32, {}, {dim}}, [=] { return ones({dim}); });
    const Parameter up(TensorType{kFloat32, {}, {dim, hidden}}, [=] { return randn({dim, hidden}) * 0.1; });
    const Parameter down(TensorType{kFloat32, {}, {hidden, dim}}, [=] { return randn({hidden, dim}) * 0.1; });
    for (const Parameter& c : {norm, up, down}) p.cells.push_back(c);
    p.step = [=](Tensors in) {
      Tensor x = in[0];
      for (int64_t i = 0; i < layers; ++i) x = x + matmul(gelu(matmul(rms_norm(x, {dim}, norm), up), "tanh"), down);
      const Tensor loss = mean(square(x));
      const Tensors g = grad(loss, std::vector<Parameter>{norm, up, down});
      for (size_t i = 0; i < 3; ++i) p.cells[i].set(CellHandle(p.cells[i]).value() - 0.01 * g[i]);
      return Tensors{loss};
    };
    return p;
  };
  const std::vector<Tensors> in = {{normal({rows, dim})}, {normal({rows, dim})}};
  const testing::RunResult usual = testing::expect_same_everywhere(make, in);
  const int64_t budget = usual.stats.planned_peak_bytes - (layers - 1) * rows * (hidden + dim) * 4;
  const testing::RunResult little = testing::run_program(make, in, "compiled", {.memory_budget = budget});
  EXPECT_LE(little.stats.planned_peak_bytes, budget);
  for (size_t i = 0; i < usual.cells.size(); ++i) EXPECT_TRUE(testing::same_bits(little.cells[i], usual.cells[i])) << i;
}

}  // namespace
}  // namespace weft
