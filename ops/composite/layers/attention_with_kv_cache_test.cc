// Tests attention_with_kv_cache against independent loops in double that cover all of FlashAttention's arguments;
// compares the bits of pages, splits and thread counts.
#include "ops/composite/layers/attention_with_kv_cache.h"

#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/layers/rope.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::Random;
using testing::random_tensor;
using testing::Real;
using testing::unit_roundoff;
using Options = KvCacheAttentionOptions;

Tensor ints(const std::vector<int64_t>& v, const Shape& shape) { return Tensor::from_vector<int64_t>(v, shape); }

struct Sizes {
  int64_t b = 2, hq = 4, hkv = 2, sq = 1, capacity = 300, d = 16, dv = 16, added = 0;
};

/// A call on random values.
struct Example {
  Sizes s;
  Tensor q, k_cache, v_cache;
  Options o;

  Example(const Sizes& sizes, DType t, uint64_t seed, int64_t entries = 0) : s(sizes) {
    Random random(seed);
    q = random_tensor(t, {s.b, s.hq, s.sq, s.d}, random, -1, 1);
    const int64_t n = entries ? entries : s.b;
    k_cache = random_tensor(t, {n, s.hkv, s.capacity, s.d}, random, -1, 1);
    v_cache = random_tensor(t, {n, s.hkv, s.capacity, s.dv}, random, -1, 1);
    if (s.added > 0) {
      o.k = random_tensor(t, {s.b, s.hkv, s.added, s.d}, random, -1, 1);
      o.v = random_tensor(t, {s.b, s.hkv, s.added, s.dv}, random, -1, 1);
    }
  }
  KvCacheAttention run() const { return attention_with_kv_cache(q, k_cache, v_cache, o); }
};

std::vector<int64_t> integers(const Tensor& t) { return cast(t, kInt64).to_vector<int64_t>(); }

/// Row [n] of the features, rotated by a position.
std::vector<Real> rotated(std::vector<Real> x, const Options& o, int64_t position) {
  if (!o.rotary_cos.defined()) return x;
  const int64_t half = o.rotary_cos.size(1);
  const std::vector<Real> c = testing::to_reals(o.rotary_cos), s = testing::to_reals(o.rotary_sin);
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = o.rotary_interleaved ? 2 * i : i, second = o.rotary_interleaved ? 2 * i + 1 : i + half;
    const Real a = x[first], b = x[second], cos = c[position * half + i], sin = s[position * half + i];
    x[first] = a * cos - b * sin;
    x[second] = b * cos + a * sin;
  }
  return x;
}

/// Computes the call by loops, and checks that the results are as close as roundings of `t` allow.
void expect_right(const Example& e, const KvCacheAttention& got, const char* what) {
  const Sizes& s = e.s;
  const Options& o = e.o;
  const DType t = e.q.dtype();
  const std::vector<Real> q = testing::to_reals(e.q), kc = testing::to_reals(e.k_cache),
                          vc = testing::to_reals(e.v_cache);
  const std::vector<Real> out = testing::to_reals(got.out), lse = testing::to_reals(got.lse);
  const std::vector<Real> k_new = o.k.defined() ? testing::to_reals(o.k) : std::vector<Real>{},
                          v_new = o.v.defined() ? testing::to_reals(o.v) : std::vector<Real>{};
  const std::vector<Real> slopes = o.alibi_slopes.defined() ? testing::to_reals(o.alibi_slopes) : std::vector<Real>{};
  const double u = unit_roundoff(kFloat32), stored = unit_roundoff(t);
  const Real scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(s.d)));
  const int64_t rows = e.k_cache.size(2), n = o.block_table.defined() ? rows * o.block_table.size(1) : rows;
  const bool local = o.causal || o.window_size[0] >= 0 || o.window_size[1] >= 0;
  for (int64_t b = 0; b < s.b; ++b) {
    int64_t before = n;
    if (o.cache_seqlens.defined()) before = integers(o.cache_seqlens)[o.cache_seqlens.dim() ? b : 0];
    const int64_t length = before + (k_new.empty() ? 0 : s.added);
    const int64_t from = o.cache_leftpad.defined() ? integers(o.cache_leftpad)[b] : 0;
    auto key = [&](const std::vector<Real>& cache, const std::vector<Real>& added, int64_t h, int64_t j, int64_t d) {
      std::vector<Real> x(d);
      if (j >= before && !added.empty()) {
        for (int64_t i = 0; i < d; ++i) x[i] = added[((b * s.hkv + h) * s.added + j - before) * d + i];
        return &added == &k_new ? rotated(x, o, j) : x;
      }
      int64_t entry = b, row = j;
      if (o.cache_batch_idx.defined()) entry = integers(o.cache_batch_idx)[b];
      if (o.block_table.defined())
        entry = integers(o.block_table)[b * o.block_table.size(1) + j / rows], row = j % rows;
      for (int64_t i = 0; i < d; ++i) x[i] = cache[((entry * s.hkv + h) * rows + row) * d + i];
      return x;
    };
    for (int64_t hq = 0; hq < s.hq; ++hq)
      for (int64_t i = 0; i < s.sq; ++i) {
        const int64_t h = hq / (s.hq / s.hkv), position = length - s.sq + i;
        std::vector<Real> x(q.begin() + ((b * s.hq + hq) * s.sq + i) * s.d,
                            q.begin() + ((b * s.hq + hq) * s.sq + i + 1) * s.d);
        x = rotated(x, o, local ? before + i : before);
        Real sum = 0, top = 0, off = 0;
        std::vector<Real> y(s.dv);
        int64_t keys = 0;
        for (int64_t j = from; j < length; ++j) {
          if (o.causal && j > position) continue;
          if (o.window_size[0] >= 0 && position - j > o.window_size[0]) continue;
          if (o.window_size[1] >= 0 && !o.causal && j - position > o.window_size[1]) continue;
          const std::vector<Real> k = key(kc, k_new, h, j, s.d), v = key(vc, v_new, h, j, s.dv);
          Real dot = 0, size = 0;
          for (int64_t d = 0; d < s.d; ++d) dot += x[d] * k[d], size += std::abs(x[d] * k[d]);
          Real score = dot * scale;
          // Sums of d products; rotated features are rounded to the stored type.
          Real error = size * scale * ((s.d + 8) * u + (o.rotary_cos.defined() ? 2 * stored + 8 * u : 0));
          if (o.softcap > 0) score = o.softcap * std::tanh(score / o.softcap), error += 16 * u * o.softcap;
          if (!slopes.empty()) {
            const Real bias = slopes[(o.alibi_slopes.dim() == 2 ? b * s.hq : 0) + hq] * std::abs(position - j);
            score -= bias;
            error += 2 * u * (bias + std::abs(score));
          }
          const Real p = std::exp(score);
          sum += p;
          for (int64_t d = 0; d < s.dv; ++d) y[d] += p * v[d], top = std::max(top, std::abs(v[d]));
          off = std::max(off, error + u * std::abs(score));
          ++keys;
        }
        const Real probabilities = 2 * off + (keys + 24) * u + (t == kFloat32 ? 0 : stored);
        const int64_t at = (b * s.hq + hq) * s.sq + i;
        for (int64_t d = 0; d < s.dv; ++d) {
          const Real want = keys ? y[d] / sum : 0;
          ASSERT_NEAR(out[at * s.dv + d], want, probabilities * top + stored * std::abs(want))
              << what << " b " << b << " h " << hq << " i " << i << " d " << d;
        }
        if (keys == 0) {
          ASSERT_EQ(lse[at], -std::numeric_limits<Real>::infinity()) << what;
        } else {
          ASSERT_NEAR(lse[at], std::log(sum), off + (keys + 24) * u + 4 * u * std::abs(std::log(sum))) << what;
        }
      }
  }
}

bool same_bits(const Tensor& a, const Tensor& b) { return testing::to_reals(a) == testing::to_reals(b); }

// Equal scores give the mean of the values, however large they are.
TEST(KvCacheAttention, OfEqualHugeScores) {
  for (DType t : {kFloat32, kBFloat16})
    for (double size : {1e5, -1e5})
      for (int64_t length : {5, 129, 1100}) {  // 1100: in pieces
        const Tensor q = full({1, 1, 1, 16}, size, {.dtype = t}), k = full({1, 1, 1200, 16}, 1e5, {.dtype = t});
        const Tensor v = reshape(remainder(arange(1200.0), 2), {1, 1, 1200, 1}).to(t);
        const KvCacheAttention r =
            attention_with_kv_cache(q, k, v, {.cache_seqlens = full({}, length, {.dtype = kInt64}), .scale = 1});
        const double mean = static_cast<double>(length / 2) / static_cast<double>(length);
        EXPECT_NEAR(r.out.item<float>(), mean, 2 * unit_roundoff(t)) << t << " " << size << " " << length;
        const double score = q.flatten()[0].item<double>() * k.flatten()[0].item<double>() * 16;
        EXPECT_NEAR(r.lse.item<float>(), score, std::abs(score) * 0x1p-22);
      }
}

TEST(AttentionWithKvCache, EveryArgumentIsWhatLoopsCompute) {
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    struct Named {
      const char* name;
      std::function<void(Example&)> change;
      Sizes s = {};
      int64_t entries = 0;
    };
    const RopeTables rope = rope_tables(arange(300), 16), half = rope_tables(arange(300), 8);
    const std::vector<Named> all = {
        {"whole cache", [](Example&) {}},
        {"one length", [](Example& e) { e.o.cache_seqlens = full({}, 129, {.dtype = kInt64}); }},
        {"lengths",
         [](Example& e) {
           e.o.cache_seqlens = Tensor::from_vector<int32_t>({7, 260}, {2});
         }},
        {"nothing held",
         [](Example& e) {
           e.o.cache_seqlens = ints({0, 3}, {2});
         }},
        {"append",
         [](Example& e) {
           e.o.cache_seqlens = ints({0, 200}, {2});
         },
         {.sq = 5, .added = 5}},
        {"append causal",
         [](Example& e) {
           e.o.cache_seqlens = ints({3, 200}, {2}), e.o.causal = true;
         },
         {.sq = 5, .added = 5}},
        {"more keys than queries",
         [](Example& e) {
           e.o.cache_seqlens = ints({3, 200}, {2}), e.o.causal = true;
         },
         {.sq = 3, .added = 20}},
        {"more queries than keys",
         [](Example& e) {
           e.o.cache_seqlens = ints({0, 2}, {2}), e.o.causal = true;
         },
         {.sq = 4, .added = 1}},
        {"window",
         [](Example& e) {
           e.o.cache_seqlens = ints({90, 200}, {2}), e.o.window_size = {20, 0};
         },
         {.sq = 9, .added = 9}},
        {"window to the right",
         [](Example& e) {
           e.o.cache_seqlens = ints({90, 200}, {2}), e.o.window_size = {-1, 3};
         },
         {.sq = 9, .added = 9}},
        {"window causal",
         [](Example& e) {
           e.o.window_size = {130, 5}, e.o.causal = true;
         },
         {.sq = 9}},
        {"softcap",
         [](Example& e) {
           e.o.cache_seqlens = ints({33, 100}, {2}), e.o.softcap = 0.7;
         }},
        {"scale", [](Example& e) { e.o.scale = 0.7; }},
        {"alibi by head",
         [](Example& e) {
           e.o.alibi_slopes = Tensor::from_vector<float>({.1f, .2f, .3f, .4f}, {4});
         },
         {.sq = 3}},
        {"alibi by entry",
         [](Example& e) {
           e.o.cache_seqlens = ints({33, 100}, {2});
           e.o.alibi_slopes = Tensor::from_vector<float>({.1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f}, {2, 4});
         },
         {.sq = 3, .added = 1}},
        {"batch index",
         [](Example& e) {
           e.o.cache_batch_idx = ints({3, 1}, {2}), e.o.cache_seqlens = ints({33, 100}, {2});
         },
         {.added = 1},
         5},
        {"left padding",
         [](Example& e) {
           e.o.cache_leftpad = ints({5, 140}, {2}), e.o.cache_seqlens = ints({50, 200}, {2});
         },
         {.sq = 2, .added = 2}},
        {"pages",
         [](Example& e) {
           e.o.block_table = Tensor::from_vector<int32_t>({5, 2, 0, 6, -1, 1}, {2, 3}),
           e.o.cache_seqlens = ints({40, 17}, {2});
           e.o.block_table = Tensor::from_vector<int32_t>({5, 2, 0, 6, 1, -1}, {2, 3});
         },
         {.capacity = 16, .added = 1},
         7},
        {"rotary interleaved",
         [&](Example& e) {
           e.o.rotary_cos = rope.cos, e.o.rotary_sin = rope.sin, e.o.cache_seqlens = ints({33, 100}, {2});
         },
         {.sq = 3, .added = 3}},
        {"rotary halves, causal",
         [&](Example& e) {
           e.o.rotary_cos = half.cos, e.o.rotary_sin = half.sin, e.o.cache_seqlens = ints({33, 100}, {2});
           e.o.rotary_interleaved = false, e.o.causal = true;
         },
         {.sq = 3, .added = 3}},
        {"rotary in pages",
         [&](Example& e) {
           e.o.rotary_cos = rope.cos, e.o.rotary_sin = rope.sin, e.o.cache_seqlens = ints({33, 0}, {2}),
           e.o.causal = true;
           e.o.block_table = ints({5, 2, 0, 6, 3, 1}, {2, 3});
         },
         {.sq = 15, .capacity = 16, .added = 15},
         7},
        {"multi-query",
         [](Example& e) {
           e.o.cache_seqlens = ints({33, 260}, {2});
         },
         {.hq = 8, .hkv = 1, .dv = 24, .added = 1}},
    };
    for (const Named& n : all) {
      Example e(n.s, t, 1, n.entries);
      n.change(e);
      if (e.o.rotary_cos.defined() || e.o.block_table.defined() || n.s.hkv == 1 || t != kFloat16)
        expect_right(e, e.run(), n.name);
    }
  }
}

TEST(AttentionWithKvCache, AppendsRowsAndLeavesTheRest) {
  Example e({.added = 3}, kBFloat16, 2);
  const RopeTables rope = rope_tables(arange(300), 16);
  e.o.rotary_cos = rope.cos, e.o.rotary_sin = rope.sin, e.o.cache_seqlens = ints({7, 297}, {2});
  const KvCacheAttention r = e.run();
  for (int64_t b = 0; b < 2; ++b) {
    const int64_t at = b ? 297 : 7;
    const RopeTables here{slice(rope.cos, 0, at, at + 3), slice(rope.sin, 0, at, at + 3)};
    const Tensor k = apply_rope(slice(e.o.k, 0, b, b + 1), here, true);
    const Tensor want = dynamic_update_slice(slice(e.k_cache, 0, b, b + 1), k, {0, 0, at, 0});
    EXPECT_TRUE(same_bits(slice(r.k_cache, 0, b, b + 1), want));
    EXPECT_TRUE(
        same_bits(slice(r.v_cache, 0, b, b + 1),
                  dynamic_update_slice(slice(e.v_cache, 0, b, b + 1), slice(e.o.v, 0, b, b + 1), {0, 0, at, 0})));
  }
}

// Pages give the bits of contiguous keys for each number of queries, which choose the kernel, and of threads.
TEST(AttentionWithKvCache, PagesAndThreadsDoNotChangeBits) {
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t page : {16, 48, 128})
      for (const Sizes& s : {Sizes{.sq = 1}, Sizes{.hq = 2, .sq = 1, .d = 40, .dv = 24},
                             Sizes{.hq = 6, .hkv = 1, .sq = 3}, Sizes{.sq = 70}, Sizes{.hq = 1, .hkv = 1, .sq = 300}}) {
        const int64_t pages = 1152 / page;
        Sizes small = s;
        small.capacity = page;
        Example e(small, t, 3, 2 * pages + 1);
        std::vector<int64_t> order;
        for (int64_t i = 0; i < 2 * pages; ++i) order.push_back((i * 5 + 1) % (2 * pages + 1));
        e.o.cache_seqlens = ints({1100, 601}, {2});
        e.o.causal = true;
        // Pages after the end do not exist.
        for (int64_t i = (601 + page - 1) / page; i < pages; ++i) order[pages + i] = i % 2 ? -1 : 1 << 20;
        e.o.block_table = ints(order, {2, pages});
        Example together = e;
        auto gathered = [&](const Tensor& x) {
          const Tensor rows = index_select(x, 0, maximum(minimum(ints(order, {2 * pages}), 2 * pages), 0));
          return reshape(transpose(reshape(rows, {2, pages, s.hkv, page, x.size(3)}), 1, 2),
                         {2, s.hkv, pages * page, x.size(3)})
              .contiguous();
        };
        together.o.block_table = Tensor();
        together.k_cache = gathered(e.k_cache);
        together.v_cache = gathered(e.v_cache);
        const KvCacheAttention want = together.run();
        for (int threads : {1, 3}) {
          ThreadPool pool(threads);
          ScopedPool scope(pool);
          const KvCacheAttention got = e.run();
          EXPECT_TRUE(same_bits(got.out, want.out)) << str_cat(t) << " page " << page << " sq " << s.sq;
          EXPECT_TRUE(same_bits(got.lse, want.lse)) << str_cat(t) << " page " << page << " sq " << s.sq;
        }
      }
}

TEST(AttentionWithKvCache, RowsThatAreNotSeenAreNotRead) {
  for (int64_t sq : {1, 70}) {
    Example e({.sq = sq, .capacity = 600}, kFloat32, 4);
    e.o.cache_seqlens = ints({128, 256}, {2});
    e.o.causal = true;
    const KvCacheAttention want = e.run();
    const Tensor behind = ge(arange(600), reshape(e.o.cache_seqlens, {2, 1, 1}));
    const Tensor nan = full({}, std::numeric_limits<float>::quiet_NaN());
    e.k_cache = where(unsqueeze(behind, -1), nan, e.k_cache);
    e.v_cache = where(unsqueeze(behind, -1), nan, e.v_cache);
    EXPECT_TRUE(same_bits(e.run().out, want.out));
  }
}

TEST(AttentionWithKvCache, DerivativesAreCentralDifferences) {
  for (bool paged : {false, true}) {
    Example e({.b = 2, .hq = 2, .hkv = 1, .sq = 2, .capacity = 4, .d = 4, .dv = 3, .added = 2}, kFloat64, 5,
              paged ? 5 : 0);
    const RopeTables rope = rope_tables(arange(12), 4);
    e.o.rotary_cos = cast(rope.cos, kFloat64), e.o.rotary_sin = cast(rope.sin, kFloat64);
    e.o.cache_seqlens = ints({1, paged ? 5 : 2}, {2});
    e.o.causal = true;
    e.o.softcap = 2;
    if (paged) e.o.block_table = ints({3, -1, 1, 4}, {2, 2});
    auto fn = [&](std::span<const Tensor> in) {
      Options o = e.o;
      o.k = in[3], o.v = in[4];
      const KvCacheAttention r = attention_with_kv_cache(in[0], in[1], in[2], o);
      return std::vector<Tensor>{r.out, r.lse, r.k_cache};
    };
    EXPECT_TRUE(testing::gradcheck(fn, std::vector<Tensor>{e.q, e.k_cache, e.v_cache, e.o.k, e.o.v})) << paged;
  }
}

// The kernel reads the pages in f32: results equal the gathered form.
TEST(AttentionWithKvCache, DerivativesOfPagesAreThoseOfTheirRows) {
  Example e({.b = 2, .hq = 4, .hkv = 2, .sq = 3, .capacity = 16, .added = 3}, kFloat32, 6, 6);
  e.o.cache_seqlens = ints({20, 11}, {2});
  e.o.block_table = ints({5, 2, 3, 1}, {2, 2});
  auto gradients = [&](DType t) {
    std::vector<Tensor> in;
    for (const Tensor* x : {&e.q, &e.k_cache, &e.v_cache, &e.o.k, &e.o.v}) in.push_back(cast(*x, t).requires_grad());
    Options o = e.o;
    o.k = in[3], o.v = in[4];
    const Tensor y = attention_with_kv_cache(in[0], in[1], in[2], o).out;
    return grad(sum(y * cos(reshape(arange(y.numel(), {.dtype = t}), y.shape()))), in);
  };
  const std::vector<Tensor> got = gradients(kFloat32), want = gradients(kFloat64);
  for (size_t i = 0; i < got.size(); ++i) {
    const std::vector<Real> g = testing::to_reals(got[i]), w = testing::to_reals(want[i]);
    // 23 keys of 16 products, values up to 1 and weights up to 1; each gradient is a sum over at most 12 rows of 2
    // heads.
    for (size_t j = 0; j < w.size(); ++j)
      ASSERT_NEAR(g[j], w[j], 24 * (2 * (16 + 8) + 23 + 24) * unit_roundoff(kFloat32)) << i;
  }
}

TEST(AttentionWithKvCache, CompiledWritesTheCacheInPlace) {
  for (bool paged : {false, true}) {
    Example e({.capacity = paged ? 16 : 64, .added = 1}, kFloat32, 7, paged ? 8 : 0);
    Buffer keys(e.k_cache + 0.0), values(e.v_cache + 0.0), length(ints({3, 20}, {2}));
    Tensor eager_k = e.k_cache, eager_v = e.v_cache;
    if (paged) e.o.block_table = ints({7, 1, 2, 3, 0, 4, 5, 6}, {2, 4});
    auto step = compile([&](Tensor q, Tensor k, Tensor v) {
      Options o = e.o;
      o.k = k, o.v = v, o.cache_seqlens = length.value(), o.causal = true;
      const KvCacheAttention r = attention_with_kv_cache(q, keys, values, o);
      keys.set(r.k_cache);
      values.set(r.v_cache);
      length.set(length.value() + 1);
      return r.out;
    });
    for (int64_t i = 0; i < 4; ++i) {
      Options o = e.o;
      o.cache_seqlens = ints({3 + i, 20 + i}, {2}), o.causal = true;
      const KvCacheAttention want = attention_with_kv_cache(e.q, eager_k, eager_v, o);
      eager_k = want.k_cache, eager_v = want.v_cache;
      EXPECT_TRUE(same_bits(step(e.q, e.o.k, e.o.v), want.out)) << i;
      EXPECT_TRUE(same_bits(keys.value(), eager_k) && same_bits(values.value(), eager_v)) << i;
    }
    const std::string report = step.report();
    EXPECT_NE(report.find("3 cells, 3 written in place, 0 to fresh storage"), report.npos) << report;
    EXPECT_EQ(report.find("copies of"), report.npos);
  }
}

TEST(AttentionWithKvCache, CompiledChecksItsLengths) {
  const Example e({.added = 2}, kFloat32, 8);
  auto error = [&](const Tensor& lengths, const Tensor& padding, bool append) {
    auto step = compile([&](Tensor n, Tensor p) {
      Options o = e.o;
      if (!append) o.k = o.v = Tensor();
      o.cache_seqlens = n, o.cache_leftpad = p;
      return attention_with_kv_cache(e.q, e.k_cache, e.v_cache, o).out;
    });
    return error_of([&] { step(lengths, padding); });
  };
  auto wrong = [](int64_t n, int64_t most) {
    return str_cat("attention_with_kv_cache: an index is not a position: index_select: index ", n,
                   " at position 1 is out of range; need 0 to ", most);
  };
  const Tensor good = ints({3, 20}, {2}), none = ints({0, 0}, {2});
  for (bool append : {false, true}) {
    EXPECT_EQ(error(good, none, append), "");
    for (int64_t n : {int64_t{-1}, int64_t{301}, INT64_MAX}) {
      EXPECT_EQ(error(ints({3, n}, {2}), none, append), wrong(n, append ? 298 : 300));
      EXPECT_EQ(error(good, ints({3, n}, {2}), append), wrong(n, 300));
    }
  }
}

TEST(AttentionWithKvCache, BadArguments) {
  const Example good({.added = 2}, kFloat32, 8);
  auto error = [&](auto change) {
    Example e = good;
    e.o.cache_seqlens = ints({3, 20}, {2});
    change(e);
    return error_of([&] { e.run(); });
  };
  auto says = [](const std::string& got, const char* want) {
    EXPECT_NE(got.find(want), got.npos) << got << "\nneed: " << want;
  };
  EXPECT_EQ(error([](Example&) {}), "");
  says(error([](Example& e) {
         e.q = reshape(e.q, {8, 16});
       }),
       "need [B, Hq, Sq, D] and [B, Hkv, capacity, D] (of [B, S, H, D], transpose(1, 2))");
  says(error([](Example& e) { e.q = e.q.to(kBFloat16); }),
       "dtypes of q, k_cache, v_cache are bf16, f32, f32; need one, as in q.to(k_cache.dtype())");
  says(error([](Example& e) { e.v_cache = slice(e.v_cache, 1, 0, 1); }), "Hq a multiple of Hkv");
  says(error([](Example& e) {
         e.o.cache_seqlens = ints({1, 2, 3}, {3});
       }),
       "cache_seqlens is i64[3] for q of 2 entries; need integers [B], or 0-d for all, B = 2");
  says(error([](Example& e) {
         e.o.cache_seqlens = ints({1, 299}, {2});
       }),
       "cache_seqlens[1] is 299 and 2 tokens are appended to a cache of 300 rows; need 0 to 298");
  says(error([](Example& e) { e.o.cache_seqlens = Tensor(); }), "got k and v to append and no cache_seqlens");
  says(error([](Example& e) { e.o.v = Tensor(); }), "got only one of k and v to append; need both or none");
  says(error([](Example& e) { e.o.k = slice(e.o.k, 1, 0, 1); }),
       "need [2, 2, Snew, 16] and [2, 2, Snew, 16] of its dtype");
  says(error([](Example& e) {
         e.o.cache_batch_idx = ints({0, 2}, {2});
       }),
       "cache_batch_idx has 2; need entries of k_cache [2, 2, 300, 16], 0 to 1");
  says(error([](Example& e) { e.o.cache_batch_idx = ints({0}, {1}); }),
       "cache_batch_idx is i64[1] for q of 2 entries; need integers [B], B = 2");
  says(error([](Example& e) {
         e.o.cache_batch_idx = ints({0, 1}, {2}), e.o.block_table = ints({0, 1}, {2, 1});
       }),
       "got both cache_batch_idx and block_table; need one");
  says(error([](Example& e) {
         e.o.block_table = ints({0, 1}, {2});
       }),
       "block_table is i64[2] for q of 2 entries; need integers [B, pages of an entry]");
  says(error([](Example& e) {
         e.o.block_table = ints({0, 7}, {2, 1});
       }),
       "appended to page block_table[1][0], which is 7; need a page of [0, 2)");
  says(error([](Example& e) {
         e.o.block_table = ints({0, 7}, {2, 1}), e.o.k = e.o.v = Tensor();
       }),
       "is visible, but page_table[1][0] is 7; need a page of [0, 2)");
  says(error([](Example& e) { e.o.cache_leftpad = full({2}, 0.5f); }), "cache_leftpad is f32[2]");
  says(error([](Example& e) {
         e.o.cache_leftpad = ints({0, -1}, {2});
       }),
       "cache_leftpad[1] is -1 for a cache of 300 rows; need 0 to 300");
  says(error([](Example& e) {
         e.o.cache_seqlens = ints({3, INT64_MAX}, {2});
       }),
       "cache_seqlens[1] is 9223372036854775807 and 2 tokens are appended to a cache of 300 rows; need 0 to 298");
  says(error([](Example& e) {
         e.k_cache = e.v_cache = zeros({3, 2, 300, 16});
       }),
       "has 3 entries and q [2, 4, 1, 16] has 2; need equal numbers, or .cache_batch_idx");
  says(error([](Example& e) { e.o.rotary_cos = zeros({300, 8}); }), "got only one of rotary_cos and rotary_sin");
  says(error([](Example& e) {
         e.o.rotary_cos = e.o.rotary_sin = zeros({300, 9});
       }),
       "need [positions, R / 2] with R of 2 to 16");
  says(error([](Example& e) {
         e.o.rotary_cos = e.o.rotary_sin = zeros({21, 8});
       }),
       "rotary_cos [21, 8] ends before position 21");
  says(error([](Example& e) {
         e.o.k = e.o.v = Tensor(), e.o.rotary_cos = e.o.rotary_sin = zeros({300, 8});
       }),
       "got rotary_cos and no k to append");
  says(error([](Example& e) {
         e.o.window_size = {-2, 0};
       }),
       "window_size is (-2, 0); need 0 or more keys on each side, or -1 for all, as in {256, 0}");
  says(error([](Example& e) { e.o.softcap = -1; }), "softcap is -1; need 0 for none");
  says(error([](Example& e) { e.o.alibi_slopes = zeros({3}); }),
       "alibi_slopes is f32[3]; need floating-point values [4] or [2, 4]");
}

}  // namespace
}  // namespace weft
