#include "framework/io/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "framework/tensor/dtype.h"

namespace weft::io {
namespace {

// Each function computes the values in the order of ggml's reference, in f32 without contraction, so that they have the
// bits of ggml's values. `out` is __restrict: else g++ makes no vectors of the loops.

float half(const std::byte* p) {
  float16 h;
  h.bits = value_at<uint16_t>(p);
  return static_cast<float>(h);
}

const uint8_t* bytes(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }

void f32(const std::byte* b, float* out) { *out = value_at<float>(b); }

void f16(const std::byte* b, float* out) { *out = half(b); }

void bf16(const std::byte* b, float* out) { *out = std::bit_cast<float>(uint32_t{value_at<uint16_t>(b)} << 16); }

void q8_0(const std::byte* b, float* __restrict out) {
  const float d = half(b);
  const auto* q = reinterpret_cast<const int8_t*>(b + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(q[i]) * d;
}

void q4_0(const std::byte* b, float* __restrict out) {
  const float d = half(b);
  const uint8_t* q = bytes(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((q[i] & 15) - 8) * d;
    out[i + 16] = static_cast<float>((q[i] >> 4) - 8) * d;
  }
}

void q4_1(const std::byte* b, float* __restrict out) {
  const float d = half(b), m = half(b + 2);
  const uint8_t* q = bytes(b + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(q[i] & 15) * d + m;
    out[i + 16] = static_cast<float>(q[i] >> 4) * d + m;
  }
}

// The fifth bits of 32 elements are `high`. SSE has masks, but no shift by a count for each element.
constexpr auto kBits = [] {
  std::array<uint32_t, 32> bits{};
  for (int i = 0; i < 32; ++i) bits[i] = uint32_t{1} << i;
  return bits;
}();
int q5(int nibble, uint32_t high, int i) { return nibble + ((high & kBits[i]) != 0 ? 16 : 0); }

void q5_0(const std::byte* b, float* __restrict out) {
  const float d = half(b);
  const uint32_t high = value_at<uint32_t>(b + 2);
  const uint8_t* q = bytes(b + 6);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(q5(q[i] & 15, high, i) - 16) * d;
    out[i + 16] = static_cast<float>(q5(q[i] >> 4, high, i + 16) - 16) * d;
  }
}

void q5_1(const std::byte* b, float* __restrict out) {
  const float d = half(b), m = half(b + 2);
  const uint32_t high = value_at<uint32_t>(b + 4);
  const uint8_t* q = bytes(b + 8);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(q5(q[i] & 15, high, i)) * d + m;
    out[i + 16] = static_cast<float>(q5(q[i] >> 4, high, i + 16)) * d + m;
  }
}

// The 6-bit scale and minimum of part j of the 8 parts of a K block, from its 12 bytes of scales.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

// Q4_K and Q5_K. Bit j of high[i] is the fifth bit of element i of part j.
template <bool has_high>
void q45_k(const std::byte* b, const uint8_t* high, const uint8_t* q, float* __restrict out) {
  const float d = half(b), least = half(b + 2);
  for (int j = 0; j < 8; ++j, out += 32) {
    const ScaleMin sm = scale_min(bytes(b + 4), j);
    const float scale = d * static_cast<float>(sm.scale), min = least * static_cast<float>(sm.min);
    const uint8_t* const low = q + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      int value = low[i] >> shift & 15;
      if constexpr (has_high) value += (high[i] >> j & 1) << 4;
      out[i] = scale * static_cast<float>(value) - min;
    }
  }
}

void q4_k(const std::byte* b, float* out) { q45_k<false>(b, nullptr, bytes(b + 16), out); }

void q5_k(const std::byte* b, float* out) { q45_k<true>(b, bytes(b + 16), bytes(b + 48), out); }

void q6_k(const std::byte* b, float* __restrict out) {
  const float d = half(b + 208);
  const auto* scales = reinterpret_cast<const int8_t*>(b + 192);
  for (int n = 0; n < 2; ++n) {  // 128 elements each
    const uint8_t *low = bytes(b) + 64 * n, *high = bytes(b + 128) + 32 * n;
    for (int k = 0; k < 8; ++k, out += 16) {  // 16 elements with one scale
      const int part = k / 2, at = k % 2 * 16, shift = part / 2 * 4;
      const uint8_t *from = low + part % 2 * 32 + at, *two = high + at;
      const float scale = d * static_cast<float>(scales[8 * n + k]);
      for (int i = 0; i < 16; ++i) {
        const int q = ((from[i] >> shift & 15) | (two[i] >> 2 * part & 3) << 4) - 32;
        out[i] = scale * static_cast<float>(q);
      }
    }
  }
}

constexpr GgufFormat kFormats[] = {
    {kGgufF32, "F32", 1, 4, f32},
    {kGgufF16, "F16", 1, 2, f16},
    {2, "Q4_0", 32, 18, q4_0},
    {3, "Q4_1", 32, 20, q4_1},
    {6, "Q5_0", 32, 22, q5_0},
    {7, "Q5_1", 32, 24, q5_1},
    {kGgufQ8_0, "Q8_0", 32, 34, q8_0},
    {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144, q4_k},
    {13, "Q5_K", 256, 176, q5_k},
    {14, "Q6_K", 256, 210, q6_k},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {kGgufBF16, "BF16", 1, 2, bf16},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

}  // namespace

const GgufFormat* gguf_format(uint32_t number) {
  const auto* it =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const GgufFormat& f) { return f.number == number; });
  return it == std::end(kFormats) ? nullptr : it;
}

void dequantise(const GgufFormat& f, const std::byte* blocks, int64_t begin, int64_t end, float* out) {
  float block[256];
  for (int64_t at = begin; at < end;) {
    const int64_t number = at / f.block, first = at % f.block, count = std::min(f.block - first, end - at);
    const std::byte* from = blocks + number * f.block_bytes;
    if (count == f.block) {
      f.dequantise(from, out);
    } else {
      f.dequantise(from, block);
      std::copy(block + first, block + first + count, out);
    }
    at += count, out += count;
  }
}

void quantise_q8_0(const float* x, int64_t count, std::byte* blocks) {
  for (; count > 0; count -= 32, x += 32, blocks += 34) {
    float most = 0;
    for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
    const float d = most / 127, inverse = d >= 0x1p-126f ? 1 / d : 0;  // below, 1 / d may be infinite
    const uint16_t bits = float16::from_float(d);
    std::memcpy(blocks, &bits, sizeof bits);
    for (int i = 0; i < 32; ++i)
      blocks[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * inverse)));
  }
}

}  // namespace weft::io
