// Tests lists of blocks against a dense builder on random masks; soundness of the analysis; names of blocks; limits.
#include "ops/attention/masks/block_mask_build.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

#include "framework/base/thread_pool.h"
#include "framework/dispatch/interpreter.h"
#include "ops/attention/masks/mask_analysis.h"
#include "ops/attention/testing/random_mask.h"

namespace weft::internal {
namespace {

using kernels::BlockRange;
using testing::RandomMask;

BlockLists lists_of(const MaskProgram& p, const BlockBuildOptions& o) {
  return build_block_lists(p, p.narrowed(o.batch, o.heads, o.q_len, o.kv_len), o);
}

// Evaluates one point by the interpreter of the traced graph.
bool by_interpreter(const Body& body, int64_t b, int64_t h, int64_t q, int64_t kv) {
  std::vector<Tensor> in;
  for (int64_t i : {b, h, q, kv}) in.push_back(full({}, i, {.dtype = kInt64}));
  in.insert(in.end(), body.lifted.begin(), body.lifted.end());
  return interpret(*body.graph, in)[0].item<bool>();
}

// Evaluates the whole mask by the program, in one piece.
std::vector<uint8_t> filled(const MaskProgram& p, int64_t b, int64_t h, int64_t q_len, int64_t kv_len) {
  const int64_t row_bytes = (kv_len + 7) / 8 + 3;
  std::vector<uint8_t> bits(q_len * row_bytes, 0xaa), out(q_len * kv_len);
  p.fill({b, h, 0, 0, q_len, kv_len}, bits.data(), row_bytes);
  for (int64_t q = 0; q < q_len; ++q) {
    for (int64_t kv = 0; kv < row_bytes * 8; ++kv) {
      const uint8_t on = bits[q * row_bytes + kv / 8] >> kv % 8 & 1;
      if (kv < kv_len) {
        out[q * kv_len + kv] = on;
      } else {
        EXPECT_EQ(on, 0) << "beyond the row";
      }
    }
  }
  return out;
}

struct Want {
  std::vector<int64_t> offsets{0};
  std::vector<BlockRange> ranges;
  std::vector<std::vector<uint8_t>> tiles;
};
// Adds the rows of one (b, h) by evaluating every point.
void dense_rows(const std::vector<uint8_t>& m, const BlockLists& l, Want& want) {
  for (int64_t r = 0; r < l.q_blocks(); ++r) {
    const size_t begin = want.ranges.size();
    for (int64_t c = 0; c < l.kv_blocks(); ++c) {
      std::vector<uint8_t> tile(l.block_q * l.block_kv / 8);
      bool any = false, all = true;
      for (int64_t i = 0; i < l.block_q; ++i)
        for (int64_t j = 0; j < l.block_kv; ++j) {
          const int64_t q = r * l.block_q + i, kv = c * l.block_kv + j;
          if (q >= l.q_len || kv >= l.kv_len) continue;
          const bool on = m[q * l.kv_len + kv];
          any |= on;
          all &= on;
          tile[(i * l.block_kv + j) / 8] |= static_cast<uint8_t>(on << j % 8);
        }
      if (!any) continue;
      int32_t t = BlockRange::kFull;
      if (!all) {
        t = static_cast<int32_t>(std::find(want.tiles.begin(), want.tiles.end(), tile) - want.tiles.begin());
        if (t == static_cast<int32_t>(want.tiles.size())) want.tiles.push_back(tile);
      }
      const int32_t at = static_cast<int32_t>(c);
      if (want.ranges.size() > begin && want.ranges.back().last == at && want.ranges.back().tile == t) {
        ++want.ranges.back().last;
      } else {
        want.ranges.push_back({at, at + 1, t});
      }
    }
    want.offsets.push_back(static_cast<int64_t>(want.ranges.size()));
  }
}

std::vector<uint8_t> tile_bytes(const BlockLists& l, int32_t t) {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(l.tiles.data() + t * l.tile_words());
  return {p, p + l.tile_words() * 8};
}

// Checks for the same ranges, with tiles of the same bytes, and no tile stored twice.
void expect_equal(const BlockLists& got, const Want& want) {
  ASSERT_EQ(got.offsets, want.offsets);
  ASSERT_EQ(got.ranges.size(), want.ranges.size());
  std::vector<int32_t> number(want.tiles.size(), -1);
  for (size_t i = 0; i < got.ranges.size(); ++i) {
    const BlockRange &g = got.ranges[i], &w = want.ranges[i];
    ASSERT_TRUE(g.first == w.first && g.last == w.last) << i;
    ASSERT_EQ(g.tile < 0 ? g.tile : 0, w.tile < 0 ? w.tile : 0) << i;
    if (w.tile < 0) continue;
    if (number[w.tile] < 0) {
      number[w.tile] = g.tile;
      ASSERT_EQ(tile_bytes(got, g.tile), want.tiles[w.tile]) << i;
    }
    ASSERT_EQ(number[w.tile], g.tile) << i;
  }
  EXPECT_EQ(static_cast<int64_t>(got.tiles.size()), static_cast<int64_t>(want.tiles.size()) * got.tile_words());
}

BlockLists build(const MaskMod& mask, int64_t B, int64_t H, int64_t q_len, int64_t kv_len, int64_t bq = 128,
                 int64_t bkv = 128) {
  return lists_of(MaskProgram(mask),
                  {.batch = B, .heads = H, .q_len = q_len, .kv_len = kv_len, .block_q = bq, .block_kv = bkv});
}

TEST(BlockMaskBuild, EqualsDenseOnRandomMasks) {
  int partial = 0, full = 0, skipped = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 rng(seed);
    const int64_t B = 1 + rng() % 2, H = 1 + rng() % 2, q_len = 1 + rng() % 700, kv_len = 1 + rng() % 700;
    const int64_t sizes[] = {64, 128, 256}, bq = sizes[rng() % 3], bkv = sizes[rng() % 3];
    SCOPED_TRACE(
        str_cat("seed ", seed, " B ", B, " H ", H, " lengths ", q_len, " x ", kv_len, " blocks ", bq, " x ", bkv));
    const MaskMod mask = RandomMask(seed, B, H, q_len, kv_len).mask();
    const MaskProgram program(mask);
    const Body body = trace_mask(mask);
    const MaskProgram narrow = program.narrowed(B, H, q_len, kv_len);
    const BlockLists got =
        lists_of(program, {.batch = B, .heads = H, .q_len = q_len, .kv_len = kv_len, .block_q = bq, .block_kv = bkv});
    Want want;
    for (int64_t b = 0; b < got.batch; ++b)
      for (int64_t h = 0; h < got.heads; ++h) {
        const std::vector<uint8_t> m = filled(program, b, h, q_len, kv_len);
        ASSERT_EQ(m, filled(narrow, b, h, q_len, kv_len));
        for (int i = 0; i < (seed % 4 ? 0 : 10); ++i) {
          const int64_t q = rng() % q_len, kv = rng() % kv_len;
          ASSERT_EQ(m[q * kv_len + kv], by_interpreter(body, b, h, q, kv)) << b << " " << h << " " << q << " " << kv;
        }
        dense_rows(m, got, want);
      }
    ASSERT_NO_FATAL_FAILURE(expect_equal(got, want));
    if (seed % 16 == 0) {  // stored once only if all are the same
      for (int64_t b = 0; b < B; ++b)
        for (int64_t h = 0; h < H; ++h)
          ASSERT_EQ(filled(program, b, h, q_len, kv_len), filled(program, b % got.batch, h % got.heads, q_len, kv_len));
    }
    for (const BlockRange& r : got.ranges) (r.tile < 0 ? full : partial) += r.last - r.first;
    skipped += static_cast<int>(got.batch * got.heads * got.q_blocks() * got.kv_blocks());
  }
  // The expressions are varied enough to be a meaningful test.
  EXPECT_GT(partial, 3000);
  EXPECT_GT(full, 3000);
  EXPECT_GT(skipped, full + partial + 3000);
}

TEST(BlockMaskBuild, AnalysisIsSound) {
  int definite = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 rng(seed + 77);
    const int64_t q_len = 200, kv_len = 160;
    const MaskMod mask = RandomMask(seed + 100000, 2, 2, q_len, kv_len).mask();
    const MaskProgram program(mask);
    TableBounds bounds;
    MaskAnalysis analysis(program, bounds, 1, 1);
    const std::vector<uint8_t> m = filled(program, 1, 1, q_len, kv_len);
    for (int i = 0; i < 10; ++i) {
      const int64_t rows = 1 + rng() % 40, cols = 1 + rng() % 40, q0 = rng() % (q_len - rows + 1),
                    kv0 = rng() % (kv_len - cols + 1);
      const MaskRange& r = analysis.over(q0, q0 + rows, kv0, kv0 + cols);
      definite += r.constant();
      for (int64_t q = q0; q < q0 + rows; ++q)
        for (int64_t kv = kv0; kv < kv0 + cols; ++kv)
          ASSERT_TRUE(r.contains(m[q * kv_len + kv])) << "seed " << seed << " at " << q << ", " << kv;
    }
  }
  EXPECT_GT(definite, 5000);
}

TEST(BlockMaskBuild, CausalOfAMillionIsSmall) {
  constexpr int64_t n = int64_t{1} << 20;
  const BlockLists l = build([](Index, Index, Index q, Index kv) { return q >= kv; }, 4, 8, n, n);
  EXPECT_EQ(l.batch, 1);
  EXPECT_EQ(l.heads, 1);
  EXPECT_EQ(static_cast<int64_t>(l.tiles.size()), l.tile_words());  // one tile for the whole diagonal
  EXPECT_EQ(static_cast<int64_t>(l.ranges.size()), 2 * l.q_blocks() - 1);
  const BlockColumns c = transpose_lists(l);
  EXPECT_EQ(c.ranges.size(), l.ranges.size());
  EXPECT_LT(l.bytes() + static_cast<int64_t>(c.offsets.size() * 8 + c.ranges.size() * sizeof(BlockRange)), 1 << 20);
}

TEST(BlockMaskBuild, SortedDocumentsAreExactWithoutTiles) {
  constexpr int64_t n = 1 << 17, doc = 1024;
  std::vector<int64_t> ids(n);
  for (int64_t i = 0; i < n; ++i) ids[i] = i / doc;
  const Tensor t = Tensor::from_vector<int64_t>(ids, {n});
  const BlockLists l = build([&](Index, Index, Index q, Index kv) { return t[q] == t[kv]; }, 1, 1, n, n);
  EXPECT_TRUE(l.tiles.empty());
  ASSERT_EQ(static_cast<int64_t>(l.ranges.size()), l.q_blocks());
  for (int64_t r = 0; r < l.q_blocks(); ++r) {
    EXPECT_EQ(l.ranges[r].first, r / 8 * 8);
    EXPECT_EQ(l.ranges[r].last, r / 8 * 8 + 8);
  }
}

TEST(BlockMaskBuild, TilesBeyondThePoolAreUnknown) {
  const MaskMod noise = [](Index, Index, Index q, Index kv) { return bit_and(q * kv, 4) == 0; };
  const MaskProgram p(noise);
  BlockBuildOptions o{.q_len = 1000, .kv_len = 1000};
  const BlockLists all = lists_of(p, o);
  o.max_tile_bytes = 2 * 2048;
  const BlockLists some = lists_of(p, o);
  EXPECT_EQ(static_cast<int64_t>(some.tiles.size()), 2 * some.tile_words());
  int64_t unknown = 0;
  for (const BlockRange& r : some.ranges) unknown += r.tile == BlockRange::kUnknown ? r.last - r.first : 0;
  EXPECT_GT(unknown, 0);
  EXPECT_GT(all.tiles.size(), some.tiles.size());

  // Their scores count as visible, which makes the number a bound.
  double visible = 0;
  for (int64_t q = 0; q < 1000; ++q)
    for (int64_t kv = 0; kv < 1000; ++kv) visible += (q * kv & 4) == 0;
  EXPECT_EQ(visible_scores(all.view()).count, visible);
  EXPECT_FALSE(visible_scores(all.view()).at_most);
  EXPECT_GT(visible_scores(some.view()).count, visible);
  EXPECT_LE(visible_scores(some.view()).count, 1000.0 * 1000);
  EXPECT_TRUE(visible_scores(some.view()).at_most);
}

// Some blocks have bits that are not stored. Neighbouring heads share keys; one case has keys for all entries.
TEST(BlockMaskBuild, CountsScoresAndKeysPointByPoint) {
  constexpr int64_t kBatch = 2, kHeads = 4, kQ = 150, kKv = 333;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const MaskProgram p(RandomMask(seed, kBatch, kHeads, kQ, kKv).mask());
    const int64_t kv_batch = seed % 3 ? kBatch : 1, kv_heads = seed % 2 ? 2 : kHeads;
    double scores = 0;
    std::set<std::array<int64_t, 3>> keys;
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h) {
        const std::vector<uint8_t> m = filled(p, b, h, kQ, kKv);
        for (int64_t i = 0; i < kQ * kKv; ++i) {
          scores += m[i];
          if (m[i]) keys.insert({kv_batch == 1 ? 0 : b, h / (kHeads / kv_heads), i % kKv});
        }
      }
    for (const int64_t stored : {int64_t{32} << 20, int64_t{0}}) {
      const BlockLists lists = lists_of(p, {kBatch, kHeads, kQ, kKv, 64, 128, stored});
      const kernels::MaskFill fill = p.fill_hook();
      const MaskCount got = count_mask(lists.view(), &fill, kBatch, kHeads, kv_batch, kv_heads);
      EXPECT_EQ(got.scores, scores) << seed;
      EXPECT_EQ(got.keys, static_cast<double>(keys.size())) << seed;
    }
  }
}

TEST(BlockMaskBuild, SameListsForAnyThreadCount) {
  const MaskMod mask = RandomMask(5, 2, 3, 5000, 5000).mask();
  const MaskProgram p(mask);
  auto lists = [&](int threads) {
    ThreadPool pool(threads);
    ScopedPool scoped(pool);
    return lists_of(p, {.batch = 2, .heads = 3, .q_len = 5000, .kv_len = 5000, .block_q = 64, .independent = false});
  };
  const BlockLists one = lists(1), many = lists(5);
  EXPECT_EQ(one.offsets, many.offsets);
  EXPECT_EQ(one.tiles, many.tiles);
  ASSERT_EQ(one.ranges.size(), many.ranges.size());
  EXPECT_EQ(std::memcmp(one.ranges.data(), many.ranges.data(), one.ranges.size() * sizeof(BlockRange)), 0);
}

TEST(BlockMaskBuild, ColumnsAreTheTranspose) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int64_t q_len = 300 + 7 * seed, kv_len = 2000 - 5 * seed;
    const BlockLists l = build(RandomMask(seed, 1, 2, q_len, kv_len).mask(), 1, 2, q_len, kv_len, 64, 128);
    const BlockColumns c = transpose_lists(l);
    const int64_t rows = l.q_blocks(), cols = l.kv_blocks();
    std::vector<int32_t> by_row(l.heads * rows * cols, kEmptyBlock), by_column = by_row;
    for (int64_t r = 0; r < l.heads * rows; ++r)
      for (int64_t i = l.offsets[r]; i < l.offsets[r + 1]; ++i)
        for (int32_t k = l.ranges[i].first; k < l.ranges[i].last; ++k) by_row[r * cols + k] = l.ranges[i].tile;
    for (int64_t k = 0; k < l.heads * cols; ++k)
      for (int64_t i = c.offsets[k]; i < c.offsets[k + 1]; ++i) {
        if (i > c.offsets[k]) {
          EXPECT_LE(c.ranges[i - 1].last, c.ranges[i].first);
        }
        for (int32_t r = c.ranges[i].first; r < c.ranges[i].last; ++r)
          by_column[(k / cols * rows + r) * cols + k % cols] = c.ranges[i].tile;
      }
    EXPECT_EQ(by_row, by_column) << seed;
  }
}

TEST(BlockMaskBuild, IndexBeyondATableNamesTableAndPoint) {
  const Tensor doc = Tensor::from_vector<int64_t>(std::vector<int64_t>(1000, 3), {1000});
  const MaskMod same = [&](Index, Index, Index q, Index kv) { return (doc[q] == doc[kv]) & (kv < 5); };
  auto message = [&](int64_t q_len, int64_t kv_len) -> std::string {
    try {
      build(same, 1, 1, q_len, kv_len);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kOutOfRange);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message(1000, 1000), "");
  const std::string m = message(1024, 900);
  EXPECT_NE(
      m.find("mask_mod: index 1000 is out of range for a captured i64[1000] at (b 0, h 0, q 1000, kv 0), read at "),
      std::string::npos)
      << m;
  EXPECT_NE(m.find("block_mask_build_test.cc:"), std::string::npos) << m;
}

}  // namespace
}  // namespace weft::internal
