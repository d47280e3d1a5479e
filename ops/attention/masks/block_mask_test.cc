// Tests BlockMask's methods: PyTorch's numbers on small masks, pictures, slices, resizing, lists, and errors.
#include "ops/attention/masks/block_mask.h"

#include <gtest/gtest.h>

#include <sstream>

#include "framework/base/testing/error_of.h"
#include "ops/attention/masks/block_mask_build.h"
#include "ops/attention/masks/masks.h"
#include "ops/attention/testing/random_mask.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using attention::causal;
using attention::sliding_window;
using testing::expect_error;

// Every point of a block mask, from its lists.
std::vector<uint8_t> points(const BlockMask& m) {
  const kernels::BlockMaskView v = m.view();
  const Shape s = m.shape();
  std::vector<uint8_t> out(s.numel());
  for (int64_t b = 0; b < s[0]; ++b)
    for (int64_t h = 0; h < s[1]; ++h)
      for (int64_t q = 0; q < s[2]; ++q) {
        const int64_t row = ((v.batch > 1 ? b : 0) * v.heads + (v.heads > 1 ? h : 0)) * v.q_blocks() + q / v.block_q;
        for (int64_t i = v.offsets[row]; i < v.offsets[row + 1]; ++i) {
          const kernels::BlockRange& r = v.ranges[i];
          for (int64_t kv = r.first * v.block_kv; kv < std::min(r.last * v.block_kv, s[3]); ++kv) {
            const int64_t bit = (q % v.block_q) * v.block_kv + kv % v.block_kv;
            const bool on = r.tile < 0 || v.tiles[r.tile * v.block_q * v.block_kv / 8 + bit / 8] >> bit % 8 & 1;
            out[((b * s[1] + h) * s[2] + q) * s[3] + kv] = on;
          }
        }
      }
  return out;
}
std::vector<uint8_t> points(const MaskMod& mask, const Shape& s) {
  return create_mask(mask, s[0], s[1], s[2], s[3]).to_vector<uint8_t>();
}

TEST(BlockMask, CausalHasPyTorchsNumbers) {
  const BlockMask m = create_block_mask(causal(), 2, 4, 1024, 1024);
  EXPECT_EQ(m.shape(), (Shape{2, 4, 1024, 1024}));
  EXPECT_EQ(m.numel(), 2 * 4 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(m.sparsity(), 43.75);
  EXPECT_EQ(m.view().batch, 1);
  EXPECT_EQ(m.view().heads, 1);
  const Tensor d = m.to_dense();
  EXPECT_EQ(d.shape(), (Shape{2, 4, 8, 8}));
  EXPECT_EQ(sum(d).item<int64_t>(), 8 * 36);
  const BlockMask::Lists l = m.kv_lists();
  EXPECT_EQ(l.num_blocks.shape(), (Shape{2, 4, 8}));
}

TEST(BlockMask, DrawsItself) {
  std::ostringstream out;
  out << create_block_mask(causal() & sliding_window(300), std::nullopt, std::nullopt, 640, 500);
  EXPECT_EQ(out.str(),
            "BlockMask(shape=[1, 1, 640, 500], sparsity=34.40%,\n"
            "(0, 0)\n"
            "░░      \n"
            "██░░    \n"
            "░░██░░  \n"
            "░░░░██░░\n"
            "  ░░░░██\n"
            ")");
  // Squares of blocks if there are many.
  const BlockMask big = create_block_mask(causal(), 1, 3, 1 << 14, 1 << 14);
  EXPECT_EQ(big.to_string(2, {4, 4}),
            "(0, 0)\n░░      \n██░░    \n████░░  \n██████░░\n(0, 1)\n░░      \n██░░    \n████░░  \n██████░░\n"
            "... 1 more: to_string(3) shows all, at(b, h) one of them\n");
}

TEST(BlockMask, PointsAreTheMasksAfterSlicing) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int64_t q_len = 200 + 11 * seed, kv_len = 700 - 9 * seed;
    const MaskMod mask = testing::RandomMask(seed, 3, 4, q_len, kv_len).mask();
    const BlockMask m = create_block_mask(mask, 3, 4, q_len, kv_len, {.block_size = {64, 128}});
    const std::vector<uint8_t> all = points(mask, m.shape());
    ASSERT_EQ(points(m), all) << seed;
    const BlockMask s = m.slice(0, 1, 3).slice(1, 2, 4).slice(2, 1, 3);
    const Shape shape = s.shape();
    ASSERT_EQ(shape, (Shape{2, 2, std::min<int64_t>(128, q_len - 64), kv_len}));
    const std::vector<uint8_t> part = points(s);
    ASSERT_EQ(part, points(s.mask(), shape)) << seed;  // the mask is sliced with the lists
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t q = 0; q < shape[2]; ++q)
          for (int64_t kv = 0; kv < kv_len; ++kv)
            ASSERT_EQ(part[((b * 2 + h) * shape[2] + q) * kv_len + kv],
                      all[(((b + 1) * 4 + h + 2) * q_len + q + 64) * kv_len + kv]);
    EXPECT_EQ(m.at(2, 3, 0).shape(), (Shape{1, 1, 64, kv_len}));
  }
}

TEST(BlockMask, Resizes) {
  const BlockMask m = create_block_mask(causal(), 2, 1, 512, 512);
  EXPECT_EQ(points(m.resize(300, 1000)), points(causal(), {2, 1, 300, 1000}));
  const Tensor ids = Tensor::from_vector<int64_t>(std::vector<int64_t>(512, 4), {512});
  const BlockMask doc = create_block_mask(attention::document(ids) & causal(), 1, 1, 512, 512);
  EXPECT_EQ(points(doc.resize(200, 100)), points(causal(), {1, 1, 200, 100}));
  expect_error([&] { doc.resize(600, 512); },
               "BlockMask::resize: cannot go from lengths 512 x 512 to 600 x 512: mask_mod: index 512 is out of range "
               "for a captured i64[512]");
}

TEST(BlockMask, ListsGoThereAndBack) {
  for (uint64_t seed = 100; seed < 160; ++seed) {
    const MaskMod mask = testing::RandomMask(seed, 2, 2, 600, 500).mask();
    const BlockMask m = create_block_mask(mask, 2, 2, 600, 500);
    const BlockMask::Lists l = m.kv_lists(), t = m.q_lists();
    const BlockMask back = BlockMask::from_kv_blocks(l.num_blocks, l.indices, l.full_num_blocks, l.full_indices,
                                                     {.mask_mod = mask, .seq_lengths = {{600, 500}}});
    ASSERT_EQ(points(back), points(m)) << seed;
    ASSERT_EQ(points(back.mask(), m.shape()), points(m)) << seed;
    // The transpose lists the same blocks.
    const std::vector<int32_t> dense = m.to_dense().to_vector<int32_t>();
    std::vector<int32_t> again(dense.size());
    for (const auto& [num, index] :
         {std::pair(t.num_blocks, t.indices), std::pair(t.full_num_blocks, t.full_indices)}) {
      const std::vector<int32_t> n = num.to_vector<int32_t>(), at = index.to_vector<int32_t>();
      for (int64_t r = 0; r < static_cast<int64_t>(n.size()); ++r)
        for (int32_t i = 0; i < n[r]; ++i) again[(r / 4 * 5 + at[r * 5 + i]) * 4 + r % 4] += 1;
    }
    ASSERT_EQ(again, dense) << seed;
  }
  // Without a mask, the listed blocks are fully visible; other blocks are skipped, and the mask agrees.
  const Tensor num = Tensor::from_vector<int32_t>({1, 2}, {1, 1, 2}),
               index = Tensor::from_vector<int32_t>({1, 0, 0, 1}, {1, 1, 2, 2});
  const BlockMask m = BlockMask::from_kv_blocks(num, index, {}, {}, {});
  EXPECT_EQ(m.to_string(), "(0, 0)\n  ██\n████\n");
  EXPECT_EQ(points(m.mask(), m.shape()), points(m));
  expect_error([&] { m.resize(300, 300); }, "the mask was made from lists of blocks, which do not define longer ones");
}

TEST(BlockMask, AMillionTokensCausalInUnderAMegabyte) {
  const BlockMask m = create_block_mask(causal(), 1, 32, 1 << 20, 1 << 20);
  m.columns();
  EXPECT_LT(m.bytes(), 1 << 20);
  EXPECT_NEAR(m.sparsity(), 50, 0.01);
}

TEST(BlockMask, CutBlocksMayBeFull) {
  const BlockMask m = create_block_mask(noop_mask, 1, 1, 130, 200);
  EXPECT_EQ(m.to_string(), "(0, 0)\n████\n████\n");
  EXPECT_EQ(m.sparsity(), 0);
  EXPECT_TRUE(m.view().tiles == nullptr || m.bytes() < 200);
  const BlockMask none = create_block_mask(!MaskMod(noop_mask), 1, 1, 130, 200);
  EXPECT_EQ(none.sparsity(), 100);
  EXPECT_EQ(create_block_mask(causal(), 1, 1, 0, 0).numel(), 0);
}

TEST(BlockMask, ErrorsNameArgumentShapesRuleAndACorrectCall) {
  expect_error(
      [] { create_block_mask(causal(), 0, 1, 8, 8); },
      "create_block_mask: B is 0 and H is 1; need 1 or more, or std::nullopt where the mask is the same for all, e.g. "
      "create_block_mask(");
  expect_error([] { create_block_mask(causal(), 1, 1, -8, 8); }, "Q_LEN is -8 and KV_LEN is 8; need lengths");
  expect_error(
      [] {
        create_block_mask(causal(), 1, 1, 8, 8, {.block_size = {100, 128}});
      },
      "block_size is {100, 128}; need multiples of 64");
  expect_error([] { create_block_mask(MaskMod(), 1, 1, 8, 8); }, "mask_mod is empty");
  expect_error([] { BlockMask().shape(); }, "this block mask is empty");
  const BlockMask m = create_block_mask(causal(), 2, 1, 512, 512);
  expect_error([&] { m.check_fits("flex_attention", 2, 8, 1024, 1024); },
               "flex_attention: block_mask is for lengths 512 x 512 and q and k have 1024 x 1024; need equal lengths: "
               "block_mask.resize(1024, 1024), or create_block_mask(mask, B, H, 1024, 1024)");
  expect_error([&] { m.check_fits("flex_attention", 3, 8, 512, 512); },
               "block_mask of shape [2, 1, 512, 512] does not fit batch 3 and 8 query heads; need B of 1 or 3");
  m.check_fits("flex_attention", 2, 8, 512, 512);
  expect_error([&] { m.at(2); }, "asked for batch entries [2, 3) of a mask of shape [2, 1, 512, 512]");
  expect_error(
      [&] {
        BlockMask::from_kv_blocks(zeros({1, 1, 2}), zeros({1, 1, 2, 2}), {}, {}, {});
      },
      "need integers of shapes");
  const Tensor table = ones({5, 3});
  expect_error([&] { create_block_mask([&](Index, Index, Index q, Index) { return table[q] == 1; }, 1, 1, 5, 5); },
               "mask_mod: ");
  expect_error(
      [&] { create_block_mask([](Index, Index, Index q, Index kv) { return floor_divide(q, kv) == 1; }, 1, 1, 5, 5); },
      "floor_divide: integer division by zero at ");
}

}  // namespace
}  // namespace weft
