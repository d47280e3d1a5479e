// Attention's forward kernels in the emulation, against f64: the same text that a GPU runs, with few blocks.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/attention/testing/emulated_case.h"

namespace weft::cuda {
namespace {

TEST(AttentionForward, CausalBf16) {
  check_emulated({.sizes = {.sq = 130, .skv = 130, .d = 64, .dv = 64}, .mask = "causal", .blocks = {128, 128}});
}

TEST(AttentionForward, Types) {
  for (DType type : {kFloat32, kBFloat16, kFloat16})
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 70, .skv = 90, .d = 64, .dv = 64},
                    .type = type,
                    .mask = "sliding window",
                    .score = "learned alibi",
                    .blocks = {64, 64}});
}

TEST(AttentionForward, Tf32) {
  check_emulated({.sizes = {.sq = 40, .skv = 70, .d = 24, .dv = 40},
                  .type = kFloat32,
                  .mask = "causal",
                  .options = {.tf32 = true}});
}

// Head dims that tensor cores and vectors do not support directly, other value dims, and large ones.
TEST(AttentionForward, HeadDims) {
  for (auto [d, dv] : {std::pair{1, 1},
                       {8, 24},
                       {40, 65},
                       {80, 80},
                       {96, 64},
                       {128, 128},
                       {192, 128},
                       {256, 256},
                       {64, 320},
                       {320, 16}})
    for (DType type : {kBFloat16, kFloat32})
      check_emulated({.sizes = {.sq = 33, .skv = 50, .d = d, .dv = dv}, .type = type, .mask = "causal"});
}

TEST(AttentionForward, Lengths) {
  for (int sq : {1, 17, 65, 129})
    for (int skv : {1, 31, 127, 200})
      check_emulated({.sizes = {.sq = sq, .skv = skv, .d = 16, .dv = 16}, .mask = "none"});
}

// Neighbouring heads that share keys, in separate tiles and together; keys that all batch entries share.
TEST(AttentionForward, GroupedHeads) {
  for (auto [hq, hkv] : {std::pair{3, 1}, {6, 2}, {8, 1}})
    for (int sq : {1, 5, 70})
      check_emulated(
          {.sizes = {.b = 2, .kv_b = hq == 8 ? 1 : 2, .hq = hq, .hkv = hkv, .sq = sq, .skv = 67, .d = 16, .dv = 16},
           .mask = "padding",
           .score = "alibi",
           .blocks = {sq == 5 ? 64 : 0, 64}});
}

// Few queries and many keys: pieces of the keys are merged.
TEST(AttentionForward, Decoding) {
  for (const char* mask : {"none", "causal", "sliding window"})
    check_emulated({.sizes = {.hq = 4, .hkv = 2, .sq = 2, .skv = 1100, .d = 32, .dv = 32},
                    .mask = mask,
                    .score = "head bias",
                    .blocks = {128, 128}});
}

TEST(AttentionForward, Masks) {
  for (const auto& m : testing::conformance_masks())
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 2, .sq = 80, .skv = 100, .d = 16, .dv = 16},
                    .mask = m.name,
                    .blocks = {(m.name[0] + m.name[1]) % 2 ? 64 : 0, 64}});
}

TEST(AttentionForward, Scores) {
  for (const auto& m : testing::conformance_scores())
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 40, .skv = 50, .d = 16, .dv = 16},
                    .type = m.name[0] % 2 ? kBFloat16 : kFloat32,
                    .mask = "causal",
                    .score = m.name});
}

// The values of keys that a row does not see never reach it.
TEST(AttentionForward, HiddenInfinityAndNan) {
  for (DType type : {kFloat32, kBFloat16, kFloat16})
    for (const char* mask : {"causal", "sliding window"})
      check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 90, .skv = 100, .d = 16, .dv = 24},
                      .type = type,
                      .mask = mask,
                      .blocks = {mask[0] == 'c' ? 64 : 0, 64},
                      .dirty_values = true});
  // Also with pieces of the keys.
  check_emulated({.sizes = {.b = 4, .kv_b = 4, .hq = 2, .hkv = 2, .sq = 2, .skv = 1100, .d = 16, .dv = 16},
                  .mask = "padding",
                  .blocks = {128, 128},
                  .dirty_values = true});
}

}  // namespace
}  // namespace weft::cuda
