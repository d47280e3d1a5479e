// The calls that the tests of attention's forward and backward share.
#pragma once
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "ops/kernels/testing/attention_reference.h"

namespace weft::kernels {

inline constexpr DType kTypes[] = {kFloat32, kBFloat16, kFloat16};

/// The text of a call for failing tests.
inline std::string text(const Case& c) {
  return str_cat("b", c.b, " hq", c.hq, " hkv", c.hkv, " sq", c.sq, " skv", c.skv, " d", c.d, " dv", c.dv, " type ",
                 to_string_view(c.type), " mask ", static_cast<int>(c.mask), " layout ", static_cast<int>(c.layout),
                 " hook ", static_cast<int>(c.hook));
}

/// Many lengths and head dims in each layout.
inline std::vector<Case> dense_cases() {
  std::vector<Case> all;
  int n = 0;
  for (int64_t s : {1, 17, 127, 129, 300})
    for (int64_t d : {1, 8, 40, 64, 96, 128}) {
      const int64_t cross[] = {s, 300, 17, 129}, dvs[] = {d, 24, d, 65};
      Case c{.b = 1 + n % 2, .hq = 2, .hkv = 2, .sq = s, .skv = cross[n % 4], .d = d, .dv = dvs[n / 2 % 4]};
      c.type = kTypes[n % 3];
      c.layout = static_cast<Case::QkvLayout>(n / 2 % 3);
      c.seed = 100 + n++;
      all.push_back(c);
    }
  return all;
}

/// Query heads that share keys, and batch entries that do.
inline std::vector<Case> grouped_cases() {
  std::vector<Case> all;
  for (DType t : kTypes)
    for (int64_t group : {3, 8})
      for (int64_t s : {1, 5, 33, 70})
        for (Case::Mask mask : {Case::none, Case::blocks}) {
          Case c{.b = 2, .hq = 2 * group, .hkv = 2, .sq = s, .skv = 150, .d = 16, .dv = 16, .type = t};
          c.mask = mask, c.kv_b = s == 33 || (group == 3 && s == 70) ? 1 : 0, c.mask_per_head = s == 5 && mask;
          c.seed = s + group;
          all.push_back(c);
        }
  return all;
}

/// Masks as bits and as blocks of several sizes.
inline std::vector<Case> masked_cases() {
  std::vector<Case> all;
  int n = 0;
  for (DType t : kTypes)
    for (Case::Mask mask : {Case::fill, Case::blocks})
      for (int64_t s : {1, 64, 129, 300}) {
        Case c{.b = 2, .hq = 2, .hkv = 1, .sq = s, .skv = 300 + n % 3 * 50, .d = 24, .dv = 40, .type = t, .mask = mask};
        c.block_q = n % 2 ? 64 : 128, c.block_kv = 64 * (1 + n % 3), c.mask_per_head = n % 2;
        c.seed = 50 + n++;
        all.push_back(c);
      }
  return all;
}

/// Hooks with and without dropout.
inline std::vector<Case> hooked_cases() {
  std::vector<Case> all;
  int n = 0;
  for (DType t : kTypes)
    for (Case::Hook hook : {Case::no_hook, Case::softcap, Case::bias})
      for (double p : {0.0, 0.3}) {
        Case c{.b = 2, .hq = 4, .hkv = 2, .sq = 70, .skv = 133, .d = 32, .dv = 32, .type = t, .dropout = p};
        c.hook = hook, c.mask = n % 2 ? Case::blocks : Case::none, c.sq = n % 3 ? 70 : 6;
        c.seed = n++;
        all.push_back(c);
      }
  return all;
}

}  // namespace weft::kernels
