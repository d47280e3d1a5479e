// Digits of terms for one instruction set (WEFT_ISA_NS). x + 1.5 2^(52 + e) has x / 2^e, rounded to nearest even, in
// its low bits. These bits are added as integers, and the bits of the constant are subtracted at the end.
#include "ops/kernels/sums/exact_isa.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

W_FN VD load_d(const double* p) {
  VD v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <int kCount, bool kProduct>
void row(const double* a, const double* b, i64 n, int first, i64* limbs) {
  u64 bits[kCount];
  VD shift[kCount];
  VU64 sum[kCount];
  for (int c = 0; c < kCount; ++c) {
    bits[c] = (u64)(1023 + 52 - 149 + 40 * (first + c)) << 52 | (u64)1 << 51;
    shift[c] = (VD)(VU64{} + bits[c]);
    sum[c] = VU64{};
  }
  auto step = [&](VD p, VD q) __attribute__((always_inline)) {
    VD x = q;
    if (kProduct) x = p * q;
#pragma GCC unroll 8
    for (int c = kCount - 1; c >= 0; --c) {
      const VD t = x + shift[c];
      sum[c] += (VU64)t;
      if (c) x -= t - shift[c];
    }
  };
  i64 i = 0;
  for (; i + kD <= n; i += kD) step(kProduct ? load_d(a + i) : VD{}, load_d(b + i));
  if (i < n) {
    VD p = {}, q = {};
    for (int l = 0; l < n - i; ++l) {
      if (kProduct) p[l] = a[i + l];
      q[l] = b[i + l];
    }
    step(p, q);
    i += kD;
  }
  for (int c = 0; c < kCount; ++c) {
    u64 total = 0;
    for (int l = 0; l < kD; ++l) total += sum[c][l];
    limbs[first + c] += (i64)(total - (u64)i * bits[c]);
  }
}

}  // namespace

ExactRowFn exact_row(bool product, int count) {
  static constexpr ExactRowFn kSums[] = {row<1, false>, row<2, false>, row<3, false>, row<4, false>,
                                         row<5, false>, row<6, false>, row<7, false>};
  static constexpr ExactRowFn kProducts[] = {row<1, true>, row<2, true>, row<3, true>, row<4, true>,
                                             row<5, true>, row<6, true>, row<7, true>};
  return (product ? kProducts : kSums)[count - 1];
}

}  // namespace weft::kernels::WEFT_ISA_NS
