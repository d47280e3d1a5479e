// The transforms of Winograd's convolution for one instruction set (WEFT_ISA_NS).
#include "ops/kernels/products/winograd_isa.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

// Calls step(i, lanes of T) for vectors, then for the elements that remain.
template <class F>
W_FN void along(int64_t n, const F& step) {
  int64_t i = 0;
  for (; i + kF <= n; i += kF) step(i, VF{});
  for (; i < n; ++i) step(i, 0.0f);
}

// Four elements of the operand to four: (a - c, b + c, c - b, b - d).
template <class T>
W_FN void spread_operand(T a, T b, T c, T d, T (&out)[4]) {
  out[0] = a - c;
  out[1] = b + c;
  out[2] = c - b;
  out[3] = b - d;
}

void operand(const float* const* x, int64_t n, float* out, int64_t stride) {
  const float* lines[16];
  for (int k = 0; k < 16; ++k) lines[k] = x[k];
  along(
      n, [=](int64_t i, auto lanes) __attribute__((always_inline)) {
        typedef decltype(lanes) T;
        T rows[4][4], column[4];
        for (int x = 0; x < 4; ++x) {
          spread_operand(load<T>(lines[x] + i), load<T>(lines[4 + x] + i), load<T>(lines[8 + x] + i),
                         load<T>(lines[12 + x] + i), column);
          for (int y = 0; y < 4; ++y) rows[y][x] = column[y];
        }
        for (int y = 0; y < 4; ++y) {
          T across[4];
          spread_operand(rows[y][0], rows[y][1], rows[y][2], rows[y][3], across);
          for (int x = 0; x < 4; ++x) store(out + (4 * y + x) * stride + i, across[x]);
        }
      });
}

// Two elements of the gradient to four: (a, a + b, a - b, -b).
template <class T>
W_FN void spread_gradient(T a, T b, T (&out)[4]) {
  out[0] = a;
  out[1] = a + b;
  out[2] = a - b;
  out[3] = -b;
}

void gradient(const float* const* g, int64_t n, float* out, int64_t stride) {
  const float *const g00 = g[0], *const g01 = g[1], *const g10 = g[2], *const g11 = g[3];
  along(
      n, [=](int64_t i, auto lanes) __attribute__((always_inline)) {
        typedef decltype(lanes) T;
        T left[4], right[4];
        spread_gradient(load<T>(g00 + i), load<T>(g10 + i), left);
        spread_gradient(load<T>(g01 + i), load<T>(g11 + i), right);
        for (int y = 0; y < 4; ++y) {
          T across[4];
          spread_gradient(left[y], right[y], across);
          for (int x = 0; x < 4; ++x) store(out + (4 * y + x) * stride + i, across[x]);
        }
      });
}

void output(const float* m, int64_t stride, int64_t n, float* const* out) {
  float *const y00 = out[0], *const y01 = out[1], *const y10 = out[2], *const y11 = out[3];
  along(
      n, [=](int64_t i, auto lanes) __attribute__((always_inline)) {
        typedef decltype(lanes) T;
        T top[4], low[4];
        for (int j = 0; j < 4; ++j) {
          const float* const p = m + j * stride + i;
          const T r0 = load<T>(p), r1 = load<T>(p + 4 * stride), r2 = load<T>(p + 8 * stride),
                  r3 = load<T>(p + 12 * stride);
          top[j] = r0 + r1 + r2;
          low[j] = r1 - r2 - r3;
        }
        // The order matters: a result that is not needed has the address of a later result.
        store(y11 + i, low[1] - low[2] - low[3]);
        store(y10 + i, low[0] + low[1] + low[2]);
        store(y01 + i, top[1] - top[2] - top[3]);
        store(y00 + i, top[0] + top[1] + top[2]);
      });
}

// A column of three elements of the kernel to four: (a, (a + b + c) / 2, (a - b + c) / 2, c).
template <class T>
W_FN void spread_kernel(T a, T b, T c, T (&out)[4]) {
  const T ends = a + c;
  out[0] = a;
  out[1] = (ends + b) * 0.5f;
  out[2] = (ends - b) * 0.5f;
  out[3] = c;
}

void weight(const float* const* w, int64_t n, float* out, int64_t stride) {
  const float* lines[9];
  for (int k = 0; k < 9; ++k) lines[k] = w[k];
  along(
      n, [=](int64_t i, auto lanes) __attribute__((always_inline)) {
        typedef decltype(lanes) T;
        T rows[4][3], column[4];
        for (int x = 0; x < 3; ++x) {
          spread_kernel(load<T>(lines[x] + i), load<T>(lines[3 + x] + i), load<T>(lines[6 + x] + i), column);
          for (int y = 0; y < 4; ++y) rows[y][x] = column[y];
        }
        for (int y = 0; y < 4; ++y) {
          T across[4];
          spread_kernel(rows[y][0], rows[y][1], rows[y][2], across);
          for (int x = 0; x < 4; ++x) store(out + (4 * y + x) * stride + i, across[x]);
        }
      });
}

// The transpose of spread_kernel.
template <class T>
W_FN void gather_kernel(T a, T b, T c, T d, T (&out)[3]) {
  const T sum = (b + c) * 0.5f;
  out[0] = a + sum;
  out[1] = (b - c) * 0.5f;
  out[2] = sum + d;
}

void weight_gradient(const float* m, int64_t stride, int64_t n, float* out) {
  along(
      n, [=](int64_t i, auto lanes) __attribute__((always_inline)) {
        typedef decltype(lanes) T;
        T rows[3][4], column[3];
        for (int x = 0; x < 4; ++x) {
          const float* const p = m + x * stride + i;
          gather_kernel(load<T>(p), load<T>(p + 4 * stride), load<T>(p + 8 * stride), load<T>(p + 12 * stride), column);
          for (int y = 0; y < 3; ++y) rows[y][x] = column[y];
        }
        for (int y = 0; y < 3; ++y) {
          T across[3];
          gather_kernel(rows[y][0], rows[y][1], rows[y][2], rows[y][3], across);
          for (int x = 0; x < 3; ++x) store(out + (3 * y + x) * n + i, across[x]);
        }
      });
}

constexpr WinogradFns kFns = {operand, gradient, output, weight, weight_gradient};

}  // namespace

const WinogradFns& winograd_fns() { return kFns; }

}  // namespace weft::kernels::WEFT_ISA_NS
