// Products of bf16 on AMX tiles: 2 x 2 tiles of 16 x 16 sums, 32 k per instruction. Panels are made of whole tiles: for
// each 32 k, two tiles of 16 lines. Lines of a have their 32 k; lines of b have interleaved pairs of k for 16 columns.
// Denormals are treated as zero, as AMX does.
#include <immintrin.h>

#include "ops/kernels/products/gemm_kernel.h"

namespace weft::kernels::amx {
namespace {

typedef int64_t i64;
#define AMX_INLINE static inline __attribute__((always_inline))

constexpr i64 kPanel = 32, kStep = 32, kTile = 1024, kStepBytes = 2 * kTile;

AMX_INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
AMX_INLINE __mmask32 first(i64 n) { return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1; }

// Transposes: r[i] lane j becomes r[j] lane i.
AMX_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  // r[4g + c] is now column c of each 128-bit lane, for lines 4g to 4g + 3.
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    r[4 * g] = _mm512_unpacklo_epi64(t[4 * g], t[4 * g + 2]);
    r[4 * g + 1] = _mm512_unpackhi_epi64(t[4 * g], t[4 * g + 2]);
    r[4 * g + 2] = _mm512_unpacklo_epi64(t[4 * g + 1], t[4 * g + 3]);
    r[4 * g + 3] = _mm512_unpackhi_epi64(t[4 * g + 1], t[4 * g + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd), e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, b, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(d, e, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// Loads lines of one tile as stored: r[i] = 32 k of line i.
AMX_INLINE void load_lines(const GemmPack& p, i64 line, i64 k, __m512i (&r)[16]) {
  const short* from = static_cast<const short*>(p.from) + line * p.line_stride + k * p.k_stride;
  const i64 lines = p.lines - line, left = p.k - k;
  if (p.k_stride == 1) {
    if (lines >= 16 && left >= kStep) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(from + i * p.line_stride);
    } else {
      const __mmask32 mask = first(left);
      for (int i = 0; i < 16; ++i)
        r[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, from + i * p.line_stride) : _mm512_setzero_si512();
    }
    return;
  }
  alignas(64) short t[16][kStep] = {};
  for (i64 i = 0; i < least(16, lines); ++i)
    for (i64 j = 0; j < least(kStep, left); ++j) t[i][j] = from[i * p.line_stride + j * p.k_stride];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(t[i]);
}

// Loads the same tile as pairs of k: r[i] = k 2i and 2i + 1 of 16 lines, interleaved. Lines are contiguous in memory.
AMX_INLINE void load_pairs(const GemmPack& p, i64 line, i64 k, __m512i (&r)[16]) {
  const short* from = static_cast<const short*>(p.from) + line + k * p.k_stride;
  const i64 left = p.k - k, lines = p.lines - line;
  alignas(64) static constexpr short kMix[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i mix = _mm512_load_si512(kMix);
  auto row = [&](i64 i) { return reinterpret_cast<const __m256i*>(from + i * p.k_stride); };
  if (lines >= 16 && left >= kStep) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512i even = _mm512_castsi256_si512(_mm256_loadu_si256(row(2 * i)));
      r[i] = _mm512_permutexvar_epi16(mix, _mm512_inserti64x4(even, _mm256_loadu_si256(row(2 * i + 1)), 1));
    }
    return;
  }
  const __mmask16 mask = first(least(16, lines));
  for (int i = 0; i < 16; ++i) {
    const __m256i even = _mm256_maskz_loadu_epi16(2 * i < left ? mask : 0, row(2 * i));
    const __m256i odd = _mm256_maskz_loadu_epi16(2 * i + 1 < left ? mask : 0, row(2 * i + 1));
    r[i] = _mm512_permutexvar_epi16(mix, _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1));
  }
}

// Tiles of b contain pairs of k, tiles of a contain lines; each is the transpose of the other, pair by pair.
template <bool kPairs>
void pack(const GemmPack& p) {
  const i64 panels = (p.lines + kPanel - 1) / kPanel, steps = (p.k + kStep - 1) / kStep;
  const bool neighbours = p.line_stride == 1 && p.k_stride != 1;
  auto tile = [&](i64 panel, i64 half, i64 step) __attribute__((always_inline)) {
    const i64 line = panel * kPanel + half * 16, k = step * kStep;
    __m512i r[16];
    if (neighbours) {
      load_pairs(p, line, k, r);
    } else {
      load_lines(p, line, k, r);
    }
    if (neighbours != kPairs) transpose(r);
    char* to = static_cast<char*>(p.to) + panel * p.panel_stride + step * kStepBytes + half * kTile;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + 64 * i, r[i]);
  };
  // In memory order: lines are the inner loop if they are contiguous.
  const i64 outer = neighbours ? steps : panels, inner = neighbours ? panels : steps;
  for (i64 o = 0; o < outer; ++o)
    for (i64 i = 0; i < inner; ++i)
      for (i64 half = 0; half < 2; ++half) {
        const i64 panel = neighbours ? i : o, step = neighbours ? o : i;
        if (panel * kPanel + half * 16 < p.lines) tile(panel, half, step);
      }
}

struct TileConfig {
  unsigned char palette = 1, start = 0, reserved[14] = {};
  unsigned short bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Sums of a finished block that are being written to memory, row by row between the products of the next block. The
// vector units are idle while the tile unit works; writing a whole block at once would stall the tile unit.
struct PendingRows {
  const float* sums;  // rows of 32
  i64 row = 0, rows = 0;
  char* to;
  i64 to_line;  // bytes
  __mmask32 mask;
  PanelType type;

  bool stream;

  // 32 sums as bf16.
  static inline __attribute__((always_inline)) __m512bh line(const float* from) {
    return _mm512_cvtne2ps_pbh(_mm512_load_ps(from + 16), _mm512_load_ps(from));
  }

  // kRows at once keep the branches of the loop predictable.
  template <int kRows>
  inline __attribute__((always_inline)) void write() {
    if (row + kRows > rows) {
      if constexpr (kRows > 1)
        for (i64 i = rows - row; i > 0; --i) write<1>();
      return;
    }
    const float* from = sums + row * 32;
    if (stream && mask == ~0u) {
      if (type == PanelType::bf16) {
#pragma GCC unroll 32
        for (int i = 0; i < kRows; ++i)
          _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * to_line), (__m512i)line(from + i * 32));
      } else {
#pragma GCC unroll 32
        for (int i = 0; i < kRows; ++i) {
          _mm512_stream_ps(reinterpret_cast<float*>(to + i * to_line), _mm512_load_ps(from + i * 32));
          _mm512_stream_ps(reinterpret_cast<float*>(to + i * to_line + 64), _mm512_load_ps(from + i * 32 + 16));
        }
      }
    } else if (type == PanelType::bf16) {
#pragma GCC unroll 32
      for (int i = 0; i < kRows; ++i) _mm512_mask_storeu_epi16(to + i * to_line, mask, (__m512i)line(from + i * 32));
    } else {
#pragma GCC unroll 32
      for (int i = 0; i < kRows; ++i) {
        _mm512_mask_storeu_ps(to + i * to_line, mask & 0xffff, _mm512_load_ps(from + i * 32));
        _mm512_mask_storeu_ps(to + i * to_line + 64, mask >> 16, _mm512_load_ps(from + i * 32 + 16));
      }
    }
    row += kRows;
    to += kRows * to_line;
  }
};

// Computes one block of up to 32 x 32 into `sums`. Tiles 0 to 3 are sums; 4, 5 are a; 6, 7 are b.
template <int R, int C>
AMX_INLINE void micro(const GemmBlock& g, const char* a, const char* b, i64 row, i64 col, float* sums,
                      PendingRows& pending) {
  // The tiles of a panel are consecutive; rows in memory are a_line apart.
  const i64 line = g.a_line ? g.a_line : 64, step = g.a_line ? 64 : kStepBytes, lower = g.a_line ? 16 * line : kTile;
  if (g.from) {
    const float* from = g.from + row * g.from_ld + col;
    _tile_loadd(0, from, g.from_ld * 4);
    if (C > 1) _tile_loadd(1, from + 16, g.from_ld * 4);
    if (R > 1) _tile_loadd(2, from + 16 * g.from_ld, g.from_ld * 4);
    if (R > 1 && C > 1) _tile_loadd(3, from + 16 * g.from_ld + 16, g.from_ld * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const i64 steps = (g.k + kStep - 1) / kStep;
  for (i64 i = 0; i < steps; ++i) {
    _tile_loadd(6, b + i * kStepBytes, 64);
    _tile_loadd(4, a + i * step, line);
    _tile_dpbf16ps(0, 4, 6);
    if (C > 1) {
      _tile_loadd(7, b + i * kStepBytes + kTile, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (R > 1) {
      _tile_loadd(5, a + i * step + lower, line);
      _tile_dpbf16ps(2, 5, 6);
      if (C > 1) _tile_dpbf16ps(3, 5, 7);
    }
    if (i < 8) pending.write<4>();
  }
  if (steps < 8) pending.write<32>();
  if (g.to_whole && g.to_type == PanelType::f32 && !g.stream) {
    float* to = static_cast<float*>(g.to) + row * g.to_ld + col;
    _tile_stored(0, to, g.to_ld * 4);
    if (C > 1) _tile_stored(1, to + 16, g.to_ld * 4);
    if (R > 1) _tile_stored(2, to + 16 * g.to_ld, g.to_ld * 4);
    if (R > 1 && C > 1) _tile_stored(3, to + 16 * g.to_ld + 16, g.to_ld * 4);
    return;
  }
  _tile_stored(0, sums, 128);
  if (C > 1) _tile_stored(1, sums + 16, 128);
  if (R > 1) _tile_stored(2, sums + 16 * 32, 128);
  if (R > 1 && C > 1) _tile_stored(3, sums + 16 * 32 + 16, 128);
  const i64 size = g.to_type == PanelType::f32 ? 4 : 2;
  pending.sums = sums;
  pending.row = 0;
  pending.rows = least(g.m - row, 16 * R);
  pending.to = static_cast<char*>(g.to) + (row * g.to_ld + col) * size;
  pending.mask = first(least(g.n - col, 16 * C));
}

// The configuration is static: the intrinsic declares to the compiler only that it reads the first bytes.
const TileConfig kConfig;

void run(const GemmBlock& g) {
  _tile_loadconfig(&kConfig);
  alignas(64) float sums[2][32 * 32];
  int buffer = 0;
  PendingRows pending;
  pending.to_line = g.to_ld * (g.to_type == PanelType::f32 ? 4 : 2);
  pending.type = g.to_type;
  pending.stream = g.stream;
  for (i64 col = 0; col < g.n; col += kPanel) {
    const char* b = static_cast<const char*>(g.b) + col / kPanel * g.b_stride;
    for (i64 row = 0; row < g.m; row += kPanel) {
      const char* a = static_cast<const char*>(g.a) + (g.a_line ? row * g.a_line : row / kPanel * g.a_stride);
      const bool tall = g.m - row > 16, wide = g.n - col > 16;
      float* to = sums[buffer ^= 1];
      if (tall) {
        wide ? micro<2, 2>(g, a, b, row, col, to, pending) : micro<2, 1>(g, a, b, row, col, to, pending);
      } else {
        wide ? micro<1, 2>(g, a, b, row, col, to, pending) : micro<1, 1>(g, a, b, row, col, to, pending);
      }
    }
  }
  pending.write<32>();
  if (g.stream) _mm_sfence();
  _tile_release();
}

// A tile instruction does 16 times the work of the vector instructions that replace it for a few rows: from five rows
// on, packing costs less.
constexpr GemmKernel kKernel = {32, 32, 32, 512, 2, 16, 32, PanelType::bf16, 4, &pack<false>, &pack<true>, &run};

}  // namespace

const GemmKernel& bf16_gemm_kernel() { return kKernel; }

}  // namespace weft::kernels::amx
