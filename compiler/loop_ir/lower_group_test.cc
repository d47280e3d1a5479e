// Groups of every kind, lowered and run by the interpreter, give the same bits as eager mode.
#include "compiler/loop_ir/lower_group.h"

#include <gtest/gtest.h>

#include "compiler/loop_ir/testing/run_lowered.h"
#include "compiler/passes/lower.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::loop_ir {
namespace {

using testing::same_bits;

struct Ran {
  Lowered low;
  std::vector<Tensor> got, want;
};

Ran run(const TensorFn& fn, const std::vector<Tensor>& in, const LowerOptions& options = {.round_like_eager = true}) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  Ref<Graph> g = internal::lower(*capture_graph(fn, types));
  Ran r;
  const std::string why = cannot_lower(*g);
  EXPECT_EQ(why, "") << g->to_string();
  if (!why.empty()) return r;
  std::vector<ValueLayout> li, lo;
  std::vector<StridedView> vi, vo;
  for (const Tensor& t : in) {
    li.push_back({t.type(), t.strides()});
    vi.push_back(t.view_for_kernel());
  }
  for (Value v : g->outputs) {
    r.got.push_back(Tensor::empty(g->type(v)));
    lo.push_back({g->type(v), contiguous_strides(g->type(v).shape)});
    vo.push_back(r.got.back().view_for_kernel());
  }
  r.low = lower_group(*g, li, lo, options);
  r.low.kernel.verify();
  run_lowered(r.low, vi, vo);
  NoGrad guard;
  r.want = interpret(*g, in);
  return r;
}

void check(const TensorFn& fn, const std::vector<Tensor>& in, Mode mode, int axes) {
  Ran r = run(fn, in);
  for (size_t i = 0; i < r.got.size(); ++i)
    EXPECT_TRUE(same_bits(r.got[i], r.want[i])) << "result " << i << "\n" << r.low.kernel.to_string();
  EXPECT_EQ(r.low.kernel.mode, mode) << r.low.kernel.to_string();
  EXPECT_EQ(r.low.kernel.axes, axes) << r.low.kernel.to_string();
}

Tensor normal(Shape shape, DType dtype = kFloat32) {
  static int seed = 0;
  manual_seed(++seed);
  return randn(shape).to(dtype);
}

using Args = std::span<const Tensor>;

TEST(LowerGroup, ElementwiseChainsBecomeOneAxis) {
  check([](Args x) { return std::vector{gelu(x[0], "tanh") * x[1]}; }, {normal({5, 7, 33}), normal({5, 7, 33})},
        Mode::kRows, 1);
  check([](Args x) { return std::vector{x[0] * 2.5 + 1.0, exp(x[0])}; }, {normal({100})}, Mode::kRows, 1);
  check([](Args x) { return std::vector{where(x[0] > 0.0, x[0], x[0] * 0.1)}; }, {normal({3, 19})}, Mode::kRows, 1);
  check([](Args x) { return std::vector{sqrt(x[0] * x[0] + 1.0) * 0.3}; }, {normal({})}, Mode::kRows, 1);
}

TEST(LowerGroup, BroadcastsAndViewsBecomeIndexMaps) {
  check([](Args x) { return std::vector{x[0] * x[1] + x[2]}; }, {normal({6, 5, 17}), normal({17}), normal({5, 1})},
        Mode::kRows, 3);
  check([](Args x) { return std::vector{exp(x[0]).transpose(0, 1) + x[1]}; }, {normal({33, 20}), normal({20, 33})},
        Mode::kRows, 2);
  check(
      [](Args x) {
        return std::vector{(x[0] + 1.0).reshape({4, 6, 10}) * x[1]};
      },
      {normal({24, 10}), normal({6, 10})}, Mode::kRows, 2);
  // Heads sliced from one matrix, as attention does.
  check(
      [](Args x) {
        Tensor y = (x[0] * 0.5).reshape({2, 8, 3, 4, 16}).slice(2, 1, 2).reshape({2, 8, 4, 16});
        return std::vector{y.permute({0, 2, 1, 3}) + x[1]};
      },
      {normal({2, 8, 192}), normal({2, 4, 8, 16})}, Mode::kRows, 4);
  // A strided operand.
  check([](Args x) { return std::vector{x[0] + x[1]}; }, {normal({20, 33}).transpose(0, 1), normal({33, 20})},
        Mode::kRows, 2);
  check([](Args x) { return std::vector{x[0] + 1.0}; }, {normal({20, 33}).transpose(0, 1)}, Mode::kRows, 2);
}

// The axis along which the transposed operand is contiguous becomes the last outer axis, wherever it was before.
TEST(LowerGroup, TransposedOperandsAreReadByTiles) {
  const TensorFn add = [](Args x) { return std::vector{x[0].permute({2, 1, 0}) + x[1]}; };
  const std::vector<Tensor> in = {normal({40, 3, 70}), normal({70, 3, 40})};
  check(add, in, Mode::kRows, 3);
  int transposed = 0;
  const Kernel kernel = run(add, in).low.kernel;
  for (const Operand& o : kernel.operands)
    transposed += o.strides[2] == StrideKind::kAny && o.strides[1] == StrideKind::kUnit;
  EXPECT_EQ(transposed, 1) << kernel.to_string();
}

TEST(LowerGroup, MasksFromPositionsAreNeverInMemory) {
  check(
      [](Args x) {
        Tensor q = arange(9).reshape({9, 1}), k = arange(40);
        return std::vector{where(q >= k, x[0] * 0.125, -std::numeric_limits<double>::infinity())};
      },
      {normal({3, 9, 40})}, Mode::kRows, 3);
}

// A position along the lanes, one along the rows and two numbers, added with any signs and any grouping: only one sum
// stays in the loop.
TEST(LowerGroup, SumsOfIntegersAddFirstWhatStaysTheSame) {
  for (DType type : {kInt64, kInt32})
    for (int n = 0; n < 64; ++n) {
      SCOPED_TRACE(n);
      Ran r = run(
          [&](Args x) {
            const Tensor kv = arange(40).to(type).reshape({1, 40}), q = arange(9).to(type).reshape({9, 1});
            auto join = [](bool minus, bool swap, const Tensor& a, const Tensor& b) {
              const Tensor &left = swap ? b : a, &right = swap ? a : b;
              return minus ? left - right : left + right;
            };
            return std::vector{join(n & 1, n & 2, join(n & 4, n & 8, join(n & 16, n & 32, kv, x[0]), q), x[1])};
          },
          {full({1, 1}, 1000, {.dtype = type}), full({1, 1}, -77, {.dtype = type})});
      EXPECT_TRUE(same_bits(r.got[0], r.want[0])) << r.low.kernel.to_string();
      int sums = 0;
      for (const Instr& i : r.low.kernel.instrs) sums += i.op == Op::kPw && i.level == Level::kBoth;
      EXPECT_LE(sums, 1) << r.low.kernel.to_string();
    }
}

TEST(LowerGroup, RowReductions) {
  for (int64_t n : {1, 5, 16, 17, 1000, 1024, 1025, 5000}) {
    SCOPED_TRACE(n);
    check([](Args x) { return std::vector{softmax(x[0], -1)}; }, {normal({3, 4, n + 1})}, Mode::kRows, 2);
    check([](Args x) { return std::vector{logsumexp(x[0], 1)}; }, {normal({7, n + 1})}, Mode::kRows, 2);
  }
  check([](Args x) { return std::vector{rms_norm(x[0] + x[1], {96}, x[2])}; },
        {normal({2, 6, 96}), normal({2, 6, 96}), normal({96})}, Mode::kRows, 2);
  check([](Args x) { return std::vector{layer_norm(x[0], {77}, x[1], x[2])}; },
        {normal({12, 77}), normal({77}), normal({77})}, Mode::kRows, 2);
  check([](Args x) { return std::vector{sum(x[0] * x[0], {1, 2})}; }, {normal({9, 4, 50})}, Mode::kRows, 2);
  check([](Args x) { return std::vector{mean(exp(x[0]), {-1}, true), x[0] * 2.0}; }, {normal({9, 50})}, Mode::kRows, 2);
}

TEST(LowerGroup, NormBackwardGivesRowsAndColumnsAtOnce) {
  for (int64_t rows : {2, 16, 17, 1500}) {
    SCOPED_TRACE(rows);
    check(
        [](Args x) {
          const Tensor &a = x[0], &w = x[1];
          Tensor r = rsqrt(mean(a * a, {-1}, true) + 1e-5);
          Tensor g = x[2] * w, h = a * r;
          Tensor dx = (g - h * mean(g * h, {-1}, true)) * r;
          return std::vector{dx, sum(x[2] * h, {0})};
        },
        {normal({rows, 48}), normal({48}), normal({rows, 48})}, Mode::kRows, 2);
  }
}

TEST(LowerGroup, ColumnSumsBesideElementwise) {
  check(
      [](Args x) {
        Tensor y = x[0] * x[1];
        return std::vector{y, sum(y, {0, 1})};
      },
      {normal({30, 70, 33}), normal({30, 70, 33})}, Mode::kRows, 2);
  check([](Args x) { return std::vector{sum(exp(x[0]), {0})}; }, {normal({2100, 40})}, Mode::kRows, 2);
}

TEST(LowerGroup, ReductionsAcrossLanes) {
  check([](Args x) { return std::vector{softmax(x[0], 0)}; }, {normal({37, 50})}, Mode::kAcross, 2);
  check([](Args x) { return std::vector{softmax(x[0], 1)}; }, {normal({3, 37, 50})}, Mode::kAcross, 3);
  // Products in log space: the three-dimensional sum is never in memory.
  check([](Args x) { return std::vector{logsumexp(x[0].unsqueeze(-1) + x[1].unsqueeze(0), 1)}; },
        {normal({20, 33}), normal({33, 41})}, Mode::kAcross, 3);
  check([](Args x) { return std::vector{sum(abs(x[0].unsqueeze(-1) - x[1].unsqueeze(0)), {1})}; },
        {normal({20, 33}), normal({33, 41})}, Mode::kAcross, 3);
  check([](Args x) { return std::vector{sum(x[0] + x[1], {0})}; }, {normal({4, 30, 40}), normal({30, 40})},
        Mode::kAcross, 2);
}

TEST(LowerGroup, AFullReductionIsSplit) {
  check([](Args x) { return std::vector{sum(x[0] * x[0])}; }, {normal({70, 1000})}, Mode::kSplit, 1);
  check([](Args x) { return std::vector{amax(abs(x[0]), {0, 1})}; }, {normal({70, 1001})}, Mode::kSplit, 1);
  // Operands that do not see all axes as one: lanes are the last axes, in whole blocks, and rows before them are joined.
  check([](Args x) { return std::vector{sum(x[0] * x[1])}; }, {normal({20, 1}), normal({1, 2048})}, Mode::kSplit, 2);
  check(
      [](Args x) {
        return std::vector{sum(x[0] * x[1], {1, 2}), amax(x[0] - x[1], {1, 2})};
      },
      {normal({2, 20, 1}), normal({1, 1, 2048})}, Mode::kSplit, 3);
  check([](Args x) { return std::vector{sum(exp(x[0] + x[1]))}; }, {normal({9, 4096}), normal({4096})}, Mode::kSplit,
        2);
  const std::vector<TensorType> odd{{kFloat32, Device::cpu(), {40, 1}}, {kFloat32, Device::cpu(), {1, 1000}}};
  EXPECT_EQ(cannot_lower(*internal::lower(*capture_graph([](Args x) { return std::vector{sum(x[0] * x[1])}; }, odd))),
            "the layout of an operand does not allow its loop axes to merge");
}

TEST(LowerGroup, SixteenBitsRoundWhereEagerDoesIfAsked) {
  const TensorFn fn = [](Args x) { return std::vector{(x[0] * x[1] + x[0]) * x[1]}; };
  const std::vector<Tensor> in{normal({4, 65}, kBFloat16), normal({4, 65}, kBFloat16)};
  check(fn, in, Mode::kRows, 1);
  Ran fast = run(fn, in, {});
  EXPECT_FALSE(same_bits(fast.got[0], fast.want[0]));
  EXPECT_EQ(fast.low.rounds_less.size(), 2u);
  check([](Args x) { return std::vector{softmax(x[0].to(kFloat32), -1).to(kBFloat16)}; }, {normal({4, 65}, kBFloat16)},
        Mode::kRows, 2);
}

TEST(LowerGroup, AnOptimiserStepOverwritesItsState) {
  Ran r = run(
      [](Args x) {
        Tensor m = x[1] * 0.9 + x[3] * 0.1, v = x[2] * 0.95 + x[3] * x[3] * 0.05;
        return std::vector{x[0] - m / (sqrt(v) + 1e-8) * x[4], m, v};
      },
      {normal({8, 30}), normal({8, 30}), normal({8, 30}).square(), normal({8, 30}), normal({})});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(r.got[i], r.want[i]));
    EXPECT_TRUE(r.low.may_overwrite(i, i));
  }
  EXPECT_FALSE(r.low.may_overwrite(4, 0));
}

TEST(LowerGroup, RowsReadAfterTheyWereWrittenAreNotOverwritten) {
  Ran r = run([](Args x) { return std::vector{softmax(x[0], -1), x[0] + 1.0}; }, {normal({8, 30})});
  EXPECT_TRUE(r.low.may_overwrite(0, 0));
  EXPECT_FALSE(r.low.may_overwrite(0, 1));
}

TEST(LowerGroup, WhatIsReadAfterAnotherResultWasWrittenIsNotOverwrittenByIt) {
  Ran r = run(
      [](Args x) {
        return std::vector{x[0] + 1.0, x[1] * x[0], x[1] + 2.0};
      },
      {normal({8, 30}), normal({8, 30})});
  EXPECT_TRUE(r.low.may_overwrite(0, 0));
  EXPECT_FALSE(r.low.may_overwrite(1, 0));
  EXPECT_TRUE(r.low.may_overwrite(1, 2));
}

TEST(LowerGroup, TextDoesNotDependOnExtentsOrConstants) {
  auto text = [](int64_t rows, int64_t n) {
    return run([](Args x) { return std::vector{layer_norm(x[0], {x[0].size(-1)}, x[1], x[2])}; },
               {normal({rows, n}), normal({n}), normal({n})})
        .low.kernel.to_string(false);
  };
  EXPECT_EQ(text(4, 48), text(9, 2000));
}

TEST(LowerGroup, SaysWhyNot) {
  auto why = [](const TensorFn& fn, std::vector<Tensor> in) {
    std::vector<TensorType> types;
    for (const Tensor& t : in) types.push_back(t.type());
    return cannot_lower(*capture_graph(fn, types));
  };
  EXPECT_EQ(why([](Args x) { return std::vector{cumsum(x[0], 0)}; }, {normal({8})}),
            "cumsum of f32 has no generated code");
  EXPECT_EQ(why(
                [](Args x) {
                  return std::vector{sum(x[0], {0}), sum(x[0], {1}) + 1.0, sum(x[0], {0}) * 2.0};
                },
                {normal({80, 30})}),
            "its reductions run over different axes");
  EXPECT_EQ(why(
                [](Args x) {
                  return std::vector{sum(x[0], {0, 2})};
                },
                {normal({8, 9, 10})}),
            "it reduces axes that are not adjacent");
  EXPECT_EQ(why([](Args x) { return std::vector{exp(x[0]) / sum(exp(x[0]))}; }, {normal({80, 3000})}),
            "its rows are few and long: the ops after the sum wait for the whole sum");
}

}  // namespace
}  // namespace weft::loop_ir
