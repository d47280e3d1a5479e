// The stages of attention for one instruction set (WEFT_ISA_NS). Probabilities and gradients are bf16 for products on
// AMX tiles if AVX512-BF16 is available, otherwise f32. The lanes of a row are summed in one order; no element depends
// on its tile's height.
#if defined(__AVX512F__)
#include <immintrin.h>
// GCC's own intrinsics have undefined operands.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "ops/kernels/attention/attention_stages.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

#if defined(__AVX512BF16__)
constexpr bool kNarrow = true;
typedef u16 P;
#else
constexpr bool kNarrow = false;
typedef float P;
#endif
constexpr i64 kGroup = 32;                        // columns are padded to whole groups
constexpr i64 kFetchKeys = 16, kFetchValues = 8;  // rows ahead to prefetch
constexpr i64 kNr = kNarrow ? 32 : 2 * kF;
constexpr float kInf = __builtin_inff(), kMostAboveBase = 8;

W_FN VF spread(float x) { return x - VF{}; }
W_FN i64 least(i64 a, i64 b) { return a < b ? a : b; }
W_FN i64 up(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }

// ---- visible lanes ----

#if W_BYTES == 64
typedef __mmask16 Seen;
W_FN Seen seen(unsigned bits) { return static_cast<Seen>(bits); }
W_FN VF only(Seen m, VF x) { return (VF)_mm512_maskz_mov_ps(m, (__m512)x); }
W_FN VF greater(Seen m, VF top, VF x) { return (VF)_mm512_mask_max_ps((__m512)top, m, (__m512)x, (__m512)top); }
W_FN bool any_above(VF x, float limit) { return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0; }
#else
typedef VI32 Seen;
W_FN Seen seen(unsigned bits) {
  VI32 lane;
  for (int i = 0; i < kF; ++i) lane[i] = 1 << i;
  return ((VI32{} + (int)bits) & lane) != 0;
}
W_FN VF only(Seen m, VF x) { return (VF)((VI32)x & m); }
W_FN VF greater(Seen m, VF top, VF x) { return (x > top) & m ? x : top; }
W_FN bool any_above(VF x, float limit) { return w_any(x > spread(limit)); }
#endif

// The lesser of x and 0; NaN stays.
W_FN VF at_most_zero(VF x) {
#if W_BYTES == 64
  return (VF)_mm512_min_ps(_mm512_setzero_ps(), (__m512)x);
#elif W_BYTES == 32
  return (VF)__builtin_ia32_minps256(VF{}, x);
#else
  return (VF)__builtin_ia32_minps(VF{}, x);
#endif
}

W_FN unsigned lane_bits(const u8* row, i64 v) {
  if constexpr (kF == 16) {
    u16 b;
    __builtin_memcpy(&b, row + 2 * v, 2);
    return b;
  } else {
    return row[v * kF / 8] >> (v * kF % 8) & ((1u << kF) - 1);
  }
}
// Bit mask of the lanes of vector v that are inside cols columns.
W_FN unsigned inside(i64 v, i64 cols) {
  const i64 left = cols - v * kF;
  return left >= kF ? (1u << kF) - 1 : left <= 0 ? 0 : (1u << left) - 1;
}

// 2^x for x that is not huge; 0 below -126 and in lanes outside m. A polynomial on [0, 1) within 0.75 * 2^-23.
W_FN VF exp2_seen(VF x, Seen m) {
#if W_BYTES == 64
  const __mmask16 k = _mm512_mask_cmp_ps_mask(m, (__m512)x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  const VF r = (VF)_mm512_reduce_ps((__m512)x, 0x09);
#else
  const VI32 k = ~(x < -126.0f) & m;
  const VF whole = w_floor(x), r = x - whole;
#endif
  VF p = W_K(1.877576683e-03f);
  p = w_fma(p, r, W_K(8.989340142e-03f));
  p = w_fma(p, r, W_K(5.582631793e-02f));
  p = w_fma(p, r, W_K(2.401536171e-01f));
  p = w_fma(p, r, W_K(6.931530732e-01f));
  p = w_fma(p, r, W_K(9.999999251e-01f));
#if W_BYTES == 64
  return (VF)_mm512_maskz_scalef_ps(k, (__m512)p, (__m512)x);
#else
  return only(k, p * (VF)((w_to_i(whole) + 127) << 23));
#endif
}
W_FN float exp2_one(float x) {
  VF y = exp2_seen(spread(x), seen((1u << kF) - 1));
  return y[0];
}

W_FN float across_max(VF x) {
#if W_BYTES == 64
  return _mm512_reduce_max_ps((__m512)x);
#else
#pragma GCC unroll 4
  for (int by = kF / 2; by > 0; by /= 2) {
    VI32 lane;
    for (int i = 0; i < kF; ++i) lane[i] = (i + by) % kF;
    const VF y = __builtin_shuffle(x, lane);
    x = y > x ? y : x;
  }
  return x[0];
#endif
}

// Lane r is the sum of lanes[r], in one order.
W_FN VF sums_of(VF (&lanes)[kF]) {
  swap_lanes<1>(lanes);
#pragma GCC unroll 4
  for (int by = kF / 2; by > 0; by /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < by; ++i) lanes[i] = lanes[i] + lanes[i + by];
  return lanes[0];
}

#if defined(__AVX512BF16__)
// The lower half is from a.
W_FN __m512i narrow2(VF a, VF b) { return (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a); }
#endif

// Stores two vectors next to each other.
W_FN void put_two(P* to, VF a, VF b) {
#if defined(__AVX512BF16__)
  _mm512_storeu_si512(to, narrow2(a, b));
#else
  store(to, a);
  store(to + kF, b);
#endif
}

// ---- softmax ----

template <bool kMask>
W_FN VF row_top(const SoftmaxTile& t, const float* s, const u8* bits, i64 vectors) {
  VF top[2] = {W_K(-kInf), W_K(-kInf)};
#pragma GCC unroll 8
  for (i64 v = 0; v < vectors; ++v) {
    const VF x = load<VF>(s + v * kF);
    unsigned b = (1u << kF) - 1;
    if constexpr (kMask) b = inside(v, t.cols) & (bits ? lane_bits(bits, v) : ~0u);
    top[v & 1] = greater(seen(b), top[v & 1], x);
  }
  return greater(seen((1u << kF) - 1), top[0], top[1]);
}

W_FN void move_base(const SoftmaxTile& t, i64 row, float to) {
  if (t.base[row] == -kInf && !t.out) {
    t.base[row] = to;
    return;
  }
  const VF f = spread(exp2_one((t.base[row] - to) * t.scale));
  t.base[row] = to;
  float* sum = t.sum + row * kSumLanes;
  store(sum, load<VF>(sum) * f);
  if (!t.out) return;
  float* out = t.out + row * t.out_ld;
  for (i64 c = 0; c < t.out_cols; c += kF) store(out + c, load<VF>(out + c) * f);
}

// kWhole: the tile has all kTileKeys columns.
template <bool kMask, bool kKeep, bool kWhole>
void softmax_rows(const SoftmaxTile& t) {
  const i64 vectors = kWhole ? kTileKeys / kF : (t.cols + kF - 1) / kF;
  const i64 whole = kWhole ? kTileKeys / kF : up(t.cols, kGroup) / kF;
  const VF scale = spread(t.scale);
  for (i64 row = 0; row < t.rows; ++row) {
    const float* s = t.scores + row * t.ld;
    const u8* bits = t.bits ? t.bits + row * t.row_bytes : nullptr;
    const u8* keep = kKeep ? t.keep + row * (kTileKeys / 8) : nullptr;
    const VF top = row_top<kMask>(t, s, bits, vectors);
    if (t.top) {
      const float greatest = across_max(top);
      if (greatest > t.top[row]) t.top[row] = greatest;
    }
    if (any_above((top - spread(t.base[row])) * scale, kMostAboveBase)) move_base(t, row, across_max(top));
    const VF base = spread(t.base[row] == -kInf ? 0.0f : t.base[row]);
    P* p = static_cast<P*>(t.p) + row * t.p_ld;
    VF sum = load<VF>(t.sum + row * kSumLanes);
#pragma GCC unroll 4
    for (i64 v = 0; v < whole; v += 2) {
      VF e[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        unsigned b = (1u << kF) - 1;
        if constexpr (kMask) b = inside(v + i, t.cols) & (bits && (v + i) < vectors ? lane_bits(bits, v + i) : ~0u);
        e[i] = exp2_seen((load<VF>(s + (v + i) * kF) - base) * scale, seen(b));
        sum = sum + e[i];
        if constexpr (kKeep) e[i] = only(seen(lane_bits(keep, v + i)), e[i] * t.keep_scale);
      }
      put_two(p + v * kF, e[0], e[1]);
    }
    store(t.sum + row * kSumLanes, sum);
  }
}

void softmax(const SoftmaxTile& t) {
  const bool mask = t.bits || t.cols % kGroup, whole = t.cols == kTileKeys;
  if (t.keep) {
    mask ? softmax_rows<true, true, false>(t) : softmax_rows<false, true, false>(t);
  } else if (mask) {
    whole ? softmax_rows<true, false, true>(t) : softmax_rows<true, false, false>(t);
  } else {
    whole ? softmax_rows<false, false, true>(t) : softmax_rows<false, false, false>(t);
  }
}

// Stores the first `n` lanes of v as `type`.
W_FN void put_some(void* to, i64 at, VF v, i64 n, PanelType type) {
  char* p = static_cast<char*>(to) + at * (type == PanelType::f32 ? 4 : 2);
  if (type == PanelType::f32) {
    n >= kF ? store(p, v) : (void)__builtin_memcpy(p, &v, n * 4);
    return;
  }
#if defined(__AVX512BF16__)
  const VU16F h = type == PanelType::bf16 ? (VU16F)(__m256i)_mm512_cvtneps_pbh((__m512)v) : float_to_f16(v);
#else
  const VU16F h = type == PanelType::bf16 ? float_to_bf16(v) : float_to_f16(v);
#endif
  n >= kF ? store(p, h) : (void)__builtin_memcpy(p, &h, n * 2);
}

bool finish(const FinishTile& t) {
  VI32 bad{};
  for (i64 first = 0; first < t.rows; first += kF) {
    // Sums, logarithms and reciprocals of kF rows in one vector.
    const i64 rows = least(kF, t.rows - first);
    VF lanes[kF];
#pragma GCC unroll 16
    for (int i = 0; i < kF; ++i) lanes[i] = i < rows ? load<VF>(t.sum + (first + i) * kSumLanes) : VF{};
    const VF total = sums_of(lanes), part = total == 0.0f ? VF{} : 1.0f / total;
    const VI32 none = total == 0.0f;
    for (i64 i = 0; i < rows; ++i) {
      const float* out = t.out + (first + i) * t.out_ld;
      const VF by = spread(part[i]);
      const Seen any = seen(none[i] ? 0 : (1u << kF) - 1);
      i64 c = 0;
      for (; c + kF <= t.cols; c += kF) {
        const VF y = only(any, load<VF>(out + c) * by);
        bad |= ~w_isfinite(y);
        put_some(t.to, (first + i) * t.to_ld + c, y, kF, t.to_type);
      }
      if (c == t.cols) continue;
      const VF y = only(any, only(seen(inside(0, t.cols - c)), load<VF>(out + c) * by));
      bad |= ~w_isfinite(y);
      put_some(t.to, (first + i) * t.to_ld + c, y, t.cols - c, t.to_type);
    }
    if (t.log_sum) {
      VF above{};
      for (i64 i = 0; i < rows; ++i) above[i] = (t.base[first + i] - t.top[first + i]) * t.scale;
      const VF log_sum = none ? W_K(-kInf) : above * 0.693147182f + w_log(total);
      put_some(t.log_sum, first, log_sum, rows, PanelType::f32);
    }
    for (i64 i = 0; t.max && i < rows; ++i) t.max[first + i] = t.top[first + i];
  }
  return !w_any(bad);
}

void merge(const FinishTile& t, float* out, float* base, float* sum, float* top) {
  for (i64 row = 0; row < t.rows; ++row) {
    if (top && t.top[row] > top[row]) top[row] = t.top[row];
    const float a = base[row], b = t.base[row], to = a > b ? a : b;
    if (to == -kInf) continue;
    const VF fa = spread(exp2_one((a - to) * t.scale)), fb = spread(exp2_one((b - to) * t.scale));
    base[row] = to;
    float* s = sum + row * kSumLanes;
    store(s, load<VF>(s) * fa + load<VF>(t.sum + row * kSumLanes) * fb);
    float* o = out + row * t.out_ld;
    for (i64 c = 0; c < t.cols; c += kF) store(o + c, load<VF>(o + c) * fa + load<VF>(t.out + row * t.out_ld + c) * fb);
  }
}

// ---- the gradient ----

enum GradPart { kAll, kBeforeHook, kAfterHook };

// The address of columns v and v + 1 (in vectors) of row `row`, as operand b packed over the rows.
W_FN char* panel_at(void* panels, i64 stride, i64 row, i64 col) {
  char* panel = static_cast<char*>(panels) + col / kNr * stride;
  return kNarrow ? panel + row / 32 * 2048 + col % 32 / 16 * 1024 + row % 32 / 2 * 64
                 : panel + (row * kNr + col % kNr) * 4;
}

// If kNarrow is true, pairs of rows are stored together.
constexpr int kPair = kNarrow ? 2 : 1;
W_FN void put_panels(void* panels, i64 stride, i64 row, i64 col, const VF (&x)[kPair][2]) {
#if defined(__AVX512BF16__)
  alignas(64) static constexpr short kMix[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i mix = _mm512_load_si512(kMix);
  char* at = panel_at(panels, stride, row, col);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    _mm512_store_si512(at + i * 1024, _mm512_permutexvar_epi16(mix, narrow2(x[0][i], x[1][i])));
#else
  char* at = panel_at(panels, stride, row, col);
  store(at, x[0][0]);
  store(at + kF * 4, x[0][1]);
#endif
}

template <GradPart kPart, bool kMask, bool kKeep>
void gradient_rows(const GradTile& t) {
  const i64 vectors = (t.cols + kF - 1) / kF, whole = up(t.cols, kGroup) / kF;
  const VF scale = spread(t.scale);
  for (i64 row = 0; row < t.rows; row += kPair) {
    for (i64 v = 0; v < whole; v += 2) {
      VF p[kPair][2], d[kPair][2];
#pragma GCC unroll 2
      for (int r = 0; r < kPair; ++r) {
        const i64 at = row + r;
        const bool in = r == 0 || at < t.rows;
        const u8* bits = kMask && t.bits && in ? t.bits + at * t.row_bytes : nullptr;
        const i64 from = in ? at : row;
        const VF top = spread(t.max[from]), log_sum = spread(t.log_sum[from]), delta = spread(t.delta[from]);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          unsigned b = (1u << kF) - 1;
          if constexpr (kMask) b = inside(v + i, t.cols) & (bits && v + i < vectors ? lane_bits(bits, v + i) : ~0u);
          if (kPair > 1 && !in) b = 0;
          const Seen m = seen(b);
          float* g = t.grad + from * t.ld + (v + i) * kF;
          VF x = load<VF>(g);
          if constexpr (kPart == kAfterHook) {
            d[r][i] = only(m, x);
            continue;
          }
          // Forward may have summed q k^T in another order. A huge score may then exceed the stored maximum by an ulp,
          // and its exponent would overflow.
          const VF above = at_most_zero(load<VF>(t.scores + from * t.ld + (v + i) * kF) - top);
          p[r][i] = exp2_seen(w_fma(above, scale, -log_sum), m);
          VF kept = p[r][i];
          if constexpr (kKeep) {
            const Seen k = seen(lane_bits(t.keep + from * (kTileKeys / 8), v + i));
            x = only(k, x * t.keep_scale);
            kept = only(k, kept * t.keep_scale);
          }
          d[r][i] = only(m, p[r][i] * (x - delta));
          p[r][i] = kept;
          if constexpr (kPart == kBeforeHook) {
            if (!in) continue;
            float* raw = t.raw + from * t.ld + (v + i) * kF;
            store(g, d[r][i]);
            store(raw, only(m, load<VF>(raw)));
          }
        }
      }
      if constexpr (kPart != kAfterHook) put_panels(t.p_panels, t.panel_stride, row, v * kF, p);
      if constexpr (kPart == kBeforeHook) continue;
      put_panels(t.d_panels, t.panel_stride, row, v * kF, d);
      for (int r = 0; r < kPair; ++r)
        if (r == 0 || row + r < t.rows) put_two(static_cast<P*>(t.d) + (row + r) * t.d_ld + v * kF, d[r][0], d[r][1]);
    }
  }
  if constexpr (kNarrow) {
    const VF zero[kPair][2] = {};
    for (i64 row = up(t.rows, 2); row < up(t.rows, 32); row += 2)
      for (i64 v = 0; v < whole; v += 2) {
        if constexpr (kPart != kAfterHook) put_panels(t.p_panels, t.panel_stride, row, v * kF, zero);
        if constexpr (kPart != kBeforeHook) put_panels(t.d_panels, t.panel_stride, row, v * kF, zero);
      }
  }
}

template <GradPart kPart>
void gradient(const GradTile& t) {
  const bool mask = t.bits || t.cols % kGroup;
  if (t.keep && kPart != kAfterHook) {
    mask ? gradient_rows<kPart, true, true>(t) : gradient_rows<kPart, false, true>(t);
  } else {
    mask ? gradient_rows<kPart, true, false>(t) : gradient_rows<kPart, false, false>(t);
  }
}

#include "ops/kernels/attention/attention_rows.inc"

// ---- other stages ----

// Products of the lower 32 bits of each lane.
W_FN VU64 wide_product(VU64 a, VU64 b) {
#if W_BYTES == 64
  return (VU64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif W_BYTES == 32
  return (VU64)__builtin_ia32_pmuludq256((VI32)a, (VI32)b);
#else
  return (VU64)__builtin_ia32_pmuludq128((VI32)a, (VI32)b);
#endif
}

// philox.inc's words of kD blocks at a time; the upper halves of lanes are undefined.
void keep_row(const KeepRow& k) {
  const u64 skip = k.first % 4, blocks = (skip + k.cols + 3) / 4;
  u8 nibbles[kTileKeys / 8 + kD + 1] = {};  // four bits of each block
  VU64 lane;
  for (int i = 0; i < kD; ++i) lane[i] = i;
  for (u64 at = 0; at < blocks; at += kD) {
    const VU64 block = lane + (k.first / 4 + at);
    VU64 c0 = block, c1 = block >> 32, c2 = VU64{} + k.op_id, c3 = VU64{} + k.step;
    u32 k0 = (u32)k.seed, k1 = (u32)(k.seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const VU64 p = wide_product(VU64{} + 0xD2511F53u, c0), q = wide_product(VU64{} + 0xCD9E8D57u, c2);
      c0 = (q >> 32) ^ c1 ^ k0, c1 = q;
      c2 = (p >> 32) ^ c3 ^ k1, c3 = p;
    }
    const VU64 words[4] = {c0, c1, c2, c3};
    VI64 bits{};
    for (int w = 0; w < 4; ++w) bits |= ((VI64)((words[w] & 0xffffffffu) >> 8) >= (i64)k.threshold) & (1 << w);
    for (u64 i = 0; i < kD; ++i) nibbles[(at + i) / 2] |= (u8)(bits[i] << (at + i) % 2 * 4);
  }
  for (i64 i = 0; i < kTileKeys / 8; ++i) k.bits[i] = (u8)((nibbles[i] | nibbles[i + 1] << 8) >> skip);
}

void scale_tile(float* x, int64_t ld, int64_t rows, int64_t cols, float scale) {
  for (i64 r = 0; r < rows; ++r)
    for (i64 c = 0; c < cols; c += kF) store(x + r * ld + c, load<VF>(x + r * ld + c) * scale);
}

template <class M>
void dots_of(const void* a, i64 a_ld, const void* b, i64 b_ld, i64 rows, i64 n, float* out, bool* finite) {
  typedef typename M::E E;
  for (i64 first = 0; first < rows; first += kF) {
    const i64 count = least(kF, rows - first);
    VF sums[kF] = {}, zeros[kF] = {};  // x - x is 0 where x is finite
    for (i64 i = 0; i < count; ++i) {
      const E *x = static_cast<const E*>(a) + (first + i) * a_ld, *y = static_cast<const E*>(b) + (first + i) * b_ld;
      VF sum{}, zero{};
      for (i64 d = 0; d < n; d += kF) {
        const VF v = load_first<M>(y + d, n - d);
        zero = zero + (v - v);
        sum = w_fma(load_first<M>(x + d, n - d), v, sum);
      }
      sums[i] = sum, zeros[i] = zero;
    }
    const VF sum = sums_of(sums), zero = sums_of(zeros);
    put_some(out, first, sum, count, PanelType::f32);
    for (i64 i = 0; i < count; ++i) finite[first + i] = zero[i] == 0;
  }
}
void dots(const void* a, int64_t a_ld, const void* b, int64_t b_ld, int64_t rows, int64_t n, PanelType type, float* out,
          bool* finite) {
  type == PanelType::f32    ? dots_of<MF32>(a, a_ld, b, b_ld, rows, n, out, finite)
  : type == PanelType::bf16 ? dots_of<MBF16>(a, a_ld, b, b_ld, rows, n, out, finite)
                            : dots_of<MF16>(a, a_ld, b, b_ld, rows, n, out, finite);
}

void store_transposed(const float* from, int64_t ld, int64_t rows, int64_t cols, float scale, void* to, int64_t to_ld,
                      PanelType type) {
  for (i64 c = 0; c < cols; c += kF)
    for (i64 r = 0; r < rows; r += kF) {
      const i64 lines = least(kF, cols - c), wide = least(kF, rows - r);
      VF x[kF];
#pragma GCC unroll 16
      for (int i = 0; i < kF; ++i) x[i] = i < wide ? load<VF>(from + (r + i) * ld + c) * scale : VF{};
      swap_lanes<1>(x);
      if (lines == kF && wide == kF) {
#pragma GCC unroll 16
        for (int i = 0; i < kF; ++i) put_some(to, (c + i) * to_ld + r, x[i], kF, type);
      } else {
        for (i64 i = 0; i < lines; ++i) put_some(to, (c + i) * to_ld + r, x[i], wide, type);
      }
    }
}

void store_sum(const float* const* from, int64_t pieces, int64_t ld, int64_t rows, int64_t cols, float scale, void* to,
               int64_t to_ld, PanelType type) {
  for (i64 r = 0; r < rows; ++r)
    for (i64 c = 0; c < cols; c += kF) {
      VF x{};
      for (i64 p = 0; p < pieces; ++p) {
        const VF y = load<VF>(from[p] + r * ld + c);
        x = p == 0 ? y : x + y;
      }
      put_some(to, r * to_ld + c, x * scale, cols - c, type);
    }
}

constexpr AttentionStages kStages = {&softmax,
                                     &finish,
                                     &merge,
                                     &gradient<kAll>,
                                     &gradient<kBeforeHook>,
                                     &gradient<kAfterHook>,
                                     &keep_row,
                                     &row_scores,
                                     &row_values,
                                     &scale_tile,
                                     &dots,
                                     &store_transposed,
                                     &store_sum};

}  // namespace

const AttentionStages& attention_stages() { return kStages; }

}  // namespace weft::kernels::WEFT_ISA_NS
