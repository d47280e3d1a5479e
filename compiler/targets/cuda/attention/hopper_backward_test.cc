// Attention's backward kernels for sm_90a in the emulation (TMA, mbarriers and WGMMA) against f64, and the calls that
// they support.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/attention/testing/emulated_case.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

constexpr AttentionKernelOptions kHopper{.sm90a = true, .maps = true};

TEST(AttentionHopperBackward, Causal) {
  for (int d : {64, 128})
    check_emulated({.sizes = {.sq = 200, .skv = 330, .d = d, .dv = d},
                    .mask = "causal",
                    .blocks = {128, 128},
                    .backward = true,
                    .options = kHopper});
}

TEST(AttentionHopperBackward, DimsAndHeads) {
  for (auto [d, dv] : {std::pair{96, 96}, {80, 24}, {32, 104}, {8, 128}})
    check_emulated(
        {.sizes = {.b = 2, .kv_b = d == 80 ? 1 : 2, .hq = 4, .hkv = 2, .sq = 130, .skv = 150, .d = d, .dv = dv},
         .type = d == 80 ? kFloat16 : kBFloat16,
         .mask = "sliding window",
         .blocks = {128, d == 80 ? 64 : 128},
         .backward = true,
         .wide = d == 32,
         .options = kHopper});
}

TEST(AttentionHopperBackward, Lengths) {
  for (auto [sq, skv] : {std::pair{1, 65}, {65, 1}, {65, 129}, {300, 128}, {127, 300}})
    check_emulated({.sizes = {.sq = sq, .skv = skv, .d = 16, .dv = 16},
                    .mask = "none",
                    .score = sq == 127 ? "softcap" : "none",
                    .backward = true,
                    .options = {.sm90a = true, .maps = sq > 64}});
}

TEST(AttentionHopperBackward, GroupedHeads) {
  for (auto [hq, hkv] : {std::pair{3, 1}, {6, 2}})
    check_emulated(
        {.sizes = {.b = 2, .kv_b = hq == 3 ? 1 : 2, .hq = hq, .hkv = hkv, .sq = 140, .skv = 130, .d = 16, .dv = 16},
         .mask = "padding",
         .score = "distance",
         .blocks = {hq == 3 ? 128 : 0, 128},
         .backward = true,
         .options = kHopper});
}

TEST(AttentionHopperBackward, Masks) {
  for (const auto& m : testing::conformance_masks())
    check_emulated({.sizes = {.b = 1, .kv_b = 1, .hq = 2, .hkv = 2, .sq = 140, .skv = 100, .d = 16, .dv = 16},
                    .mask = m.name,
                    .blocks = {(m.name[0] + m.name[1]) % 2 ? 128 : 0, 128},
                    .backward = true,
                    .options = kHopper});
}

TEST(AttentionHopperBackward, Scores) {
  for (const auto& m : testing::conformance_scores())
    check_emulated({.sizes = {.b = 1, .kv_b = 1, .hq = 2, .hkv = 1, .sq = 90, .skv = 100, .d = 16, .dv = 16},
                    .mask = "causal",
                    .score = m.name,
                    .backward = true,
                    .options = kHopper});
}

TEST(AttentionHopperBackward, ModsWithManyColumns) {
  for (const char* score : {"learned alibi", "minus infinity"})
    check_emulated({.sizes = {.hq = 2, .hkv = 2, .sq = 100, .skv = 140, .d = 128, .dv = 128},
                    .mask = "documents",
                    .score = score,
                    .blocks = {128, 128},
                    .backward = true,
                    .options = kHopper});
}

// The kernels of a backward call by type, head dims, blocks of the mask, lengths and device.
TEST(AttentionHopperBackward, Chosen) {
  struct Call {
    DType type = kBFloat16;
    int64_t q_len = 256, kv_len = 256, d = 64, first = 0;
    std::array<int64_t, 2> blocks = {0, 0};
    bool sm90a = true;
  };
  auto chosen = [](const Call& c) {
    const Tensor q = zeros({1, 2, c.q_len, c.d}, {.dtype = c.type}),
                 k = zeros({1, 2, c.kv_len, c.d}, {.dtype = c.type}),
                 wide = zeros({1, 2, c.kv_len, c.d + c.first}, {.dtype = c.type}),
                 line = zeros({1, 2, c.q_len}, {.dtype = kFloat32});
    FlexAttentionOptions o;
    if (c.blocks[0])
      o.block_mask = create_block_mask(attention::causal(), 1, 1, c.q_len, c.kv_len, {.block_size = c.blocks});
    const weft::internal::AttentionCall call =
        weft::internal::attention_call(q, k, slice(wide, 3, c.first, c.first + c.d), o);
    std::vector<Tensor> in = call.operands;
    for (const Tensor& t : {q, line, line, q, line}) in.push_back(t);
    std::vector<StridedView> views, results;
    std::vector<TensorType> types;
    for (const Tensor& t : in) views.push_back(t.view_for_kernel()), types.push_back(t.type());
    for (const TensorType& t : attention_backward_op.infer({attention_backward_op, call.attrs, types}))
      results.push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
    const AttentionProgram program(call.attrs, views, results, true, {.sm90a = c.sm90a, .maps = true});
    std::string out;
    for (size_t i : {1u, 2u})
      out += program.kernels()[i].symbol.find("hopper") == std::string::npos ? "mma " : "wgmma ";
    return out;
  };
  EXPECT_EQ(chosen({}), "wgmma wgmma ");
  EXPECT_EQ(chosen({.type = kFloat16, .d = 128, .blocks = {128, 128}}), "wgmma wgmma ");
  EXPECT_EQ(chosen({.sm90a = false}), "mma mma ");
  EXPECT_EQ(chosen({.type = kFloat32}), "mma mma ");
  EXPECT_EQ(chosen({.d = 136}), "mma mma ");               // the sums of a warpgroup do not fit
  EXPECT_EQ(chosen({.d = 20}), "mma mma ");                // rows are not multiples of 16 bytes
  EXPECT_EQ(chosen({.first = 4}), "mma mma ");             // rows do not start at multiples of 16 bytes
  EXPECT_EQ(chosen({.blocks = {128, 64}}), "mma wgmma ");  // a tile's keys are in several blocks
  EXPECT_EQ(chosen({.blocks = {64, 128}}), "wgmma mma ");
  EXPECT_EQ(chosen({.blocks = {64, 64}}), "mma mma ");
  EXPECT_EQ(chosen({.q_len = 64}), "wgmma mma ");
  EXPECT_EQ(chosen({.kv_len = 64}), "mma wgmma ");
}

}  // namespace
}  // namespace weft::cuda
