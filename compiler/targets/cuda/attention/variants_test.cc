// Dropout, paged keys and layouts in the emulation, against the record's decomposition in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/targets/cuda/attention/testing/emulated_case.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

constexpr double kEps = 0x1p-24;

Tensor values(const Shape& shape, uint64_t seed) {
  testing::Dice dice(seed);
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (float& x : v) x = static_cast<float>(dice.real(-1, 1));
  return Tensor::from_vector<float>(v, shape);
}

void expect_near(const char* what, const Tensor& got, const Tensor& want, double bound) {
  const std::vector<double> g = got.to(kFloat64).contiguous().to_vector<double>(),
                            w = want.contiguous().to_vector<double>();
  ASSERT_EQ(g.size(), w.size()) << what;
  for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], w[i], bound) << what << "[" << i << "]";
}

/// f32, bf16 or f16 operands of magnitude at most 1. keep: the inverse of the kept share of dropout. of_f64: `attrs`,
/// whose mods are traced in f64.
void check(const Attrs& attrs, const std::vector<Tensor>& in, int64_t keys, double keep, bool backward = true,
           const AttentionKernelOptions& options = {}, const Attrs* of_f64 = nullptr) {
  const int64_t d = in[0].size(3), dv = in[2].size(3);
  std::vector<Tensor> wide = in;
  for (size_t i = 0; i < 3; ++i) wide[i] = in[i].to(kFloat64);
  const Attrs& wide_attrs = of_f64 ? *of_f64 : attrs;
  const std::vector<Tensor> want = weft::internal::plain_attention(wide_attrs, wide);
  const std::vector<Tensor> got = run_emulated(attrs, in, false, options);
  // For a probability: the errors of scores, exponents (up to sqrt(d)) and the sum over the keys.
  const double score = static_cast<double>(d + 12) * std::sqrt(static_cast<double>(d)) * kEps;
  const double relative = 2 * score + static_cast<double>(3 * d + 20 + 2 * keys) * kEps;
  // For probabilities, gradients of scores and results, if they are rounded to 16 bits.
  const double half = in[0].dtype() == kFloat32 ? 0 : in[0].dtype() == kBFloat16 ? 0x1p-9 : 0x1p-12;
  expect_near("out", got[0], want[0], (relative + 2 * half) * keep);
  expect_near("log_sum", got[1], want[1], relative);
  expect_near("max", got[2], want[2], relative);
  if (!backward) return;
  const Tensor dout = values(got[0].shape(), 77).to(in[0].dtype()), dlse = values(got[1].shape(), 78);
  std::vector<Tensor> back = in, wide_back = wide;
  for (const Tensor& t : {got[0], got[1], got[2], dout, dlse}) back.push_back(t);
  for (const Tensor& t : {want[0], want[1], want[2], dout.to(kFloat64), dlse.to(kFloat64)}) wide_back.push_back(t);
  const std::vector<Tensor> g = run_emulated(attrs, back, true, options),
                            w = weft::internal::plain_attention_backward(wide_attrs, wide_back);
  const double queries = static_cast<double>(in[0].size(2) * in[0].size(1) / in[1].size(1));
  // For a row of score gradients, whose sum of magnitudes is at most 2 keep dv; the rounding of out is in delta.
  const double term = (4 * relative + 6 * half) * keep * static_cast<double>(dv + 1);
  expect_near("dq", g[0], w[0], term);
  expect_near("dk", g[1], w[1], term * queries);
  expect_near("dv", g[2], w[2], (4 * relative + 2 * half) * keep * queries);
}

TEST(AttentionVariants, Dropout) {
  const Tensor q = values({2, 4, 37, 16}, 1), k = values({2, 2, 45, 16}, 2), v = values({2, 2, 45, 8}, 3);
  const weft::internal::AttentionCall c =
      weft::internal::attention_call(q, k, v, {.mask_mod = attention::causal(), .enable_gqa = true, .dropout_p = 0.3});
  check(c.attrs, c.operands, 45, 1 / 0.7);
}

TEST(AttentionVariants, DropoutOnHopper) {
  for (int64_t d : {16, 128}) {
    const Tensor q = values({1, 2, 100, d}, 1).to(kBFloat16), k = values({1, 1, 140, d}, 2).to(kBFloat16),
                 v = values({1, 1, 140, d}, 3).to(kBFloat16);
    const weft::internal::AttentionCall c = weft::internal::attention_call(
        q, k, v, {.mask_mod = attention::causal(), .enable_gqa = true, .dropout_p = 0.3});
    check(c.attrs, c.operands, 140, 1 / 0.7, true, {.sm90a = true, .maps = true});
  }
}

// A part of a whole call drops the same probabilities as the whole call.
TEST(AttentionVariants, DropoutOfAPart) {
  const Tensor q = values({1, 2, 20, 16}, 1), k = values({1, 2, 33, 16}, 2), v = values({1, 2, 33, 16}, 3);
  weft::internal::AttentionCall c = weft::internal::attention_call(q, k, v, {.dropout_p = 0.5});
  const TensorOptions i64{.dtype = kInt64};
  for (const Tensor& t : {arange(1, 2, 1, i64), arange(4, 6, 1, i64), arange(0, 40, 2, i64), arange(66, 0, -2, i64)})
    c.operands.push_back(t);
  check(c.attrs.with("dropout_extents", Shape{2, 6, 40, 70}), c.operands, 33, 2);
}

TEST(AttentionVariants, Pages) {
  const Tensor q = values({2, 4, 3, 16}, 1), k = values({9, 2, 16, 16}, 2), v = values({9, 2, 16, 16}, 3);
  const Tensor pages = Tensor::from_vector<int64_t>({3, 1, 8, -1, 0, 2, 4, 5}, {2, 4});
  const Tensor lengths = Tensor::from_vector<int64_t>({41, 64}, {2});
  const weft::internal::AttentionCall c = weft::internal::attention_call(
      q, k, v, {.mask_mod = attention::padding(lengths), .enable_gqa = true, .page_table = pages});
  check(c.attrs, c.operands, 64, 1, false);
}

// Infinity and NaN in the values of keys that no query sees reach no result and no gradient.
TEST(AttentionVariants, ValuesOfHiddenKeys) {
  const Tensor lengths = Tensor::from_vector<int64_t>({41, 70}, {2});
  const Tensor hidden = reshape(ge(arange(0, 70, 1, {.dtype = kInt64}), reshape(lengths, {2, 1})), {2, 1, 70, 1});
  for (double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (const auto& [type, sm90a] : {std::pair{kFloat32, false}, {kBFloat16, false}, {kBFloat16, true}}) {
      const AttentionKernelOptions options{.sm90a = sm90a, .maps = sm90a};
      const Tensor q = values({2, 2, sm90a ? 90 : 37, 16}, 1).to(type), k = values({2, 2, 70, 16}, 2).to(type),
                   v = where(hidden, bad, values({2, 2, 70, 16}, 3)).to(type);
      const weft::internal::AttentionCall c =
          weft::internal::attention_call(q, k, v, {.mask_mod = attention::padding(lengths)});
      const std::vector<Tensor> got = run_emulated(c.attrs, c.operands, false, options);
      std::vector<Tensor> back = c.operands;
      for (const Tensor& t : {got[0], got[1], got[2], values(got[0].shape(), 77).to(type), values(got[1].shape(), 78)})
        back.push_back(t);
      std::vector<Tensor> all = run_emulated(c.attrs, back, true, options);
      all.push_back(got[0]);
      for (size_t i = 0; i < all.size(); ++i)
        for (double x : all[i].to(kFloat64).contiguous().to_vector<double>()) ASSERT_TRUE(std::isfinite(x)) << i;
    }
}

// Rows that a large finite number masks, in part or as a whole: equal scores give equal probabilities. The reference
// absorbs the scores too, from 2^60 on.
TEST(AttentionVariants, HugeScores) {
  struct Row {
    DType type;
    bool sm90a;
    int64_t queries, keys;  // 1 query and 1100 keys: pieces of the keys are merged
  };
  for (const auto& [type, sm90a, queries, keys] : {Row{kFloat32, false, 37, 70},
                                                   {kBFloat16, false, 37, 70},
                                                   {kFloat16, false, 37, 70},
                                                   {kBFloat16, true, 90, 70},
                                                   {kFloat16, true, 90, 70},
                                                   {kFloat32, false, 1, 1100},
                                                   {kFloat16, false, 1, 1100}})
    for (float mask : {-1e20f, -1e30f, std::numeric_limits<float>::lowest()}) {
      SCOPED_TRACE(str_cat(type, sm90a ? " sm_90a" : "", " keys ", keys, " mask ", mask));
      const Tensor q = values({2, 2, queries, 16}, 1).to(type), k = values({2, 2, keys, 16}, 2).to(type),
                   v = values({2, 2, keys, 16}, 3).to(type);
      const int64_t padding = keys * 4 / 7;
      // Masks every second query of entry 0, and the first keys of entry 1.
      const FlexAttentionOptions o{.score_mod = [=](const Score& s) {
        const Tensor hidden = where(s.b == 0, remainder(s.q, 2) == 0, s.kv < padding);
        return where(hidden, s.value + mask, s.value);
      }};
      const weft::internal::AttentionCall c = weft::internal::attention_call(q, k, v, o);
      const Attrs wide = weft::internal::attention_call(q.to(kFloat64), k.to(kFloat64), v.to(kFloat64), o).attrs;
      check(c.attrs, c.operands, keys, 1, true, {.sm90a = sm90a, .maps = sm90a}, &wide);
    }
}

// Rows with gaps, and rows that start anywhere.
TEST(AttentionVariants, Layouts) {
  const Tensor wide = values({2, 30, 4, 3 * 16}, 1);
  for (int64_t first : {0, 1}) {
    const auto part = [&](int64_t i) { return transpose(slice(wide, 3, i * 15 + first, i * 15 + first + 12), 1, 2); };
    const weft::internal::AttentionCall c =
        weft::internal::attention_call(part(0), part(1), part(2), {.mask_mod = attention::causal()});
    check(c.attrs, c.operands, 30, 1);
  }
}

}  // namespace
}  // namespace weft::cuda
