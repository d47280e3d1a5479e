#include "ops/composite/layers/attention.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/composite/layers/rope.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

struct Sizes {
  int64_t batch = 2, hq = 4, hkv = 4, sq = 5, skv = 5, d = 8, dv = 8;
};

// One query, head and batch entry at a time. bias(b, h, i, j) is added to a score; -inf masks.
Reals attend(const std::vector<Reals>& in, const Sizes& s, Real scale,
             const std::function<Real(int64_t, int64_t, int64_t, int64_t)>& bias) {
  Reals out;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.hq; ++h)
      for (int64_t i = 0; i < s.sq; ++i) {
        const int64_t kv = b * s.hkv + h / (s.hq / s.hkv);
        Reals p;
        Real total = 0;
        for (int64_t j = 0; j < s.skv; ++j) {
          Real score = 0;
          for (int64_t d = 0; d < s.d; ++d)
            score += in[0][((b * s.hq + h) * s.sq + i) * s.d + d] * in[1][(kv * s.skv + j) * s.d + d];
          p.push_back(std::exp(score * scale + bias(b, h, i, j)));
          total += p.back();
        }
        for (int64_t d = 0; d < s.dv; ++d) {
          Real y = 0;
          for (int64_t j = 0; j < s.skv && total > 0; ++j) y += p[j] / total * in[2][(kv * s.skv + j) * s.dv + d];
          out.push_back(y);
        }
      }
  return out;
}

std::vector<Operand> operands(const Sizes& s) {
  return {{{s.batch, s.hq, s.sq, s.d}}, {{s.batch, s.hkv, s.skv, s.d}}, {{s.batch, s.hkv, s.skv, s.dv}}};
}

constexpr Real kNever = -std::numeric_limits<Real>::infinity();
constexpr auto kNone = [](int64_t, int64_t, int64_t, int64_t) { return Real(0); };
constexpr auto kCausal = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i ? Real(0) : kNever; };
// Keys of one parity; query 2 sees none.
constexpr auto kParity = [](int64_t, int64_t, int64_t i, int64_t j) {
  return i != 2 && (i + j) % 2 == 0 ? Real(0) : kNever;
};

Tensor parity_mask() {
  std::vector<bool> m;
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 5; ++j) m.push_back(i != 2 && (i + j) % 2 == 0);
  return Tensor::from_vector<bool>(m, {5, 5});
}

const Sizes kPlain{}, kGrouped{.hkv = 2, .sq = 3, .skv = 6, .dv = 4};
const Real kScale = 1 / std::sqrt(Real(8));

CompositeRow row(const char* name, const Sizes& s, const SdpaOptions& o, Real scale,
                 std::function<Real(int64_t, int64_t, int64_t, int64_t)> bias) {
  // Probabilities are rounded to v's dtype before they are multiplied by values of up to 2.
  return {name,
          operands(s),
          [o](Args a) { return scaled_dot_product_attention(a[0], a[1], a[2], o); },
          [=](const std::vector<Reals>& in) { return attend(in, s, scale, bias); },
          96,
          true,
          false,
          2,
          1};
}

const std::vector<CompositeRow> kTable = {
    row("plain", kPlain, {}, kScale, kNone),
    row("causal", kPlain, {.is_causal = true}, kScale, kCausal),
    row("grouped", kGrouped, {.scale = 0.5, .enable_gqa = true}, Real(0.5), kNone),
    row("grouped_causal", kGrouped, {.is_causal = true, .enable_gqa = true}, kScale, kCausal),
    row("masked", kPlain, {.attn_mask = parity_mask()}, kScale, kParity),
};
WEFT_TEST_COMPOSITES(Attention, kTable);

TEST(Attention, FullyMaskedRowsGiveZerosAndZeroGradients) {
  Random random(3);
  Tensor q = random_tensor(kFloat32, {1, 1, 5, 8}, random).requires_grad();
  Tensor k = random_tensor(kFloat32, {1, 1, 5, 8}, random).requires_grad();
  Tensor v = random_tensor(kFloat32, {1, 1, 5, 8}, random).requires_grad();
  Tensor none = zeros({5, 5}, {.dtype = kBool});
  Tensor y = scaled_dot_product_attention(q, k, v, {.attn_mask = none});
  for (float x : y.to_vector<float>()) EXPECT_EQ(x, 0);
  for (const Tensor& g : grad(sum(y), {q, k, v}))
    for (float x : g.to_vector<float>()) EXPECT_EQ(x, 0);
}

TEST(Attention, AFloatMaskIsAdded) {
  Random random(3);
  Tensor q = random_tensor(kFloat64, {2, 3, 4}, random), bias = random_tensor(kFloat64, {3, 3}, random);
  Tensor y = scaled_dot_product_attention(q, q, q, {.attn_mask = bias, .scale = 2.0});
  std::vector<Reals> in{to_reals(q), to_reals(q), to_reals(q)};
  Reals b = to_reals(bias);
  Reals want = attend(in, {.batch = 2, .hq = 1, .hkv = 1, .sq = 3, .skv = 3, .d = 4, .dv = 4}, 2,
                      [&](int64_t, int64_t, int64_t i, int64_t j) { return b[i * 3 + j]; });
  EXPECT_TRUE(close(y, want, kFloat64, 96));
}

TEST(AttentionErrors, NameShapes) {
  Tensor a = zeros({1, 4, 3, 8});
  EXPECT_NE(error_of([&] {
              scaled_dot_product_attention(a, zeros({1, 4, 3, 6}), a);
            }).find("need equal head dims"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              scaled_dot_product_attention(a, zeros({1, 3, 3, 8}), zeros({1, 3, 3, 8}), {.enable_gqa = true});
            }).find("4 query heads, 3 key and 3 value heads"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              scaled_dot_product_attention(a, a, a, {.attn_mask = zeros({3, 3}), .is_causal = true});
            }).find("got both is_causal and attn_mask"),
            std::string::npos);
}

// ---- rope ----

Reals rotated(const Reals& x, int64_t seq, int64_t dim, int64_t offset, bool interleaved) {
  Reals y(x.size());
  for (size_t r = 0; r < x.size() / dim; ++r)
    for (int64_t i = 0; i < dim / 2; ++i) {
      const Real angle = (r % seq + offset) * std::pow(Real(10000), -Real(2 * i) / dim);
      const size_t a = r * dim + (interleaved ? 2 * i : i), b = interleaved ? a + 1 : a + dim / 2;
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
  return y;
}

// Tables are f32: the frequency has an error of 2 ulp, which an angle of up to 12 carries into the result.
CompositeRow rope_row(const char* name, int64_t offset, bool interleaved) {
  return {name,
          {{Shape{2, 3, 5, 8}}},
          [=](Args a) {
            RopeOptions o{.interleaved = interleaved};
            if (offset) o.offset = full({}, offset, {.dtype = kInt64});
            return rope(a[0], o);
          },
          [=](const std::vector<Reals>& in) { return rotated(in[0], 5, 8, offset, interleaved); },
          64,
          false,
          false,
          0,
          0,
          kFloat32};
}
const std::vector<CompositeRow> kRope = {rope_row("halves", 0, false), rope_row("interleaved", 0, true),
                                         rope_row("offset", 7, false)};
WEFT_TEST_COMPOSITES(Rope, kRope);

TEST(Rope, ScoresDependOnDistanceOnly) {
  Random random(1);
  Tensor q = random_tensor(kFloat32, {1, 8}, random), k = random_tensor(kFloat32, {1, 8}, random);
  auto at = [](int64_t p) { return full({}, p, {.dtype = kInt64}); };
  auto score = [&](int64_t i, int64_t j) {
    return sum(rope(q, {.offset = at(i)}) * rope(k, {.offset = at(j)})).item<float>();
  };
  EXPECT_NEAR(score(7, 3), score(24, 20), 1e-5);
}

TEST(Rope, TurnsOnlyTheFirstFeaturesIfAsked) {
  Random random(1);
  Tensor x = random_tensor(kFloat32, {5, 8}, random);
  Tensor y = rope(x, {.rotary_dim = 4});
  EXPECT_TRUE(same_bits(slice(y, -1, 4, 8).contiguous(), slice(x, -1, 4, 8).contiguous()));
  EXPECT_TRUE(same_bits(slice(y, -1, 0, 4).contiguous(), rope(slice(x, -1, 0, 4))));
}

TEST(RopeErrors, NameShapes) {
  EXPECT_EQ(error_of([] {
              rope(zeros({2, 3}));
            }),
            "rope: 3 of 3 features are rotated; need a positive even number of them");
}

}  // namespace
}  // namespace weft::testing
