// Tests every ready-made mask against a plain loop, as a dense mask and through its blocks; every ready-made score_mod
// against its formula.
#include "ops/attention/masks/masks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "framework/base/testing/error_of.h"
#include "framework/dispatch/interpreter.h"
#include "ops/attention/mods/score_mods.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::expect_error;

using Rule = std::function<bool(int64_t b, int64_t h, int64_t q, int64_t kv)>;

// Checks all points, and the blocks of 64.
void expect_mask(const MaskMod& mask, int64_t B, int64_t H, int64_t q_len, int64_t kv_len, const Rule& rule) {
  const std::vector<uint8_t> m = create_mask(mask, B, H, q_len, kv_len).to_vector<uint8_t>();
  const BlockMask blocks = create_block_mask(mask, B, H, q_len, kv_len, {.block_size = {64, 64}});
  const std::vector<int32_t> dense = blocks.to_dense().to_vector<int32_t>();
  int64_t seen = 0;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h) {
      std::vector<int32_t> want(blocks.q_blocks() * blocks.kv_blocks());
      for (int64_t q = 0; q < q_len; ++q)
        for (int64_t kv = 0; kv < kv_len; ++kv) {
          const bool on = rule(b, h, q, kv);
          ASSERT_EQ(m[((b * H + h) * q_len + q) * kv_len + kv], on)
              << "b " << b << " h " << h << " q " << q << " kv " << kv;
          want[q / 64 * blocks.kv_blocks() + kv / 64] |= on;
          seen += on;
        }
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(dense[(b * H + h) * want.size() + i], want[i]) << "block " << i;
    }
  EXPECT_GT(seen, 0);
  EXPECT_LT(seen, B * H * q_len * kv_len);
}

Tensor ints(std::vector<int64_t> v, Shape shape) { return Tensor::from_vector<int64_t>(v, shape); }
int64_t mod(int64_t a, int64_t n) { return (a % n + n) % n; }
int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return std::min(std::max(x, lo), hi); }

TEST(Masks, Sequences) {
  using namespace attention;
  expect_mask(causal(), 1, 1, 200, 300, [](auto, auto, int64_t q, int64_t kv) { return q >= kv; });
  expect_mask(sliding_window(70), 1, 1, 300, 300,
              [](auto, auto, int64_t q, int64_t kv) { return 0 <= q - kv && q - kv <= 70; });
  expect_mask(sliding_window(0), 1, 1, 80, 80, [](auto, auto, int64_t q, int64_t kv) { return q == kv; });
  expect_mask(prefix_lm(90), 1, 1, 200, 200, [](auto, auto, int64_t q, int64_t kv) { return kv < 90 || q >= kv; });
  const int64_t n[] = {10, 150};
  expect_mask(prefix_lm(ints({10, 150}, {2})), 2, 1, 200, 200,
              [&](int64_t b, auto, int64_t q, int64_t kv) { return kv < n[b] || q >= kv; });
  expect_mask(padding(ints({10, 150}, {2}).to(kInt32)), 2, 1, 30, 200,
              [&](int64_t b, auto, auto, int64_t kv) { return kv < n[b]; });
  expect_mask(dilated(40, 4), 1, 1, 200, 150,
              [](auto, auto, int64_t q, int64_t kv) { return std::abs(q - kv) <= 40 && std::abs(q - kv) % 4 == 0; });
  expect_mask(batchify(causal(), 48), 1, 1, 200, 200,
              [](auto, auto, int64_t q, int64_t kv) { return q / 48 == kv / 48 && q >= kv; });
  expect_mask(stream_with_sinks(30, 4), 1, 1, 300, 300,
              [](auto, auto, int64_t q, int64_t kv) { return q >= kv && (q - kv <= 30 || kv < 4); });
  expect_mask(a_shape(4, 30), 1, 1, 300, 300,
              [](auto, auto, int64_t q, int64_t kv) { return q >= kv && (q - kv < 30 || kv < 4); });
  expect_mask(block_diffusion(8, 100), 1, 1, 200, 200, [](auto, auto, int64_t q, int64_t kv) {
    const bool qc = q >= 100, kc = kv >= 100;
    const int64_t a = (qc ? q - 100 : q) / 8, b = (kc ? kv - 100 : kv) / 8;
    return (a == b && qc == kc) || (a > b && kc && !qc) || (a >= b && kc && qc);
  });
  expect_mask(per_head({causal(), sliding_window(9), !causal()}), 1, 4, 130, 130,
              [](auto, int64_t h, int64_t q, int64_t kv) {
                return h == 0 ? q >= kv : h == 1 ? q >= kv && q - kv <= 9 : h == 2 ? q < kv : false;
              });
  expect_mask(and_masks(causal(), sliding_window(50), !sliding_window(3)), 1, 1, 150, 150,
              [](auto, auto, int64_t q, int64_t kv) { return q - kv > 3 && q - kv <= 50; });
  expect_mask(or_masks(causal(), prefix_lm(20)), 1, 1, 150, 150,
              [](auto, auto, int64_t q, int64_t kv) { return q >= kv || kv < 20; });
}

TEST(Masks, Documents) {
  using namespace attention;
  std::vector<int64_t> ids(300);
  for (int64_t i = 0; i < 300; ++i) ids[i] = i < 100 ? 0 : i < 130 ? 1 : i < 131 ? 5 : 7;
  expect_mask(document(ints(ids, {300})), 1, 1, 300, 300,
              [&](auto, auto, int64_t q, int64_t kv) { return ids[q] == ids[kv]; });
  expect_mask(document(ints(ids, {2, 150})), 2, 1, 150, 150,
              [&](int64_t b, auto, int64_t q, int64_t kv) { return ids[b * 150 + q] == ids[b * 150 + kv]; });
  expect_mask(document(ints(ids, {300})) & causal(), 1, 1, 300, 300,
              [&](auto, auto, int64_t q, int64_t kv) { return ids[q] == ids[kv] && q >= kv; });
  const std::vector<int64_t> at{0, 100, 100, 130, 131, 280};
  auto doc_of = [&](int64_t i) { return std::upper_bound(at.begin(), at.end(), i) - at.begin() - 1; };
  expect_mask(document_offsets(ints(at, {6}), prefix_lm(7)), 1, 1, 300, 300, [&](auto, auto, int64_t q, int64_t kv) {
    return q < 280 && doc_of(q) == doc_of(kv) && (kv - at[doc_of(kv)] < 7 || q >= kv);
  });
  expect_error([&] { document_offsets(ints({1, 5}, {2})); }, "need 0 and then the end of each document");
  expect_error([&] { document(ones({5})); }, "attention::document: ids is f32[5]; need integers [S] or [B, S]");
}

TEST(Masks, Drafts) {
  using namespace attention;
  const int64_t anchors[] = {100, -1, 7, 60, 300, 0};
  expect_mask(dflash(ints({100, -1, 7, 60, 300, 0}, {2, 3}), 30, 120), 2, 1, 90, 210,
              [&](int64_t b, auto, int64_t q, int64_t kv) {
                const int64_t at = anchors[b * 3 + q / 30];
                return at >= 0 && (kv < 120 ? kv < at : (kv - 120) / 30 == q / 30);
              });
  const int64_t lengths[] = {60, 100};
  expect_mask(multi_token(100, ints({60, 100}, {2})), 2, 1, 100, 300, [&](int64_t b, auto, int64_t q, int64_t kv) {
    return q < lengths[b] && kv % 100 < lengths[b] && (kv < 100 ? q >= kv : kv % 100 == q);
  });
  expect_error([&] { dflash(ones({3}), 4, 8); }, "attention::dflash: anchors is f32[3]; need integers [N] or [B, N]");
  expect_error([&] { multi_token(0); }, "attention::multi_token: n is 0; need 1 or more tokens");
}

TEST(Masks, Structures) {
  using namespace attention;
  const std::vector<int64_t> parents{-1, 0, 0, 1, 1, 2, 8, 6, -1, 6, 4};
  const Rule ancestor = [&](auto, auto, int64_t q, int64_t kv) {
    for (; q >= 0; q = parents[q])
      if (q == kv) return true;
    return false;
  };
  expect_mask(tree(ints(parents, {11})), 1, 1, 11, 11, ancestor);
  expect_error([&] { tree(ints({1, 2, 0, -1}, {4})); }, "3 nodes form a cycle");
  expect_error([&] { tree(ints({4}, {1})); }, "parents[0] is 4");

  std::vector<int64_t> edges(2 * 2 * 90 * 90);
  for (size_t i = 0; i < edges.size(); ++i) edges[i] = i * 2654435761u % 97 < 9;
  expect_mask(
      graph(ints(edges, {2, 2, 90, 90}).to(kBool)), 2, 2, 90, 90,
      [&](int64_t b, int64_t h, int64_t q, int64_t kv) { return edges[((b * 2 + h) * 90 + q) * 90 + kv] != 0; });
  expect_mask(graph(ints(edges, {4, 90, 90})), 4, 1, 90, 90,
              [&](int64_t b, auto, int64_t q, int64_t kv) { return edges[(b * 90 + q) * 90 + kv] != 0; });

  const int64_t spans[] = {5, 50, 80, 80, 100, 190};
  const Rule in_span = [&](auto, auto, int64_t q, int64_t kv) {
    for (int i = 0; i < 6; i += 2)
      if (q >= spans[i] && q < spans[i + 1] && kv >= spans[i] && kv < spans[i + 1]) return true;
    return q >= kv;
  };
  expect_mask(transfusion(ints({5, 50, 80, 80, 100, 190}, {3, 2})), 1, 1, 300, 300, in_span);
  expect_mask(transfusion(ints({5, 9, 50, 70}, {2, 1, 2})), 2, 1, 100, 100, [](int64_t b, auto, int64_t q, int64_t kv) {
    const int64_t lo = b ? 50 : 5, hi = b ? 70 : 9;
    return q >= kv || (q >= lo && q < hi && kv >= lo && kv < hi);
  });
  expect_error([&] { transfusion(ints({5, 50, 49, 80}, {2, 2})); }, "spans 0 and 1 both hold position 49");

  expect_mask(flamingo(ints({0, 40, 40, 90, 100, 130}, {3, 2}), 16), 1, 1, 140, 48,
              [](auto, auto, int64_t q, int64_t kv) {
                const int64_t lo[] = {0, 40, 100}, hi[] = {40, 90, 130};
                return q >= lo[kv / 16] && q < hi[kv / 16];
              });

  const int64_t pages[] = {2, -1, 0, 1, -1, 3, 1, 0, 2, -1}, lengths[] = {50, 60};
  const Rule in_page = [&](int64_t b, auto, int64_t q, int64_t kv) {
    const int64_t page = pages[b * 5 + kv / 16], logical = page * 16 + kv % 16;
    return page >= 0 && logical < lengths[b] && q + 20 >= logical;
  };
  expect_mask(paged(ints({2, -1, 0, 1, -1, 3, 1, 0, 2, -1}, {2, 5}), 16, causal().shift(20, 0), ints({50, 60}, {2})), 2,
              1, 40, 80, in_page);
}

bool near(int64_t q, int64_t kv, int64_t n, int64_t kernel) {
  return std::abs(clamp(q, kernel / 2, n - 1 - kernel / 2) - kv) <= kernel / 2;
}

TEST(Masks, Grids) {
  using namespace attention;
  expect_mask(neighborhood_1d(150, 31), 1, 1, 150, 150,
              [](auto, auto, int64_t q, int64_t kv) { return near(q, kv, 150, 31); });
  // Not square: rows are H x W = 10 x 18.
  expect_mask(neighborhood_2d({10, 18}, {3, 7}), 1, 1, 180, 180, [](auto, auto, int64_t q, int64_t kv) {
    return near(q / 18, kv / 18, 10, 3) && near(q % 18, kv % 18, 18, 7);
  });
  expect_mask(neighborhood_3d({4, 6, 8}, {3, 3, 5}), 1, 1, 192, 192, [](auto, auto, int64_t q, int64_t kv) {
    return near(q / 48, kv / 48, 4, 3) && near(q / 8 % 6, kv / 8 % 6, 6, 3) && near(q % 8, kv % 8, 8, 5);
  });
  auto tiled = [](int64_t i, int64_t w, int64_t th, int64_t tw, int64_t* y, int64_t* x) {
    const int64_t t = i / (th * tw), in = i % (th * tw);
    *y = t / (w / tw) * th + in / tw;
    *x = t % (w / tw) * tw + in % tw;
  };
  expect_mask(neighborhood_2d_tiled({12, 16}, {5, 3}, {4, 8}), 1, 1, 192, 192, [&](auto, auto, int64_t q, int64_t kv) {
    int64_t qy, qx, ky, kx;
    tiled(q, 16, 4, 8, &qy, &qx);
    tiled(kv, 16, 4, 8, &ky, &kx);
    return near(qy, ky, 12, 5) && near(qx, kx, 16, 3);
  });
  auto tiled3 = [](int64_t i, std::array<int64_t, 3> n, std::array<int64_t, 3> t, int64_t* at) {
    const int64_t volume = t[0] * t[1] * t[2], tile = i / volume, in = i % volume, h = n[1] / t[1], w = n[2] / t[2];
    at[0] = tile / (h * w) * t[0] + in / (t[1] * t[2]);
    at[1] = tile / w % h * t[1] + in / t[2] % t[1];
    at[2] = tile % w * t[2] + in % t[2];
  };
  expect_mask(neighborhood_3d_tiled({4, 6, 8}, {3, 3, 5}, {2, 3, 4}), 1, 1, 192, 192,
              [&](auto, auto, int64_t q, int64_t kv) {
                int64_t a[3], c[3];
                tiled3(q, {4, 6, 8}, {2, 3, 4}, a);
                tiled3(kv, {4, 6, 8}, {2, 3, 4}, c);
                return near(a[0], c[0], 4, 3) && near(a[1], c[1], 6, 3) && near(a[2], c[2], 8, 5);
              });
  auto even = [](int64_t i) {
    int64_t r = 0;
    for (int k = 0; k < 8; ++k) r |= (i >> 2 * k & 1) << k;
    return r;
  };
  expect_mask(neighborhood_2d_morton(16, {5, 3}), 1, 1, 256, 256, [&](auto, auto, int64_t q, int64_t kv) {
    return near(even(q >> 1), even(kv >> 1), 16, 5) && near(even(q), even(kv), 16, 3);
  });
  // 12 x 16 in tiles of 4 x 4, a window of 3 x 1 tiles, 20 tokens of text.
  expect_mask(sta_2d({12, 16}, {12, 4}, {4, 4}, 20), 1, 1, 220, 220, [](auto, auto, int64_t q, int64_t kv) {
    if (q >= 192 || kv >= 192) return kv < 212;
    const int64_t a = q / 16, b = kv / 16;
    return near(a / 4, b / 4, 3, 3) && near(a % 4, b % 4, 4, 1);
  });
  // 4 x 12 x 8 in tiles of 2 x 4 x 4, a window of 1 x 3 x 1 tiles.
  expect_mask(sta_3d({4, 12, 8}, {2, 12, 4}, {2, 4, 4}), 1, 1, 384, 384, [](auto, auto, int64_t q, int64_t kv) {
    const int64_t a = q / 32, b = kv / 32;
    return near(a / 6, b / 6, 2, 1) && near(a / 2 % 3, b / 2 % 3, 3, 3) && near(a % 2, b % 2, 2, 1);
  });
}

TEST(Masks, Videos) {
  using namespace attention;
  expect_mask(svg_spatial(10, 32, 20), 1, 1, 200, 200,
              [](auto, auto, int64_t q, int64_t kv) { return q < 10 || kv < 42 || std::abs(q - kv) < 20; });
  expect_mask(svg_temporal(10, 32, 3), 1, 1, 200, 200, [](auto, auto, int64_t q, int64_t kv) {
    return q < 10 || kv < 10 || std::abs(mod(q - 10, 32) - mod(kv - 10, 32)) < 3;
  });
}

TEST(Masks, ErrorsNameTheRule) {
  using namespace attention;
  expect_error([] { sliding_window(-1); }, "attention::sliding_window: window is -1; need 0 or more");
  expect_error([] { neighborhood_2d({8, 8}, {3, 4}); }, "kernel [3, 4] on a canvas [8, 8]; need odd extents");
  expect_error([] { neighborhood_2d_tiled({8, 8}, {3, 3}, {3, 4}); }, "tile [3, 4] does not divide the canvas [8, 8]");
  expect_error([] { neighborhood_2d_morton(12, {3, 3}); }, "canvas is 12; need a power of 2");
  expect_error([] { per_head({}); }, "no masks");
}

// The mod's value by the interpreter.
float score(const ScoreMod& m, float value, int64_t b, int64_t h, int64_t q, int64_t kv) {
  const Body body = internal::trace_score(m);
  std::vector<Tensor> in{full({}, value, {.dtype = kFloat32})};
  for (int64_t i : {b, h, q, kv}) in.push_back(full({}, i, {.dtype = kInt64}));
  in.insert(in.end(), body.lifted.begin(), body.lifted.end());
  return interpret(*body.graph, in)[0].item<float>();
}

TEST(ScoreMods, Formulas) {
  using namespace attention;
  EXPECT_EQ(alibi_slopes(8).to_vector<float>(),
            (std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 1 / 32.f, 1 / 64.f, 1 / 128.f, 1 / 256.f}));
  // 12 heads: the slopes of 8, then every second of 16 (the paper's code).
  const std::vector<float> twelve = alibi_slopes(12).to_vector<float>();
  ASSERT_EQ(twelve.size(), 12u);
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(twelve[8 + i], std::exp2(-0.5f * static_cast<float>(2 * i + 1)));
  EXPECT_EQ(score(alibi(8), 1.5f, 0, 1, 10, 6), 1.5f - 0.25f * 4);
  EXPECT_EQ(score(alibi(Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2})), 0, 1, 0, 5, 3), -6.0f);
  EXPECT_NEAR(score(softcap(20), 30, 0, 0, 0, 0), 20 * std::tanh(1.5), 1e-5);
  const Tensor table = Tensor::from_vector<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 5});
  EXPECT_EQ(score(relative_bias(table), 10, 0, 1, 7, 8), 18.0f);  // distance 1
  EXPECT_EQ(score(relative_bias(table), 10, 0, 0, 9, 1), 10.0f);  // -8: clipped to -2
  EXPECT_EQ(score(relative_bias(table), 10, 0, 0, 1, 9), 14.0f);
  EXPECT_EQ(score(head_bias(Tensor::from_vector<float>({5, 6}, {2})), 1, 0, 1, 0, 0), 7.0f);
  EXPECT_EQ(score(compose(softcap(1e6), head_bias(Tensor::from_vector<float>({5, 6}, {2})),
                          [](const Score& s) { return s.value * 2; }),
                  0, 0, 1, 0, 0),
            12.0f);
}

TEST(ScoreMods, T5Buckets) {
  using namespace attention;
  // As computed by transformers' T5Attention._relative_position_bucket, 32 buckets up to 128.
  const std::vector<std::pair<int64_t, int64_t>> both{{0, 0},    {-1, 1},    {1, 17},    {-7, 7},     {-8, 8},
                                                      {8, 24},   {-15, 9},   {-16, 10},  {-31, 11},   {-32, 12},
                                                      {-64, 14}, {-127, 15}, {-128, 15}, {-5000, 15}, {5000, 31}};
  for (auto [relative, bucket] : both) EXPECT_EQ(t5_bucket(relative, true, 32, 128), bucket) << relative;
  const std::vector<std::pair<int64_t, int64_t>> one{{5, 0},    {0, 0},    {-15, 15},  {-16, 16},
                                                     {-32, 21}, {-64, 26}, {-128, 31}, {-900, 31}};
  for (auto [relative, bucket] : one) EXPECT_EQ(t5_bucket(relative, false, 32, 128), bucket) << relative;
  std::vector<float> v(64);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  const ScoreMod m = t5_bias(Tensor::from_vector<float>(v, {2, 32}));
  for (int64_t r : {0, -1, 1, -16, 40, -127, 900, -900})
    EXPECT_EQ(score(m, 0, 0, 1, 1000, 1000 + r), static_cast<float>(32 + t5_bucket(r, true, 32, 128))) << r;
  expect_error(
      [&] {
        t5_bias(Tensor::from_vector<float>(v, {2, 32}), true, 64);
      },
      "table is f32[2, 32] for 64 buckets");
}

}  // namespace
}  // namespace weft
