// Tests each argument of flash_attn_func and flash_attn_varlen_func, in flex_attention's terms, against loops in double
// that follow FlashAttention's documentation: windows and causal masks end at the last key, biases are -slope *
// |distance|.
#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/dispatch/state/generator.h"
#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "ops/attention/flex_attention.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::Random;
using testing::random_tensor;
using testing::Real;
using testing::unit_roundoff;

/// FlashAttention's arguments.
struct Flash {
  double softmax_scale = 0;  // 0: 1 / sqrt(D)
  bool causal = false;
  int64_t left = -1, right = -1;
  double softcap = 0;
  std::vector<float> slopes = {};                   // [H], or [B, H]
  std::vector<int64_t> cu_seqlens_q, cu_seqlens_k;  // lengths of batch entry 0
};

struct Sizes {
  int64_t b = 2, hq = 4, hkv = 2, sq = 40, skv = 150, d = 16, dv = 16;
};

std::vector<Tensor> operands(const Sizes& s, uint64_t seed) {
  Random random(seed);
  return {random_tensor(kFloat32, {s.b, s.hq, s.sq, s.d}, random, -1, 1),
          random_tensor(kFloat32, {s.b, s.hkv, s.skv, s.d}, random, -1, 1),
          random_tensor(kFloat32, {s.b, s.hkv, s.skv, s.dv}, random, -1, 1)};
}

/// Compares with FlashAttention's documentation, point by point.
void expect_flash(const char* what, const Sizes& s, const Flash& f, const FlexAttentionOptions& options) {
  const std::vector<Tensor> x = operands(s, 1);
  const AttentionResult got = flex_attention_aux(x[0], x[1], x[2], options);
  const std::vector<Real> q = testing::to_reals(x[0]), k = testing::to_reals(x[1]), v = testing::to_reals(x[2]),
                          out = testing::to_reals(got.out), lse = testing::to_reals(got.lse);
  const double u = unit_roundoff(kFloat32);
  const Real scale = f.softmax_scale > 0 ? f.softmax_scale : 1 / std::sqrt(static_cast<double>(s.d));
  auto document = [](const std::vector<int64_t>& at, int64_t i) {
    return static_cast<int64_t>(std::upper_bound(at.begin(), at.end(), i) - at.begin()) - 1;
  };
  for (int64_t b = 0; b < s.b; ++b)
    for (int64_t h = 0; h < s.hq; ++h)
      for (int64_t i = 0; i < s.sq; ++i) {
        int64_t q0 = 0, k0 = 0, lq = s.sq, lk = s.skv;
        if (!f.cu_seqlens_q.empty()) {
          const size_t d = static_cast<size_t>(document(f.cu_seqlens_q, i));
          q0 = f.cu_seqlens_q[d], lq = f.cu_seqlens_q[d + 1] - q0;
          k0 = f.cu_seqlens_k[d], lk = f.cu_seqlens_k[d + 1] - k0;
        }
        const int64_t aligned = i - q0 + lk - lq, row = (b * s.hq + h) * s.sq + i;
        std::vector<Real> y(static_cast<size_t>(s.dv));
        Real sum = 0, off = 0, top = 0;
        int64_t keys = 0;
        for (int64_t j = 0; j < lk; ++j) {
          if (f.causal && j > aligned) continue;
          if (f.left >= 0 && j < aligned - f.left) continue;
          if (f.right >= 0 && j > aligned + f.right) continue;
          const int64_t line = (b * s.hkv + h / (s.hq / s.hkv)) * s.skv + k0 + j;
          Real dot = 0, size = 0;
          for (int64_t d = 0; d < s.d; ++d) {
            dot += q[row * s.d + d] * k[line * s.d + d];
            size += std::abs(q[row * s.d + d] * k[line * s.d + d]);
          }
          Real score = dot * scale, error = size * scale * (s.d + 3) * u;
          if (f.softcap > 0) score = f.softcap * std::tanh(score / f.softcap), error += 16 * u * f.softcap;
          if (!f.slopes.empty()) {
            const Real bias =
                f.slopes[static_cast<size_t>((f.slopes.size() > 4 ? b * s.hq : 0) + h)] * std::abs(aligned - j);
            score -= bias, error += 2 * u * (bias + std::abs(score));
          }
          const Real p = std::exp(score);
          sum += p, ++keys, off = std::max(off, error + u * std::abs(score));
          for (int64_t d = 0; d < s.dv; ++d)
            y[d] += p * v[line * s.dv + d], top = std::max(top, std::abs(v[line * s.dv + d]));
        }
        for (int64_t d = 0; d < s.dv; ++d)
          ASSERT_NEAR(out[row * s.dv + d], keys ? y[d] / sum : 0, top * (2 * off + (keys + 24) * u))
              << what << " row " << i;
        if (keys == 0) {
          ASSERT_EQ(lse[row], -std::numeric_limits<Real>::infinity()) << what << " row " << i;
        } else {
          ASSERT_NEAR(lse[row], std::log(sum), off + (keys + 24) * u + 4 * u * std::abs(std::log(sum)))
              << what << " row " << i;
        }
      }
}

TEST(FlashAttention, FuncArguments) {
  using namespace attention;
  for (const Sizes& s : {Sizes{}, Sizes{.sq = 150, .skv = 40}, Sizes{.hkv = 1, .sq = 1, .skv = 300}}) {
    const int64_t shift = s.skv - s.sq;
    auto run = [&](const char* what, const Flash& f, FlexAttentionOptions o) {
      o.enable_gqa = true;
      expect_flash(what, s, f, o);
    };
    run("none", {}, {});
    run("softmax_scale", {.softmax_scale = 0.7}, {.scale = 0.7});
    run("causal", {.causal = true}, {.mask_mod = causal().shift(shift, 0)});
    run("window both", {.left = 9, .right = 4}, {.mask_mod = sliding_window(9, 4).shift(shift, 0)});
    run("window left", {.left = 9}, {.mask_mod = sliding_window(9, -1).shift(shift, 0)});
    run("window right", {.right = 4}, {.mask_mod = sliding_window(-1, 4).shift(shift, 0)});
    run("window open", {}, {.mask_mod = sliding_window(-1, -1).shift(shift, 0)});
    run("window causal", {.causal = true, .left = 9, .right = 0}, {.mask_mod = sliding_window(9, 0).shift(shift, 0)});
    run("the same, inclusive", {.causal = true, .left = 9}, {.mask_mod = sliding_window(9).shift(shift, 0)});
    run("softcap", {.softcap = 0.6}, {.score_mod = softcap(0.6)});
    const std::vector<float> heads{.1f, .2f, .3f, .4f}, entries{.1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f};
    run("alibi_slopes [H]", {.slopes = heads},
        {.score_mod = alibi_symmetric(Tensor::from_vector<float>(heads, {4})).shift(shift, 0)});
    run("alibi_slopes [B, H]", {.slopes = entries},
        {.score_mod = alibi_symmetric(Tensor::from_vector<float>(entries, {2, 4})).shift(shift, 0)});
    // If no query sees a later key, both forms are equal.
    run("alibi_slopes causal", {.causal = true, .slopes = heads},
        {.score_mod = alibi(Tensor::from_vector<float>(heads, {4})).shift(shift, 0),
         .mask_mod = causal().shift(shift, 0)});
    run("all", {.softmax_scale = 0.5, .causal = true, .left = 70, .softcap = 2, .slopes = heads},
        {.score_mod = compose(softcap(2), alibi_symmetric(Tensor::from_vector<float>(heads, {4}))).shift(shift, 0),
         .block_mask = create_block_mask((causal() & sliding_window(70, -1)).shift(shift, 0), 1, 1, s.sq, s.skv),
         .scale = 0.5});
  }
}

TEST(FlashAttention, VarlenArguments) {
  using namespace attention;
  // Documents with equal numbers of keys and queries, with more or fewer keys, with none of either, and rows of one.
  const std::vector<int64_t> q{0, 5, 25, 25, 39, 40}, k{0, 5, 90, 93, 97, 150};
  const Sizes s{.b = 1};
  const Tensor cu_q = Tensor::from_vector<int64_t>(q, {6}),
               cu_k = Tensor::from_vector<int32_t>({0, 5, 90, 93, 97, 150}, {6});
  auto run = [&](const char* what, Flash f, const MaskMod& inner) {
    f.cu_seqlens_q = q, f.cu_seqlens_k = k;
    expect_flash(what, s, f, {.mask_mod = document_offsets(cu_q, cu_k, inner), .enable_gqa = true});
    expect_flash(
        what, s, f,
        {.block_mask = create_block_mask(document_offsets(cu_q, cu_k, inner), 1, 1, s.sq, s.skv), .enable_gqa = true});
  };
  run("documents", {}, noop_mask);
  run("causal", {.causal = true}, causal());
  run("window", {.left = 3, .right = 2}, sliding_window(3, 2));
  // Equal lengths: the form with one list.
  const Sizes square{.b = 1, .sq = 40, .skv = 40};
  Flash f{.causal = true};
  f.cu_seqlens_q = f.cu_seqlens_k = q;
  expect_flash("equal", square, f, {.mask_mod = document_offsets(cu_q, causal()), .enable_gqa = true});
  expect_flash("equal", square, f, {.mask_mod = document_offsets(cu_q, cu_q, causal()), .enable_gqa = true});
}

// If probabilities are equal and a value has one feature, an output shows which probability was kept.
TEST(FlashAttention, DropoutP) {
  constexpr int64_t n = 128;
  constexpr double p = 0.25;
  manual_seed(3);
  const Tensor q = zeros({1, 4, n, 16}),
               v = broadcast_to(eq(reshape(arange(n), {n, 1}), arange(n)).to(kFloat32), {1, 4, n, n});
  const Tensor k = zeros({1, 4, n, 16});
  const std::vector<Real> y = testing::to_reals(flex_attention(q, k, v, {.dropout_p = p}));
  int64_t dropped = 0;
  for (Real x : y) {
    dropped += x == 0;
    const double kept = 1 / (n * (1 - p));
    ASSERT_NEAR(x, x == 0 ? 0 : kept, 8 * unit_roundoff(kFloat32) * kept);
  }
  const double count = 4 * n * n;
  EXPECT_NEAR(static_cast<double>(dropped), p * count, 5 * std::sqrt(count * p * (1 - p)));
}

TEST(FlashAttention, BadArguments) {
  const Tensor two = Tensor::from_vector<int64_t>({0, 5}, {2}), three = Tensor::from_vector<int64_t>({0, 3, 5}, {3});
  EXPECT_EQ(error_of([] { attention::sliding_window(-2, 0); }),
            "attention::sliding_window: left is -2 and right is 0; need 0 or more positions on each side, or -1 for an "
            "open one, as in sliding_window(128, 0)");
  EXPECT_EQ(error_of([&] { attention::document_offsets(two, three); }),
            "attention::document_offsets: cu_seqlens_q is i64[2] and cu_seqlens_k is i64[3]; need the same number of "
            "documents in "
            "both, as in {0, 1, 4} and {0, 3, 7}");
  EXPECT_EQ(
      error_of([&] {
        attention::document_offsets(two, Tensor::from_vector<int64_t>({1, 5}, {2}));
      }),
      "attention::document_offsets: cu_seqlens_k of 2 numbers from 1 to 5; need 0 and then the end of each document, "
      "ascending, as in {0, 3, 7}");
  EXPECT_EQ(error_of([] {
              attention::alibi_symmetric(zeros({2, 2, 2}));
            }),
            "attention::alibi_symmetric: slopes is f32[2, 2, 2]; need floating-point values [H] or [B, H]");
  const Tensor q = zeros({2, 4, 1, 8}), pages = zeros({3, 4, 16, 8});
  EXPECT_EQ(
      error_of([&] { flex_attention(q, pages, pages, {.page_table = three}); }),
      "flex_attention: page_table is i64[3] for q [2, 4, 1, 8]; need integers [B, pages of an entry], as in i32[2, "
      "16] for pages k [64, 4, 128, 8]");
}

}  // namespace
}  // namespace weft
