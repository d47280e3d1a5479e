// Tests flex_attention: in f64 against independent loops and against central differences; in f32, bf16 and f16 against
// the f64 form, within bounds that are derived from the roundings.
#include "ops/attention/flex_attention.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/generator.h"
#include "framework/testing/gradcheck.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::Random;
using testing::random_tensor;
using testing::Real;
using testing::unit_roundoff;

struct Sizes {
  int64_t b = 2, hq = 4, hkv = 2, sq = 33, skv = 47, d = 8, dv = 5, kv_batch = 2;
};

std::vector<Tensor> operands(const Sizes& s, DType t, uint64_t seed) {
  Random random(seed);
  return {random_tensor(t, {s.b, s.hq, s.sq, s.d}, random, -1, 1),
          random_tensor(t, {s.kv_batch, s.hkv, s.skv, s.d}, random, -1, 1),
          random_tensor(t, {s.kv_batch, s.hkv, s.skv, s.dv}, random, -1, 1)};
}

FlexAttentionOptions with(ScoreMod score, MaskMod mask, double dropout = 0) {
  return {.score_mod = std::move(score),
          .mask_mod = std::move(mask),
          .scale = 0.4,
          .enable_gqa = true,
          .dropout_p = dropout};
}

const MaskMod kCausal = [](Index, Index, Index q, Index kv) { return q >= kv; };
// Queries 3 and 20 see nothing, the others every third key.
const MaskMod kHoles = [](Index, Index h, Index q, Index kv) {
  return ne(q, 3) & ne(q, 20) & (remainder(kv + q + h, 3) == 0);
};

TEST(FlexAttention, IsWhatLoopsCompute) {
  const Sizes s;
  const std::vector<Tensor> x = operands(s, kFloat64, 1);
  Random random(2);
  const Tensor bias = random_tensor(kFloat64, {s.hq, s.sq + s.skv}, random);
  const AttentionResult got = flex_attention_aux(
      x[0], x[1], x[2], with([&](const Score& c) { return c.value * 1.5 + bias[c.h][c.q - c.kv + s.skv]; }, kHoles));
  const std::vector<Real> q = testing::to_reals(x[0]), k = testing::to_reals(x[1]), v = testing::to_reals(x[2]),
                          table = testing::to_reals(bias);
  std::vector<Real> out, lse, top;
  for (int64_t b = 0; b < s.b; ++b)
    for (int64_t h = 0; h < s.hq; ++h)
      for (int64_t i = 0; i < s.sq; ++i) {
        const int64_t kv = b * s.hkv + h / (s.hq / s.hkv);
        std::vector<Real> p;
        Real sum = 0, most = -std::numeric_limits<Real>::infinity();
        for (int64_t j = 0; j < s.skv; ++j) {
          Real dot = 0;
          for (int64_t d = 0; d < s.d; ++d)
            dot += q[((b * s.hq + h) * s.sq + i) * s.d + d] * k[(kv * s.skv + j) * s.d + d];
          const bool seen = i != 3 && i != 20 && (i + j + h) % 3 == 0;
          const Real score = dot * 0.4 * 1.5 + table[h * (s.sq + s.skv) + i - j + s.skv];
          p.push_back(seen ? std::exp(score) : 0);
          if (seen) most = std::max(most, score);
          sum += p.back();
        }
        for (int64_t d = 0; d < s.dv; ++d) {
          Real y = 0;
          for (int64_t j = 0; j < s.skv && sum > 0; ++j) y += p[j] / sum * v[(kv * s.skv + j) * s.dv + d];
          out.push_back(y);
        }
        lse.push_back(std::log(sum));
        top.push_back(most);
      }
  EXPECT_TRUE(testing::close(got.out, out, kFloat64, 200));
  for (const auto& [t, want] : {std::pair{got.lse, lse}, {got.max_scores, top}}) {
    const std::vector<Real> g = testing::to_reals(t);
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isinf(want[i])) {
        EXPECT_EQ(g[i], want[i]) << i;
      } else {
        EXPECT_NEAR(g[i], want[i], 1e-13) << i;
      }
    }
  }
}

TEST(FlexAttention, DerivativesInF64AreCentralDifferences) {
  const Sizes s{.b = 1, .hq = 2, .hkv = 1, .sq = 7, .skv = 9, .d = 3, .dv = 2, .kv_batch = 1};
  std::vector<Tensor> x = operands(s, kFloat64, 3);
  Random random(4);
  x.push_back(random_tensor(kFloat64, {2}, random));
  x.push_back(random_tensor(kFloat64, {s.sq + s.skv}, random));
  auto fn = [&](std::span<const Tensor> in) {
    const Tensor slope = in[3], bias = in[4];
    const AttentionResult r = flex_attention_aux(
        in[0], in[1], in[2],
        with([&](const Score& c) { return tanh(c.value) * slope[c.h] + bias[c.q - c.kv + 9] * bias[c.kv]; }, kCausal));
    return std::vector<Tensor>{r.out, r.lse};
  };
  EXPECT_TRUE(testing::gradcheck(fn, x));
}

using MakeOptions = std::function<FlexAttentionOptions(std::span<const Tensor> tables)>;

std::vector<Tensor> run(const std::vector<Tensor>& x, const std::vector<Tensor>& tables, const MakeOptions& options) {
  std::vector<Tensor> in, t;
  for (const Tensor& v : x) in.push_back(v.requires_grad());
  for (const Tensor& v : tables) t.push_back(is_floating(v.dtype()) ? v.requires_grad() : v);
  const AttentionResult r = flex_attention_aux(in[0], in[1], in[2], options(t));
  // Weights that differ from element to element, so that nothing cancels.
  const DType wide = x[0].dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor w = cos(reshape(arange(r.out.numel(), {.dtype = wide}), r.out.shape()));
  const Tensor u = sin(reshape(arange(r.lse.numel(), {.dtype = wide}), r.lse.shape()));
  const Tensor counted = where(isfinite(r.lse), r.lse * u, 0.0);
  const Tensor loss = sum(cast(r.out, wide) * w) + sum(counted);
  std::vector<Tensor> wrt = in, out{r.out, r.lse};
  for (const Tensor& v : t)
    if (is_floating(v.dtype())) wrt.push_back(v);
  for (const Tensor& g : grad(loss, wrt)) out.push_back(g);
  return out;
}

/// |got - want| <= roundings * u * magnitude + one rounding of the result's dtype, by the largest magnitude.
void expect_close(const Tensor& got, const Tensor& want, double bound, const char* what) {
  const std::vector<Real> g = testing::to_reals(got), w = testing::to_reals(want);
  ASSERT_EQ(g.size(), w.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    if (std::isinf(w[i]) || std::isnan(w[i])) {
      ASSERT_EQ(g[i], w[i]) << what << " " << i;
      continue;
    }
    const double error = std::abs(static_cast<double>(g[i] - w[i]));
    const double allowed = bound + unit_roundoff(got.dtype()) * std::abs(static_cast<double>(w[i]));
    ASSERT_TRUE(error <= allowed) << what << " " << i << ": " << static_cast<double>(g[i]) << ", want "
                                  << static_cast<double>(w[i]) << ", bound " << allowed;
    worst = std::max(worst, error);
  }
}

double greatest(const Tensor& t) {
  double m = 0;
  for (Real r : testing::to_reals(t))
    if (!std::isinf(r)) m = std::max(m, std::abs(static_cast<double>(r)));
  return m;
}

/// Runs in dtype `t` and in f64, and compares all results. `slope`: bound on the derivative of the modified score by
/// the score; `mod_error`: roundings of the mod.
void check(const Sizes& s, DType t, const std::vector<Tensor>& tables, const MakeOptions& options, double slope = 1,
           double mod_error = 4) {
  const std::vector<Tensor> x = operands(s, t, 11);
  std::vector<Tensor> exact, wide;
  for (const Tensor& v : x) exact.push_back(v.to(kFloat64));
  for (const Tensor& v : tables) wide.push_back(is_floating(v.dtype()) ? v.to(kFloat64) : v);
  const std::vector<Tensor> got = run(x, tables, options), want = run(exact, wide, options);
  // The error of a score in units of f32's roundoff u. |q|, |k|, |v| <= 1: the sum of a score has magnitude at most 0.4
  // D, each of its products and sums rounds once, then scale, mod and exponential.
  const double u = unit_roundoff(kFloat32), narrow = t == kFloat32 ? 0 : unit_roundoff(t);
  const double score = slope * 0.4 * static_cast<double>(s.d) * static_cast<double>(s.d + 2) + mod_error + 4;
  // Relative error of a probability after the division by their sum; then rounded to a 16-bit dtype.
  const double p = 2 * score * u + (static_cast<double>(s.skv) / 16 + 8) * u + narrow;
  const double keys = static_cast<double>(s.skv), rows = static_cast<double>(s.sq * s.hq / s.hkv * s.b);
  const double drop = 2;
  expect_close(got[0], want[0], drop * (p + keys * u), "out");
  expect_close(got[1], want[1], score * u + (keys / 16 + 8) * u + greatest(want[1]) * u, "lse");
  // dP and delta: sums of Dv products of values up to 1; their difference has the error of `out`, too.
  const double dv = static_cast<double>(s.dv);
  const double ds = 2 * dv * drop * (2 * p + (dv + 4) * u + narrow) + 2 * p + narrow;
  expect_close(got[2], want[2], slope * 0.4 * (ds * 2 + keys * u) * 2 + narrow, "dq");
  expect_close(got[3], want[3], slope * 0.4 * rows * ds, "dk");
  expect_close(got[4], want[4], drop * rows * (p + 2 * u * rows + narrow), "dv");
  for (size_t i = 5; i < got.size(); ++i)
    expect_close(got[i], want[i], mod_error * rows * keys * ds + greatest(want[i]) * keys * u, "table");
}

const MakeOptions kPlain = [](std::span<const Tensor>) { return with({}, {}); };

TEST(FlexAttention, PlainInEveryDtype) {
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    check({}, t, {}, kPlain);
    check({.b = 1, .hq = 3, .hkv = 3, .sq = 1, .skv = 1, .d = 1, .dv = 1, .kv_batch = 1}, t, {}, kPlain);
    check({.b = 1, .hq = 3, .hkv = 1, .sq = 130, .skv = 129, .d = 40, .dv = 24, .kv_batch = 1}, t, {}, kPlain);
    check({.b = 3, .hq = 2, .hkv = 2, .sq = 17, .skv = 300, .d = 16, .dv = 16, .kv_batch = 1}, t, {}, kPlain);
  }
}

TEST(FlexAttention, MasksInEveryDtype) {
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    for (const MaskMod& m : {kCausal, kHoles, kCausal & kHoles, !kCausal}) {
      const MakeOptions o = [&](std::span<const Tensor>) { return with({}, m); };
      check({}, t, {}, o);
      check({.b = 1, .hq = 2, .hkv = 2, .sq = 150, .skv = 140, .d = 8, .dv = 8, .kv_batch = 1}, t, {}, o);
    }
  }
}

TEST(FlexAttention, ModsAndGradientsOfTheirTables) {
  Random random(7);
  const Sizes s{.b = 2, .hq = 4, .hkv = 2, .sq = 70, .skv = 140, .d = 8, .dv = 8, .kv_batch = 2};
  const Tensor slopes = random_tensor(kFloat32, {s.hq}, random, 0.01, 0.05),
               bias = random_tensor(kFloat32, {s.hq, s.sq + s.skv}, random),
               docs = random_tensor(kInt64, {s.skv}, random, 0, 3), one = random_tensor(kFloat32, {}, random, 0.5, 1);
  for (DType t : {kFloat32, kBFloat16}) {
    check(
        s, t, {slopes},
        [](std::span<const Tensor> in) {
          const Tensor a = in[0];
          return with([a](const Score& c) { return c.value + a[c.h] * (c.kv - c.q); }, kCausal);
        },
        1, 210);
    check(
        s, t, {bias, one},
        [](std::span<const Tensor> in) {
          const Tensor a = in[0], m = in[1];
          return with([a, m](const Score& c) { return c.value * m + a[c.h][c.q - c.kv + 140]; }, {});
        },
        1, 8);
    check(
        s, t, {},
        [](std::span<const Tensor>) { return with([](const Score& c) { return tanh(c.value / 2.0) * 2.0; }, kCausal); },
        1, 8);
    check(
        s, t, {docs},
        [](std::span<const Tensor> in) {
          const Tensor doc = in[0];
          return with([](const Score& c) { return c.value + cast(c.q - c.kv, kFloat32) * 0.01; },
                      [doc](Index, Index, Index q, Index kv) { return doc[q] == doc[kv]; });
        },
        1, 8);
  }
}

// Backward has a result for each table whose gradient is wanted, and the other results do not depend on that.
TEST(FlexAttention, ConstantTablesHaveNoGradients) {
  const internal::KeepAttentionNodes keep;  // in f64
  Random random(8);
  const Sizes s{.b = 2, .hq = 4, .hkv = 2, .sq = 20, .skv = 40, .d = 8, .dv = 8, .kv_batch = 2};
  for (DType t : {kFloat32, kBFloat16, kFloat64}) {
    std::vector<Tensor> x = operands(s, t, 21);
    const DType of_table = t == kFloat64 ? kFloat64 : kFloat32;
    x.push_back(random_tensor(of_table, {s.hq, s.sq + s.skv}, random));
    x.push_back(random_tensor(of_table, {}, random, 0.5, 1));
    std::vector<TensorType> types;
    for (const Tensor& v : x) types.push_back(v.type());
    std::vector<Tensor> all;
    for (const int learned : {3, 2, 1, 0}) {
      SCOPED_TRACE(str_cat(t, ", tables ", learned));
      const TensorFn fn = [&](std::span<const Tensor> args) {
        std::vector<Tensor> in, wrt;
        for (const Tensor& v : args) in.push_back(v.requires_grad());
        // A table that records without being wanted is as good as a constant.
        if (!learned) in[4] = args[4];
        for (size_t i = 0; i < 5; ++i)
          if (i < 3 || (learned >> (i - 3) & 1)) wrt.push_back(in[i]);
        const Tensor y = flex_attention(
            in[0], in[1], in[2],
            with([&](const Score& c) { return c.value * in[4] + in[3][c.h][c.q - c.kv + s.skv]; }, kCausal));
        return grad(sum(y * y), wrt);
      };
      const Ref<Graph> joint = expand_grad(*capture_graph(fn, types));
      size_t results = 0;
      for (int32_t id = 0; id < joint->size(); ++id)
        if (const Node& n = joint->node(id); n.op == &attention_backward_op) results += n.outputs.size();
      const std::vector<Tensor> got = interpret(*joint, x);
      const std::vector<Tensor> eager = t == kFloat64 ? got : fn(x);  // without a node in f64
      EXPECT_EQ(results, got.size());
      if (learned == 3) all = got;
      for (size_t i = 0, next = 0; i < 5; ++i) {
        if (i >= 3 && !(learned >> (i - 3) & 1)) continue;
        EXPECT_TRUE(testing::same_bits(got[next], all[i])) << i;
        EXPECT_TRUE(testing::same_bits(eager[next++], all[i])) << i;
      }
    }
  }
}

// The second derivative is right also where the first derivative has the table as a constant.
TEST(FlexAttention, SecondDerivativesByTables) {
  const internal::KeepAttentionNodes keep;
  const Sizes s{.b = 1, .hq = 2, .hkv = 1, .sq = 5, .skv = 6, .d = 3, .dv = 2, .kv_batch = 1};
  std::vector<Tensor> x = operands(s, kFloat64, 3);
  Random random(4);
  x.push_back(random_tensor(kFloat64, {2}, random));
  x.push_back(random_tensor(kFloat64, {s.sq + s.skv}, random));
  for (const bool of_table : {false, true}) {
    auto fn = [&](std::span<const Tensor> args) {
      const EnableGrad record;
      std::vector<Tensor> in;
      for (const Tensor& t : args) in.push_back(t.requires_grad_enabled() ? t : t.requires_grad());
      const Tensor slope = in[3], bias = in[4];
      const Tensor y = flex_attention(
          in[0], in[1], in[2],
          with([&](const Score& c) { return tanh(c.value) * slope[c.h] + bias[c.q - c.kv + 6] * bias[c.kv]; },
               kCausal));
      return grad(sum(y * y), of_table ? std::vector{in[1], in[3]} : std::vector{in[0], in[2]}, {.create_graph = true});
    };
    for (const bool captured : {false, true})
      EXPECT_TRUE(testing::gradcheck(fn, x, {.captured = captured})) << of_table << captured;
  }
}

TEST(FlexAttention, TablesTooLargeForSumsByTaskGetTheSameGradients) {
  Random random(10);
  const Sizes s{.b = 8, .hq = 8, .hkv = 8, .sq = 20, .skv = 30, .d = 4, .dv = 4, .kv_batch = 8};
  const Tensor small = random_tensor(kFloat32, {100}, random);
  const Tensor large = cat({small, zeros({(int64_t{9} << 20) - 100})});
  const std::vector<Tensor> x = operands(s, kFloat32, 15);
  const MakeOptions options = [](std::span<const Tensor> in) {
    const Tensor a = in[0];
    return with([a](const Score& c) { return c.value + a[c.q - c.kv + 30] * a[c.kv]; }, kCausal);
  };
  const std::vector<Tensor> want = run(x, {small}, options), got = run(x, {large}, options);
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(testing::same_bits(got[i], want[i])) << i;
  // The same terms in another order: each is below 1, and there is at most one for each score.
  const double terms = static_cast<double>(2 * s.b * s.hq * s.sq * s.skv);
  expect_close(got[5].slice(0, 0, 100), want[5], greatest(want[5]) * terms * unit_roundoff(kFloat32), "table");
  EXPECT_EQ(sum(ne(got[5].slice(0, 100, large.numel()), 0.0).to(kInt64)).item<int64_t>(), 0);
  const int before = num_threads();
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    EXPECT_TRUE(testing::same_bits(run(x, {large}, options)[5], got[5])) << threads;
  }
  set_num_threads(before);
}

TEST(FlexAttention, BlockMasksChangeNothingButTheWork) {
  Random random(9);
  const Sizes s{.b = 2, .hq = 4, .hkv = 2, .sq = 300, .skv = 420, .d = 8, .dv = 8, .kv_batch = 2};
  const Tensor docs = floor_divide(arange(500), 130);
  const MaskMod by_head = [](Index, Index h, Index q, Index kv) { return q - kv < h * 64; };
  for (const MaskMod& m : {attention::causal(), attention::document(docs) & attention::causal(), by_head,
                           attention::sliding_window(100), kHoles}) {
    for (DType t : {kFloat32, kBFloat16}) {
      const std::vector<Tensor> x = operands(s, t, 14);
      const BlockMask blocks = create_block_mask(m, 1, s.hq, s.sq, s.skv, {.block_size = {64, 128}});
      const std::vector<Tensor> with_mod = run(x, {}, [&](auto) { return with({}, m); });
      const std::vector<Tensor> with_blocks = run(
          x, {}, [&](auto) { return FlexAttentionOptions{.block_mask = blocks, .scale = 0.4, .enable_gqa = true}; });
      for (size_t i = 0; i < with_mod.size(); ++i) EXPECT_TRUE(testing::same_bits(with_mod[i], with_blocks[i])) << i;
    }
    check(s, kFloat32, {}, [&](auto) {
      return FlexAttentionOptions{
          .block_mask = create_block_mask(m, 1, s.hq, s.sq, s.skv), .scale = 0.4, .enable_gqa = true};
    });
  }
}

TEST(FlexAttention, DropoutDropsByPosition) {
  const Sizes s;
  for (DType t : {kFloat32, kBFloat16}) {
    // Same seed, same bits: the f64 form and the kernel drop the same probabilities.
    auto options = [](std::span<const Tensor>) {
      manual_seed(5);
      return with({}, kCausal, 0.4);
    };
    check(s, t, {}, options);
  }
}

TEST(FlexAttention, SameBitsForAnyThreadsAndRuns) {
  const int before = num_threads();
  Random random(8);
  const Sizes s{.b = 1, .hq = 4, .hkv = 2, .sq = 200, .skv = 260, .d = 24, .dv = 24, .kv_batch = 1};
  const Tensor bias = random_tensor(kFloat32, {s.hq, s.sq + s.skv}, random);
  std::vector<Tensor> first;
  for (int threads : {1, 2, 3, 2}) {
    set_num_threads(threads);
    const std::vector<Tensor> got = run(operands(s, kFloat32, 12), {bias}, [&](std::span<const Tensor> in) {
      const Tensor a = in[0];
      return with([a](const Score& c) { return c.value + a[c.h][c.q - c.kv + 260]; }, kCausal);
    });
    if (first.empty()) first = got;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], first[i])) << threads << " " << i;
  }
  set_num_threads(before);
}

TEST(FlexAttention, WhatIsMaskedNeverCounts) {
  const Sizes s{.b = 1, .hq = 1, .hkv = 1, .sq = 20, .skv = 40, .d = 8, .dv = 8, .kv_batch = 1};
  std::vector<Tensor> x = operands(s, kFloat32, 13);
  const FlexAttentionOptions o = with({}, [](Index, Index, Index, Index kv) { return kv < 17; });
  const Tensor clean = flex_attention(x[0], x[1], x[2], o);
  const Tensor late = ge(reshape(arange(40), {1, 1, 40, 1}), 17);
  x[1] = where(late, std::numeric_limits<double>::quiet_NaN(), x[1]);
  EXPECT_TRUE(testing::same_bits(flex_attention(x[0], x[1], x[2], o), clean));
}

TEST(FlexAttention, ErrorsSayWhatAndHow) {
  const Tensor q = ones({1, 4, 8, 16}), k = ones({1, 2, 8, 16}), odd = ones({1, 2, 8, 12});
  auto error = [&](const Tensor& a, const Tensor& b, const Tensor& c, FlexAttentionOptions o = {}) {
    return error_of([&] { flex_attention(a, b, c, o); });
  };
  EXPECT_NE(error(q, k, k).find("q has 4 heads, k and v have 2; set .enable_gqa = true"), std::string::npos);
  EXPECT_NE(error(k, odd, k).find("head dims of q [1, 2, 8, 16] and k [1, 2, 8, 12] differ (16 != 12)"),
            std::string::npos);
  EXPECT_NE(error(q[0], k, k).find("need 4 dims each: [batch, heads, sequence, head_dim]"), std::string::npos);
  EXPECT_NE(error(q, k.to(kBFloat16), k).find("dtypes of q, k, v are f32, bf16, f32; need one"), std::string::npos);
  EXPECT_NE(
      error(ones({3, 2, 8, 16}), ones({2, 2, 8, 16}), ones({2, 2, 8, 16})).find("batch of q is 3 and of k and v 2"),
      std::string::npos);
}

// On request, f64 attention is a node of the graph; it gives the same bits as the primitives.
TEST(FlexAttention, F64AsANode) {
  const Sizes s;
  std::vector<Tensor> x = operands(s, kFloat64, 31);
  Random random(32);
  x.push_back(random_tensor(kFloat64, {s.hq}, random));
  const TensorFn fn = [&](std::span<const Tensor> in) {
    const Tensor q = in[0].requires_grad(), table = in[3].requires_grad();
    const AttentionResult r =
        flex_attention_aux(q, in[1], in[2], with([&](const Score& c) { return c.value * table[c.h]; }, kHoles));
    std::vector<Tensor> out = grad(sum(r.out * r.out) + sum(where(isfinite(r.lse), r.lse, 0.0)), {q, table});
    out.push_back(r.out);
    return out;
  };
  std::vector<TensorType> types;
  for (const Tensor& t : x) types.push_back(t.type());
  auto nodes = [](const Graph& g) {
    int n = 0;
    for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op == &attention_op;
    return n;
  };
  const Ref<Graph> plain = capture_graph(fn, types);
  EXPECT_EQ(nodes(*plain), 0);
  Ref<Graph> kept;
  {
    internal::KeepAttentionNodes keep;
    kept = capture_graph(fn, types);
  }
  EXPECT_EQ(nodes(*kept), 1);
  const std::vector<Tensor> want = interpret(*plain, x), got = interpret(*kept, x);
  EXPECT_TRUE(testing::same_bits(got.back(), want.back()));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(testing::close(got[i], testing::to_reals(want[i]), kFloat64, 1000)) << i;
}

}  // namespace
}  // namespace weft
