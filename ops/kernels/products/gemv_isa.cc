// A few rows times a matrix, for one instruction set (WEFT_ISA_NS): the matrix is read once and never copied as a
// whole. The order of a sum depends neither on the number of rows nor on the column, so a row has the bits that it has
// alone.
#include "ops/kernels/products/gemm_kernel.h"
#include "ops/kernels/tables.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

W_FN i64 least(i64 a, i64 b) { return a < b ? a : b; }

// The first `count` elements as f32, then zeros up to a multiple of `unit`, which is one of kF.
template <class M>
W_FN void widen(const typename M::E* from, i64 count, i64 unit, float* to) {
  i64 i = 0;
  for (; i + kF <= count; i += kF) store(to + i, M::get(from + i));
  for (; i % unit != 0 || i < count; i += kF) {
    alignas(64) typename M::E edge[kF] = {};
    for (i64 j = i; j < least(count, i + kF); ++j) edge[j - i] = from[j];
    store(to + i, M::get(edge));
  }
}

// ---- w[j, k] contiguous in k ----
//
// Sums run in kL logical lanes for every SIMD width; then lanes l + 8, l + 4, l + 2 and l + 1 are added to lane l.
// Lanes are in memory between blocks of k. A tile of columns stays in the nearest cache as groups of rows go over it.
constexpr int kL = 16, kV = kL / kF, kRows = 4;
// Columns at a time, and vectors of lanes for kR rows: the sums that registers hold beside their operands.
constexpr int kColumns = kF == 16 ? 6 : kF == 8 ? 3 : 2, kOneRow = kF == 8 ? 4 : kColumns;
template <int kR>
constexpr int kVectors = kR == 1   ? kV
                         : kR == 2 ? (kV < 2 ? kV : 2)
                                   : 1;
// A tile and the block of a group of rows fit the nearest cache. kGroup columns of all rows have their lanes in memory.
constexpr i64 kTile = 6, kBlock = 640, kOneBlock = 1024, kGroup = 48, kMostGroup = 192, kWideX = 32768;
static_assert(kTile % kColumns == 0 && kGroup % kTile == 0 && kGroup % kF == 0);

// Adds the products of kR rows and kC columns over k, a multiple of kL, to lanes[r][c].
template <class M, int kR, int kC, int kN>
W_FN void dots(const float* x, i64 x_stride, const typename M::E* w, i64 w_stride, i64 k, float* lanes, i64 line,
               bool start) {
#pragma GCC unroll 1
  for (int at = 0; at < kL; at += kN * kF) {
    VF sums[kR][kC][kN];
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < kC; ++c)
#pragma GCC unroll 4
        for (int n = 0; n < kN; ++n) sums[r][c][n] = start ? VF{} : load<VF>(lanes + r * line + c * kL + at + n * kF);
    i64 i = at;
    do {
#pragma GCC unroll 4
      for (int n = 0; n < kN; ++n) {
        VF b[kC];
#pragma GCC unroll 8
        for (int c = 0; c < kC; ++c) b[c] = M::get(w + c * w_stride + i + n * kF);
#pragma GCC unroll 8
        for (int r = 0; r < kR; ++r) {
          const VF a = load<VF>(x + r * x_stride + i + n * kF);
#pragma GCC unroll 8
          for (int c = 0; c < kC; ++c) sums[r][c][n] = w_fma(a, b[c], sums[r][c][n]);
        }
      }
    } while ((i += kL) < k);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < kC; ++c)
#pragma GCC unroll 4
        for (int n = 0; n < kN; ++n) store(lanes + r * line + c * kL + at + n * kF, sums[r][c][n]);
  }
}

template <class M, int kR>
void dot_tile(const float* x, i64 x_stride, const typename M::E* w, i64 w_stride, i64 k, i64 cols, float* lanes,
              i64 line, bool start) {
  i64 c = 0;
  constexpr int kC = kR == 1 ? kOneRow : kColumns;
  for (; c + kC <= cols; c += kC)
    dots<M, kR, kC, kVectors<kR>>(x, x_stride, w + c * w_stride, w_stride, k, lanes + c * kL, line, start);
  for (; c < cols; ++c) dots<M, kR, 1, kV>(x, x_stride, w + c * w_stride, w_stride, k, lanes + c * kL, line, start);
}

// The next tile of columns in memory, or null.
struct NextTile {
  const char* at;
  i64 line, bytes;
};

template <class M>
W_FN void dot_rows(const float* x, i64 x_stride, i64 rows, const typename M::E* w, i64 w_stride, i64 k, i64 cols,
                   float* lanes, i64 line, bool start, NextTile next) {
  for (i64 r = 0; r < rows; r += kRows) {
    for (i64 c = r / kRows; c < kTile && next.at; c += (rows + kRows - 1) / kRows)
      for (i64 i = 0; i < next.bytes; i += 64) __builtin_prefetch(next.at + c * next.line + i, 0, 2);
    const float* from = x + r * x_stride;
    float* to = lanes + r * line;
    switch (rows - r) {
      case 1:
        dot_tile<M, 1>(from, x_stride, w, w_stride, k, cols, to, line, start);
        break;
      case 2:
        dot_tile<M, 2>(from, x_stride, w, w_stride, k, cols, to, line, start);
        break;
      case 3:
        dot_tile<M, 3>(from, x_stride, w, w_stride, k, cols, to, line, start);
        break;
      default:
        dot_tile<M, kRows>(from, x_stride, w, w_stride, k, cols, to, line, start);
    }
  }
}

// k in equal blocks, multiples of kL.
W_FN i64 even_block(i64 k, i64 most) {
  const i64 blocks = (k + most - 1) / most, each = (k + blocks - 1) / blocks;
  return (each + kL - 1) / kL * kL;
}

// Lane l of v[0] becomes the sum of the lanes of v[l]: lane l + kStep is added to lane l of each, and so on.
template <int kStep>
W_FN void add_lanes(VF (&v)[kF]) {
  VI32 low, high;
#pragma GCC unroll 16
  for (int l = 0; l < kF; ++l) {
    low[l] = l & kStep ? kF + l - kStep : l;
    high[l] = l & kStep ? kF + l : l + kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kStep; ++i)
    v[i] = __builtin_shuffle(v[i], v[i + kStep], low) + __builtin_shuffle(v[i], v[i + kStep], high);
  if constexpr (kStep > 1) add_lanes<kStep / 2>(v);
}
void finish(const float* lanes, i64 cols, float* out) {
  for (i64 c = 0; c < cols; c += kF) {
    VF v[kF];
#pragma GCC unroll 16
    for (int i = 0; i < kF; ++i) {
      VF part[kV];
#pragma GCC unroll 4
      for (int n = 0; n < kV; ++n) part[n] = load<VF>(lanes + (c + i) * kL + n * kF);
#pragma GCC unroll 4
      for (int s = kV / 2; s > 0; s /= 2)
#pragma GCC unroll 4
        for (int n = 0; n < s; ++n) part[n] = part[n] + part[n + s];
      v[i] = part[0];
    }
    add_lanes<kF / 2>(v);
    if (c + kF <= cols) {
      store(out + c, v[0]);
    } else {
      for (i64 i = c; i < cols; ++i) out[i] = v[0][i - c];
    }
  }
}

template <class M>
void dot_columns(const void* x, i64 x_stride, i64 rows, const void* w, i64 w_stride, i64 k, i64 cols, float* out,
                 i64 ld) {
  typedef typename M::E E;
  constexpr bool kWide = sizeof(E) == 4;
  alignas(64) float lanes[kMostFewRows * kGroup * kL], wide_x[kWideX + kMostFewRows * kL], wide_w[kTile * kBlock];
  // One group of rows reads a few columns to their end, so that the hardware prefetches them. More rows read a
  // block of many columns, so that the same block of x serves them.
  const bool one = rows <= kRows;
  const i64 tile = rows == 1 ? kOneRow
                   : one     ? kColumns
                             : kTile,
            group = least(kMostGroup, kMostFewRows / rows * kGroup);
  const i64 span = one ? tile : group, line = group * kL, most = even_block(k, one ? kOneBlock : kBlock);
  const i64 deep = kWideX / rows / most * most;  // the most k of x in wide_x, from `held` on
  const i64 stride = deep + kL;  // rows of wide_x do not all begin in the same line of the nearest cache
  i64 held = -1;
  for (i64 j = 0; j < cols; j += group) {
    const i64 count = least(group, cols - j);
    for (i64 r = 0; r < rows; ++r)
      for (i64 c = count; c % kF != 0; ++c)  // columns of the last vector beyond the matrix
        for (int l = 0; l < kL; l += kF) store(lanes + r * line + c * kL + l, VF{});
    for (i64 at = 0; at < count; at += span)
      for (i64 first = 0, n; first < k; first += n) {
        n = k - first < kL ? k - first : least(most, (k - first) / kL * kL);
        const bool direct = kWide && n % kL == 0;
        const i64 begin = kWide ? first : first / deep * deep;
        if (!direct && held != begin) {
          held = begin;
          for (i64 r = 0; r < rows; ++r)
            widen<M>(static_cast<const E*>(x) + r * x_stride + begin, least(deep, k - begin), kL, wide_x + r * stride);
        }
        const float* from_x = direct ? static_cast<const float*>(x) + first : wide_x + (first - begin);
        for (i64 c = at; c < least(at + span, count); c += tile) {
          const i64 width = least(tile, count - c);
          const E* from = static_cast<const E*>(w) + (j + c) * w_stride + first;
          if (n % kL == 0 && (kWide || one)) {
            dot_rows<M>(from_x, direct ? x_stride : stride, rows, from, w_stride, n, width, lanes + c * kL, line,
                        first == 0, {});
            continue;
          }
          // The hardware does not foresee the next tile of a block.
          NextTile next{nullptr, w_stride * static_cast<i64>(sizeof(E)), n * static_cast<i64>(sizeof(E))};
          if (!one && most < k)
            next.at = reinterpret_cast<const char*>(
                c + tile < least(at + span, count) ? from + tile * w_stride : from - (c - at) * w_stride + n);
          for (i64 i = 0; i < width; ++i) widen<M>(from + i * w_stride, n, kL, wide_w + i * kBlock);
          dot_rows<MF32>(from_x, direct ? x_stride : stride, rows, wide_w, kBlock, (n + kL - 1) / kL * kL, width,
                         lanes + c * kL, line, first == 0, next);
        }
      }
    for (i64 r = 0; r < rows; ++r) finish(lanes + r * line, count, out + r * ld + j);
  }
}

// ---- w[k, j] contiguous in j ----
//
// Each column's sum runs over k in order. Rows of w are streamed, kDeep together; the sums of a strip of columns stay
// in the caches.
constexpr int kDeep = kF == 4 ? 4 : 6, kWidth = kF == 16 ? 4 : 2;
constexpr i64 kStrip = 2048, kPiece = 96;

// kN vectors of columns and kK rows of w.
template <class M, int kK, int kN>
W_FN void add_vectors(const float* x, i64 x_stride, i64 rows, const typename M::E* w, i64 w_stride, float* sums,
                      i64 strip) {
  VF b[kK][kN];
#pragma GCC unroll 8
  for (int i = 0; i < kK; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < kN; ++n) b[i][n] = M::get(w + i * w_stride + n * kF);
#pragma GCC unroll 1
  for (i64 r = 0; r < rows; ++r, x += x_stride, sums += strip) {
    VF s[kN];
#pragma GCC unroll 4
    for (int n = 0; n < kN; ++n) s[n] = load<VF>(sums + n * kF);
#pragma GCC unroll 8
    for (int i = 0; i < kK; ++i) {
      const VF a = x[i] - VF{};
#pragma GCC unroll 4
      for (int n = 0; n < kN; ++n) s[n] = w_fma(a, b[i][n], s[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < kN; ++n) store(sums + n * kF, s[n]);
  }
}

template <class M, int kK>
void add_strip(const float* x, i64 x_stride, i64 rows, const typename M::E* w, i64 w_stride, i64 cols, float* sums,
               i64 strip) {
  i64 c = 0;
  for (; c + kWidth * kF <= cols; c += kWidth * kF)
    add_vectors<M, kK, kWidth>(x, x_stride, rows, w + c, w_stride, sums + c, strip);
  for (; c + kF <= cols; c += kF) add_vectors<M, kK, 1>(x, x_stride, rows, w + c, w_stride, sums + c, strip);
  if (c == cols) return;
  alignas(64) typename M::E edge[kK][kF] = {};
  for (int i = 0; i < kK; ++i)
    for (i64 j = c; j < cols; ++j) edge[i][j - c] = w[i * w_stride + j];
  add_vectors<M, kK, 1>(x, x_stride, rows, edge[0], kF, sums + c, strip);
}

template <class M>
void add_rows(const void* x, i64 x_stride, i64 rows, const void* w, i64 w_stride, i64 k, i64 cols, float* out, i64 ld) {
  typedef typename M::E E;
  constexpr i64 kApart = 16;  // rows of sums begin in different lines of the nearest cache
  alignas(64) float sums[kMostFewRows * (kStrip + kApart)], wide_x[kMostFewRows * kPiece];
  const i64 line = (least(kStrip, cols) + 31) / 32 * 32 + kApart;
  for (i64 j = 0; j < cols; j += kStrip) {
    const i64 m = least(kStrip, cols - j);
    for (i64 r = 0; r < rows; ++r)
      for (i64 c = 0; c < m; c += kF) store(sums + r * line + c, VF{});
    for (i64 first = 0; first < k; first += kPiece) {
      const i64 n = least(kPiece, k - first);
      const float* from_x = static_cast<const float*>(x) + first;
      i64 stride = x_stride;
      if constexpr (sizeof(E) == 2) {
        for (i64 r = 0; r < rows; ++r)
          widen<M>(static_cast<const E*>(x) + r * x_stride + first, n, kF, wide_x + r * kPiece);
        from_x = wide_x;
        stride = kPiece;
      }
      const E* row = static_cast<const E*>(w) + first * w_stride + j;
      i64 i = 0;
      for (; i + kDeep <= n; i += kDeep)
        add_strip<M, kDeep>(from_x + i, stride, rows, row + i * w_stride, w_stride, m, sums, line);
      for (; i + 2 <= n; i += 2) add_strip<M, 2>(from_x + i, stride, rows, row + i * w_stride, w_stride, m, sums, line);
      for (; i < n; ++i) add_strip<M, 1>(from_x + i, stride, rows, row + i * w_stride, w_stride, m, sums, line);
    }
    for (i64 r = 0; r < rows; ++r) __builtin_memcpy(out + r * ld + j, sums + r * line, static_cast<u64>(m) * 4);
  }
}

constexpr GemvFn kFns[2][3] = {{&dot_columns<MF32>, &dot_columns<MBF16>, &dot_columns<MF16>},
                               {&add_rows<MF32>, &add_rows<MBF16>, &add_rows<MF16>}};

}  // namespace

GemvFn gemv_fn(bool w_rows_contiguous, int type) { return kFns[w_rows_contiguous][type]; }

}  // namespace weft::kernels::WEFT_ISA_NS
