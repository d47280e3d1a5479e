// Tests that a mod's index outside its table is an error if it reaches a result, and is ignored if it is masked.
#include <gtest/gtest.h>

#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/testing/values.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::Random;
using testing::random_tensor;
using testing::same_bits;

constexpr DType kTypes[] = {kFloat32, kBFloat16, kFloat16, kFloat64};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Operands {
  Tensor q, k, v;
  Operands(DType t, int64_t sq, int64_t skv) {
    Random random(3);
    q = random_tensor(t, {2, 2, sq, 16}, random), k = random_tensor(t, {2, 2, skv, 16}, random),
    v = random_tensor(t, {2, 2, skv, 16}, random);
  }
};

TEST(ScoreReads, OutsideATableIsAnErrorWithTheUsersLine) {
  for (DType t : kTypes)
    for (const auto& [sq, skv] : {std::pair<int64_t, int64_t>{150, 140}, {2, 140}, {1, 700}}) {
      const Operands x(t, sq, skv);
      const Tensor bias = zeros({2, skv - 10}), doc = full({skv}, int64_t{7}, {.dtype = kInt64});
      uint32_t line = 0;
      auto error = [&](ScoreMod mod, MaskMod mask = {}) {
        line = __LINE__ + 1;
        return error_of([&] { flex_attention(x.q, x.k, x.v, {.score_mod = mod, .mask_mod = mask}); });
      };
      std::string text = error([&](const Score& s) { return s.value + bias[s.h][s.kv]; });
      EXPECT_NE(text.find(str_cat("score_mod: index ", skv - 10, " is out of range for a captured f32[2, ", skv - 10,
                                  "] at (b 0, h 0, q 0, kv ", skv - 10, "), read at ")),
                std::string::npos)
          << text;
      EXPECT_NE(text.find(str_cat("score_reads_test.cc:", line, "; need 0 <= index < ", skv - 10)), std::string::npos)
          << text;
      // Only the very last key is outside; only head 1 sees it.
      const Tensor almost = zeros({skv - 1});
      text = error([&](const Score& s) { return s.value + almost[s.kv]; },
                   [=](Index, Index h, Index, Index kv) { return (kv < skv - 1) | (h == 1); });
      EXPECT_NE(text.find(str_cat("at (b 0, h 1, q 0, kv ", skv - 1, ")")), std::string::npos) << text;
      // An integer table that leads outside another table.
      text = error([&](const Score& s) { return s.value + bias[0][doc[s.kv] * 1000]; });
      EXPECT_NE(text.find("score_mod: index 7000 is out of range"), std::string::npos) << text;
      text = error([&](const Score& s) { return s.value + almost[s.kv - 1]; });
      EXPECT_NE(text.find("score_mod: index -1 is out of range"), std::string::npos) << text;
      // Masks report the same.
      text = error({}, [&](Index, Index, Index, Index kv) { return doc[kv + 1] == 7; });
      EXPECT_NE(text.find(str_cat("mask_mod: index ", skv, " is out of range for a captured i64[", skv, "]")),
                std::string::npos)
          << text;
    }
}

TEST(ScoreReads, OutsideATableIsNothingWhereMasked) {
  for (DType t : kTypes) {
    const int64_t n = 150;
    const Operands x(t, n, n);
    Random random(5);
    const Tensor bias = random_tensor(t == kFloat64 ? t : kFloat32, {n}, random).requires_grad();
    auto run = [&](bool inside) {
      const Tensor q = x.q.requires_grad();
      const FlexAttentionOptions o{.score_mod =
                                       [&](const Score& s) {
                                         const Tensor at = s.q - s.kv;
                                         return s.value + bias[inside ? maximum(at, 0) : at];
                                       },
                                   .mask_mod = attention::causal()};
      const Tensor out = flex_attention(q, x.k, x.v, o);
      std::vector<Tensor> r = grad(sum(out.to(kFloat64)), {q, bias});
      r.push_back(out.detach());
      return r;
    };
    const std::vector<Tensor> with = run(false), without = run(true);
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(same_bits(with[i], without[i])) << to_string_view(t) << " " << i;
      EXPECT_TRUE(all(isfinite(with[i])).item<bool>()) << to_string_view(t) << " " << i;
    }
  }
}

TEST(ScoreReads, NanOfTheDataIsNoError) {
  for (DType t : kTypes) {
    Operands x(t, 140, 150);
    x.q = where(eq(reshape(arange(140), {1, 1, 140, 1}), 3), kNan, x.q);
    const Tensor bias = zeros({150});
    const Tensor out =
        flex_attention(x.q, x.k, x.v, {.score_mod = [&](const Score& s) { return s.value + bias[s.kv]; }});
    EXPECT_EQ(sum(isfinite(out).to(kInt64)).item<int64_t>(), 2 * 2 * 139 * 16) << to_string_view(t);
  }
}

}  // namespace
}  // namespace weft
