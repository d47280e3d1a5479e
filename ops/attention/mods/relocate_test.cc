// Tests attention_on_shard: a call is split into parts of batch, heads, queries and keys; the assembled results equal
// the whole's, forward and backward, in f64 within 1e-12 and in f32 within bounds of the roundings.
#include "ops/attention/mods/relocate.h"

#include "ops/attention/masks/call_mask.h"
#include "ops/attention/merge.h"
#include "ops/attention/testing/shard_cases.h"

namespace weft {
namespace {

using testing::Assembled;
using testing::error_of;
using testing::Random;
using testing::shard_cases;
using testing::ShardBounds;
using testing::ShardSizes;
using testing::WholeCall;

/// One part of a dim: its positions in the whole, and its map.
struct DimPart {
  std::vector<int64_t> at;
  IndexMap map;
};
using Parts = std::vector<DimPart>;

Tensor number(int64_t x) { return full({}, x, {.dtype = kInt64}); }

/// Ranges between neighbouring bounds.
Parts ranges(const std::vector<int64_t>& bounds) {
  Parts p;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    DimPart part;
    for (int64_t x = bounds[i]; x < bounds[i + 1]; ++x) part.at.push_back(x);
    part.map = {.offset = number(bounds[i]), .extent = bounds.back()};
    p.push_back(part);
  }
  return p;
}
/// Rank i owns chunks i and 2c - 1 - i: one table for all ranks, and offsets into it.
Parts head_tail(int64_t n, int64_t c) {
  const int64_t chunk = n / (2 * c);
  std::vector<int64_t> all;
  Parts p;
  for (int64_t i = 0; i < c; ++i) {
    DimPart part;
    for (int64_t first : {i * chunk, (2 * c - 1 - i) * chunk})
      for (int64_t x = 0; x < chunk; ++x) part.at.push_back(first + x), all.push_back(first + x);
    p.push_back(part);
  }
  for (int64_t i = 0; i < c; ++i)
    p[static_cast<size_t>(i)].map = {
        .offset = number(i * 2 * chunk), .table = Tensor::from_vector<int64_t>(all, {n}), .extent = n};
  return p;
}
Parts whole(int64_t n) {
  Parts p = ranges({0, n});
  p[0].map = {};
  return p;
}

Tensor taken(const Tensor& t, int64_t dim, const std::vector<int64_t>& at) {
  return index_select(t, dim, Tensor::from_vector<int64_t>(at, {static_cast<int64_t>(at.size())}));
}
Tensor taken(Tensor t, const std::vector<std::vector<int64_t>>& at) {
  for (size_t d = 0; d < at.size(); ++d) t = taken(t, static_cast<int64_t>(d), at[d]);
  return t;
}

struct Cut {
  Parts b, h, q, kv;
};

void expect_whole(const WholeCall& w, const Cut& cut, const ShardBounds& bounds, bool by_mask = true) {
  const internal::AttentionOperands at(w.call.attrs);
  const std::vector<Tensor>& x = w.call.operands;
  std::vector<Assembled> out(w.out.begin(), w.out.end()), back(w.back.begin(), w.back.end());
  for (const DimPart& b : cut.b)
    for (const DimPart& h : cut.h)
      for (const DimPart& q : cut.q) {
        const int64_t group = w.s.group();
        std::vector<int64_t> kv_heads;
        for (int64_t head = h.at.front() / group; head <= h.at.back() / group; ++head) kv_heads.push_back(head);
        auto operands = [&](const DimPart& kv) {
          std::vector<Tensor> in{taken(x[0], {b.at, h.at, q.at}), taken(x[1], {b.at, kv_heads, kv.at}),
                                 taken(x[2], {b.at, kv_heads, kv.at})};
          in.insert(in.end(), x.begin() + 3, x.end());
          return in;
        };
        const std::vector<std::vector<int64_t>> rows{b.at, h.at, q.at};
        PartialAttention sum;
        for (const DimPart& kv : cut.kv) {
          const ShardMaps maps{b.map, h.map, q.map, kv.map};
          if (by_mask) {
            EXPECT_EQ(internal::relocated(w.call.attrs, operands(kv), maps).attrs.i("block_q"), 0);
          }
          const std::vector<Tensor> r =
              attention_on_shard(w.call.attrs, operands(kv), maps, {.wide = cut.kv.size() > 1});
          const PartialAttention p{r[0], r[1], r[2]};
          sum = sum.out.defined() ? merge_attention(sum, p, internal::softmax_scale(w.call.attrs)) : p;
        }
        out[0].add(sum.out, rows), out[1].add(sum.log_sum, rows), out[2].add(sum.max, rows);
        for (const DimPart& kv : cut.kv) {
          std::vector<Tensor> in = operands(kv);
          for (const Tensor* t : {&w.out[0], &w.out[1], &w.out[2], &w.upstream[0], &w.upstream[1]})
            in.push_back(taken(*t, rows));
          const std::vector<Tensor> g =
              attention_backward_on_shard(w.call.attrs, in, {b.map, h.map, q.map, kv.map}, {.wide = true});
          ASSERT_EQ(g.size(), w.back.size());
          back[0].add(g[0], rows);
          for (size_t i : {1, 2}) back[i].add(g[i], {b.at, kv_heads, kv.at});
          for (size_t i = 3; i < g.size(); ++i) back[i].add(g[i], {});
        }
      }
  EXPECT_TRUE(out[0].is(w.out[0], bounds.out));
  for (size_t i : {1, 2}) EXPECT_TRUE(out[i].is(w.out[i], bounds.lse)) << i;
  EXPECT_TRUE(back[0].is(w.back[0], bounds.dq));
  for (size_t i : {1, 2}) EXPECT_TRUE(back[i].is(w.back[i], bounds.dk)) << i;
  for (size_t i = 3; i < w.back.size(); ++i) EXPECT_TRUE(back[i].is(w.back[i], bounds.table)) << i;
}

std::vector<std::pair<const char*, Cut>> cuts(const ShardSizes& s) {
  return {
      {"batch", {ranges({0, 1, 2}), whole(s.hq), whole(s.sq), whole(s.skv)}},
      {"heads", {whole(s.b), ranges({0, 2, 4}), whole(s.sq), whole(s.skv)}},
      {"heads finer than key heads", {whole(s.b), ranges({0, 1, 2, 3, 4}), whole(s.sq), whole(s.skv)}},
      {"queries, uneven", {whole(s.b), whole(s.hq), ranges({0, 7, 8, s.sq}), whole(s.skv)}},
      {"keys, uneven", {whole(s.b), whole(s.hq), whole(s.sq), ranges({0, 13, 14, s.skv})}},
      {"head-tail queries and keys", {whole(s.b), whole(s.hq), head_tail(s.sq, 2), head_tail(s.skv, 4)}},
      {"all", {ranges({0, 1, 2}), ranges({0, 2, 4}), head_tail(s.sq, 2), ranges({0, 20, s.skv})}},
  };
}

TEST(Relocate, PartsAreTheWholeInF64) {
  const ShardSizes s;
  ShardBounds bounds(s, kFloat64, true);
  bounds.out = bounds.lse = bounds.dq = bounds.dk = bounds.table = 1e-12;
  for (const testing::ShardCase& c : shard_cases()) {
    const WholeCall w(s, kFloat64, c, 1);
    for (const auto& [name, cut] : cuts(s)) {
      SCOPED_TRACE(str_cat(c.name, ", ", name));
      expect_whole(w, cut, bounds);
    }
  }
}

TEST(Relocate, PartsAreTheWholeInKernels) {
  const ShardSizes s;
  for (const testing::ShardCase& c : shard_cases()) {
    const WholeCall w(s, kFloat32, c, 2);
    for (const auto& [name, cut] : cuts(s)) {
      SCOPED_TRACE(str_cat(c.name, ", ", name));
      expect_whole(w, cut, ShardBounds(s, kFloat32, std::string(c.name) == "dropout"));
    }
  }
}

TEST(Relocate, TablesWithoutGradients) {
  const ShardSizes s;
  const testing::ShardCase c = shard_cases()[8];  // two tables
  for (DType t : {kFloat32, kFloat64})
    for (int64_t fixed : {1, 2, 3}) {
      const WholeCall w(s, t, c, 4, fixed);
      ASSERT_EQ(w.back.size(), fixed == 3 ? 3u : 4u);
      for (const auto& [name, cut] : cuts(s)) {
        SCOPED_TRACE(str_cat(t, ", fixed ", fixed, ", ", name));
        expect_whole(w, cut, ShardBounds(s, t, false));
      }
    }
}

// bf16: wide results are not rounded to bf16; operands of products are.
TEST(Relocate, PartsAreTheWholeInBFloat16) {
  const ShardSizes s;
  const WholeCall w(s, kBFloat16, shard_cases()[1], 3);
  const ShardBounds bounds(s, kBFloat16, false);
  for (const auto& [name, cut] : cuts(s)) {
    SCOPED_TRACE(name);
    expect_whole(w, cut, bounds);
  }
}

// Lists of blocks: contiguous rows are taken from the whole's lists; other lists are made again from the mask.
TEST(Relocate, BlockLists) {
  const ShardSizes s{.sq = 320, .skv = 256, .d = 4, .dv = 4};
  auto mask = [](bool batch, bool heads) {
    return testing::ShardCase{
        "", [=](const ShardSizes& s, DType, Random&) {
          const MaskMod m = [=](Index b, Index h, Index q, Index kv) {
            Tensor at = q - 30;
            if (batch) at = at + b * 70;
            if (heads) at = at - h * 20;
            return at >= kv;
          };
          return FlexAttentionOptions{.block_mask = create_block_mask(m, batch ? s.b : 1, heads ? s.hq : 1, s.sq, s.skv,
                                                                      {.block_size = {64, 64}})};
        }};
  };
  auto blocks = [](Parts p, int64_t unit) {
    for (DimPart& x : p) x.map.multiple = unit;
    return p;
  };
  const Parts rows = blocks(ranges({0, 64, 192, s.sq}), 64), heads = ranges({0, 2, 4}), batch = ranges({0, 1, 2});
  struct SplitCase {
    bool batch, heads;
    Cut cut;
    bool sliced;
  };
  const SplitCase all[] = {
      {false, false, {whole(2), whole(4), rows, whole(s.skv)}, true},
      {false, false, {batch, heads, rows, whole(s.skv)}, true},
      {false, false, {batch, heads, whole(s.sq), whole(s.skv)}, true},
      {true, true, {batch, whole(4), whole(s.sq), whole(s.skv)}, true},
      {false, true, {whole(2), heads, whole(s.sq), whole(s.skv)}, true},
      {true, true, {whole(2), heads, whole(s.sq), whole(s.skv)}, false},
      {true, false, {whole(2), whole(4), rows, whole(s.skv)}, false},
      {false, false, {whole(2), whole(4), ranges({0, 100, s.sq}), whole(s.skv)}, false},
      {false, false, {whole(2), whole(4), whole(s.sq), ranges({0, 128, s.skv})}, false},
      {false, false, {whole(2), whole(4), head_tail(s.sq, 2), whole(s.skv)}, false},
  };
  int row = 0;
  for (const SplitCase& r : all) {
    SCOPED_TRACE(row++);
    const WholeCall w(s, kFloat32, mask(r.batch, r.heads), 4);
    ASSERT_EQ(w.call.attrs.i("block_q"), 64);
    expect_whole(w, r.cut, ShardBounds(s, kFloat32, false), !r.sliced);
  }
}

// The first rows of a causal mask need only the first blocks.
TEST(Relocate, SkipsBlocks) {
  const ShardSizes s{.b = 1, .hq = 1, .hkv = 1, .sq = 512, .skv = 512, .d = 4, .dv = 4};
  const MaskMod causal = [](Index, Index, Index q, Index kv) { return q >= kv; };
  const WholeCall w(
      s, kFloat32,
      {"", [&](const ShardSizes& z, DType,
               Random&) { return FlexAttentionOptions{.block_mask = create_block_mask(causal, 1, 1, z.sq, z.skv)}; }},
      5);
  for (int64_t rank = 0; rank < 4; ++rank) {
    std::vector<Tensor> in = w.call.operands;
    in[0] = slice(in[0], 2, rank * 128, rank * 128 + 128);
    const internal::LocalAttention local =
        internal::relocated(w.call.attrs, in, {.q = {.offset = number(rank * 128), .extent = 512, .multiple = 128}});
    const internal::AttentionOperands at(local.attrs);
    const std::vector<int64_t> offsets =
        local.operands[static_cast<size_t>(at.blocks)].contiguous().to_vector<int64_t>();
    const std::vector<int32_t> ranges =
        local.operands[static_cast<size_t>(at.blocks) + 1].contiguous().to_vector<int32_t>();
    int64_t seen = 0;
    for (int64_t i = offsets[0]; i < offsets[1]; ++i)
      seen += ranges[static_cast<size_t>(3 * i + 1)] - ranges[static_cast<size_t>(3 * i)];
    EXPECT_EQ(seen, rank + 1);
  }
}

// Lists made from the mask when the call runs: each rank of a head-tail layout has the same number of blocks, and no
// more than needed.
TEST(Relocate, SkipsBlocksWhereRowsAreATable) {
  const ShardSizes s{.b = 1, .hq = 1, .hkv = 1, .sq = 1024, .skv = 1024, .d = 4, .dv = 4};
  const WholeCall w(s, kFloat32, shard_cases()[1], 8);
  for (const DimPart& rank : head_tail(s.sq, 4)) {
    std::vector<Tensor> in = w.call.operands;
    in[0] = taken(in[0], 2, rank.at);
    const internal::LocalAttention local = internal::relocated(w.call.attrs, in, {.q = rank.map});
    std::vector<StridedView> tables;
    for (size_t i = 3; i < local.operands.size(); ++i) tables.push_back(local.operands[i].view_for_kernel());
    const auto mask = internal::mask_of_call(local.attrs.get<Ref<Graph>>("mask"), tables, {1, 1, 256, 1024}, true);
    int64_t seen = 0;
    for (const kernels::BlockRange& r : mask->lists.ranges) seen += r.last - r.first;
    EXPECT_EQ(seen, 9);  // blocks i + 1 and 8 - i of 8
  }
}

// Offsets are operands: one graph for all of them.
TEST(Relocate, OneGraphForAllOffsets) {
  const ShardSizes s;
  const WholeCall w(s, kFloat32, shard_cases()[6], 6);
  std::vector<Tensor> in = w.call.operands;
  in[0] = slice(in[0], 2, 0, 8);
  auto attrs = [&](int64_t offset) {
    return internal::relocated(w.call.attrs, in, {.q = {.offset = number(offset), .extent = s.sq}}).attrs;
  };
  EXPECT_EQ(attrs(0), attrs(24));
  EXPECT_EQ(attrs(0).hash(), attrs(24).hash());
}

TEST(Relocate, Errors) {
  const ShardSizes s;
  const WholeCall w(s, kFloat32, shard_cases()[1], 7);
  auto error = [&](const ShardMaps& maps) {
    return error_of([&] { attention_on_shard(w.call.attrs, w.call.operands, maps); });
  };
  EXPECT_NE(error({.q = {.extent = 8}}).find("32 queries of 8; need a part that is no larger than the whole"),
            std::string::npos);
  EXPECT_NE(error({.kv = {.table = arange(4, {.dtype = kInt64})}}).find("positions of keys are i64[4] for 32 of them"),
            std::string::npos);
  EXPECT_NE(error({.b = {.offset = full({}, 1.0)}}).find("offset of batch is f32[]; need a 0-d i64"),
            std::string::npos);
  std::vector<Tensor> in = w.call.operands;
  in[0] = slice(in[0], 1, 0, 1);
  EXPECT_NE(error_of([&] { attention_on_shard(w.call.attrs, in, {}); }).find("1 query heads and 2 key heads"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
