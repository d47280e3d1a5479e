// Attention's forward kernel for sm_90a in the emulation: TMA, mbarriers and WGMMA, against f64.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/attention/testing/emulated_case.h"

namespace weft::cuda {
namespace {

constexpr AttentionKernelOptions kHopper{.sm90a = true, .maps = true};

TEST(AttentionHopper, Causal) {
  check_emulated({.sizes = {.sq = 200, .skv = 330, .d = 64, .dv = 64},
                  .mask = "causal",
                  .blocks = {128, 128},
                  .options = kHopper});
}

TEST(AttentionHopper, DimsAndHeads) {
  for (auto [d, dv] : {std::pair{128, 128}, {80, 24}, {32, 104}, {192, 128}, {256, 224}})
    check_emulated(
        {.sizes = {.b = 2, .kv_b = d == 80 ? 1 : 2, .hq = 2, .hkv = 1, .sq = 130, .skv = 150, .d = d, .dv = dv},
         .type = d == 80 ? kFloat16 : kBFloat16,
         .mask = "sliding window",
         .blocks = {128, d == 80 ? 64 : 128},
         .options = kHopper});
}

// More tiles than the ring has places, none for some rows, several ranges in a row.
TEST(AttentionHopper, ManyTiles) {
  for (const char* mask : {"none", "stream with sinks", "empty rows", "holes", "nothing"})
    check_emulated({.sizes = {.hq = 2, .hkv = 1, .sq = 140, .skv = 500, .d = 72, .dv = 16},
                    .mask = mask,
                    .blocks = {mask[0] == 'n' ? 0 : 128, 128},
                    .options = kHopper});
}

TEST(AttentionHopper, Mods) {
  for (const char* score : {"learned alibi", "softcap", "relative bias", "minus infinity"})
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 2, .sq = 130, .skv = 100, .d = 32, .dv = 32},
                    .mask = "documents",
                    .score = score,
                    .options = kHopper});
}

// The values of keys that a row does not see never reach it.
TEST(AttentionHopper, HiddenInfinityAndNan) {
  check_emulated({.sizes = {.sq = 260, .skv = 260, .d = 64, .dv = 64},
                  .mask = "causal",
                  .blocks = {128, 128},
                  .dirty_values = true,
                  .options = kHopper});
  check_emulated({.sizes = {.hq = 2, .hkv = 2, .sq = 150, .skv = 150, .d = 32, .dv = 104},
                  .type = kFloat16,
                  .mask = "sliding window",
                  .dirty_values = true,
                  .options = kHopper});
}

}  // namespace
}  // namespace weft::cuda
