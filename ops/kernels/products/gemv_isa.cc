// A few rows times a matrix, for one instruction set (WEFT_ISA_NS): limited by reading the matrix once. Sums run in 16
// logical lanes for every SIMD width; then lane l takes l + 8, l + 4, l + 2 and l + 1.
#include "ops/kernels/tables.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

constexpr int kL = 16, kV = kL / kF, kMaxRows = 4, kCols = 4;

W_FN float sum_lanes(const VF (&acc)[kV]) {
  float lane[kL];
  __builtin_memcpy(lane, acc, sizeof lane);
  for (int s = kL / 2; s > 0; s /= 2)
    for (int l = 0; l < s; ++l) lane[l] = lane[l] + lane[l + s];
  return lane[0];
}

// out[r, j] = sum over k of x[r, k] w[j, k], for `rows` rows and cols columns w[j], each contiguous in k.
template <class M, int R, int C>
W_FN void dots(const typename M::E* const* x, const typename M::E* w, i64 w_stride, i64 k, float* out, i64 ld) {
  VF acc[R][C][kV] = {};
  i64 i = 0;
  for (; i + kL <= k; i += kL)
    for (int v = 0; v < kV; ++v) {
      VF b[C];
      for (int c = 0; c < C; ++c) b[c] = M::get(w + c * w_stride + i + v * kF);
      for (int r = 0; r < R; ++r) {
        VF a = M::get(x[r] + i + v * kF);
        for (int c = 0; c < C; ++c) acc[r][c][v] = w_fma(a, b[c], acc[r][c][v]);
      }
    }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      if (i < k) {
        alignas(64) typename M::E ta[kL] = {}, tb[kL] = {};
        for (i64 j = i; j < k; ++j) ta[j - i] = x[r][j], tb[j - i] = w[c * w_stride + j];
        for (int v = 0; v < kV; ++v) acc[r][c][v] = w_fma(M::get(ta + v * kF), M::get(tb + v * kF), acc[r][c][v]);
      }
      out[r * ld + c] = sum_lanes(acc[r][c]);
    }
}
template <class M, int R>
void dot_columns(const void* x, i64 x_stride, const void* w, i64 w_stride, i64 k, i64 cols, float* out, i64 ld) {
  typedef typename M::E E;
  const E* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const E*>(x) + r * x_stride;
  const E* p = static_cast<const E*>(w);
  i64 j = 0;
  for (; j + kCols <= cols; j += kCols) dots<M, R, kCols>(rows, p + j * w_stride, w_stride, k, out + j, ld);
  for (; j < cols; ++j) dots<M, R, 1>(rows, p + j * w_stride, w_stride, k, out + j, ld);
}

// Same for w[k, j] contiguous in j: each column's sum runs over k in order. Rows of w are streamed; the sums of a strip
// of columns stay in the nearest cache.
template <class M, int R>
void add_rows(const void* x, i64 x_stride, const void* w, i64 w_stride, i64 k, i64 cols, float* out, i64 ld) {
  typedef typename M::E E;
  constexpr i64 kStrip = 512;
  const E *xs = static_cast<const E*>(x), *p = static_cast<const E*>(w);
  alignas(64) E one[kF];
  for (i64 j = 0; j < cols; j += kStrip) {
    const i64 m = cols - j < kStrip ? cols - j : kStrip, whole = m / kF * kF;
    alignas(64) float acc[R][kStrip] = {};
    for (i64 i = 0; i < k; ++i) {
      const E* row = p + i * w_stride + j;
      VF a[R];
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < kF; ++c) one[c] = xs[r * x_stride + i];
        a[r] = M::get(one);
      }
      for (i64 c = 0; c < whole; c += kF) {
        const VF b = M::get(row + c);
        for (int r = 0; r < R; ++r) store(acc[r] + c, w_fma(a[r], b, load<VF>(acc[r] + c)));
      }
      if (whole < m) {
        alignas(64) E edge[kF] = {};
        for (i64 c = whole; c < m; ++c) edge[c - whole] = row[c];
        const VF b = M::get(edge);
        for (int r = 0; r < R; ++r) store(acc[r] + whole, w_fma(a[r], b, load<VF>(acc[r] + whole)));
      }
    }
    for (int r = 0; r < R; ++r)
      for (i64 c = 0; c < m; ++c) out[r * ld + j + c] = acc[r][c];
  }
}

#define FNS(fn, M) \
  { &fn<M, 1>, &fn<M, 2>, &fn<M, 3>, &fn<M, 4> }
constexpr GemvFn kFns[2][3][kMaxRows] = {{FNS(dot_columns, MF32), FNS(dot_columns, MBF16), FNS(dot_columns, MF16)},
                                         {FNS(add_rows, MF32), FNS(add_rows, MBF16), FNS(add_rows, MF16)}};

}  // namespace

GemvFn gemv_fn(bool w_rows_contiguous, int type, int rows) { return kFns[w_rows_contiguous][type][rows - 1]; }

}  // namespace weft::kernels::WEFT_ISA_NS
