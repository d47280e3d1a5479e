// Conversions between dtypes of one instruction set (WEFT_ISA_NS), n elements at a time: conversions from and to f32
// and among the other vector types use vectors; the others handle one element at a time.
#include "ops/kernels/tables.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

// Conversions of one element at a time; the compiler vectorises these loops.
struct Truth {
  u8 bits;
};
template <class T>
W_FN T widen(T x) {
  return x;
}
W_FN u8 widen(Truth x) { return x.bits; }

template <class To>
struct Narrow {
  template <class T>
  static W_INLINE To of(T x) {
    return (To)x;
  }
};
template <>
struct Narrow<Truth> {
  template <class T>
  static W_INLINE Truth of(T x) {
    return Truth{(u8)(x != 0)};
  }
};
// Small integers wrap, as a conversion through a wider integer does.
template <class To>
struct Wrap {
  template <class T>
  static W_INLINE To of(T x) {
    return (To)(i64)x;
  }
};
template <>
struct Narrow<i16> : Wrap<i16> {};
template <>
struct Narrow<i8> : Wrap<i8> {};
template <>
struct Narrow<u8> : Wrap<u8> {};

template <class From, class To>
int scalar_cast(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  const From* x = static_cast<const From*>(in[0]);
  To* y = static_cast<To*>(out);
  if (scalars) {
    const To v = Narrow<To>::of(widen(*x));
    for (int64_t i = 0; i < n; ++i) y[i] = v;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<To>::of(widen(x[i]));
  }
  return 0;
}

// Between 16-bit floats and f32 lanes.
template <class MI, class MO>
int vector_cast(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  const typename MI::E* x = static_cast<const typename MI::E*>(in[0]);
  typename MO::E* y = static_cast<typename MO::E*>(out);
  alignas(64) typename MI::E from[kF];
  alignas(64) typename MO::E to[kF];
  if (scalars) {
    for (int j = 0; j < kF; ++j) from[j] = *x;
    MO::put(to, MI::get(from));
    for (int64_t i = 0; i < n; ++i) y[i] = to[0];
    return 0;
  }
  for (; n >= kF; n -= kF, x += kF, y += kF) MO::put(y, MI::get(x));
  if (n) {
    for (int j = 0; j < kF; ++j) from[j] = x[j < n ? j : 0];
    MO::put(to, MI::get(from));
    for (int64_t j = 0; j < n; ++j) y[j] = to[j];
  }
  return 0;
}

// Converts through f32, a block at a time.
template <PwFn first, int from_size, PwFn second, int to_size>
int two_casts(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  alignas(64) float block[512];
  const char* x = static_cast<const char*>(in[0]);
  char* y = static_cast<char*>(out);
  for (int64_t i = 0; i < n; i += 512) {
    const int64_t m = n - i < 512 ? n - i : 512;
    const void* p = x;
    const void* q = block;
    first(&p, block, m, scalars);
    second(&q, y, m, 0);
    if (!scalars) x += m * from_size;
    y += m * to_size;
  }
  return 0;
}

// Rows are source dtypes, columns are target dtypes: f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool.
#define TO_F32(T) &scalar_cast<T, float>
#define VIA(first, size, second, to) &two_casts<first, size, second, to>
#define ROW(T)                                                                                                    \
  {                                                                                                               \
    {                                                                                                             \
      &scalar_cast<T, float>, &scalar_cast<T, double>, VIA(TO_F32(T), sizeof(T), (&vector_cast<MF32, MBF16>), 2), \
          VIA(TO_F32(T), sizeof(T), (&vector_cast<MF32, MF16>), 2), &scalar_cast<T, i64>, &scalar_cast<T, int>,   \
          &scalar_cast<T, i16>, &scalar_cast<T, i8>, &scalar_cast<T, u8>, &scalar_cast<T, Truth>                  \
    }                                                                                                             \
  }
#define ROW16(M)                                                                                \
  {                                                                                             \
    {                                                                                           \
      &vector_cast<M, MF32>, VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, double>), 8), \
          &vector_cast<M, MBF16>, &vector_cast<M, MF16>,                                        \
          VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, i64>), 8),                       \
          VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, int>), 4),                       \
          VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, i16>), 2),                       \
          VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, i8>), 1),                        \
          VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, u8>), 1),                        \
          VIA((&vector_cast<M, MF32>), 2, (&scalar_cast<float, Truth>), 1)                      \
    }                                                                                           \
  }

constexpr PwFn kF32ToBf16 = &vector_cast<MF32, MBF16>, kF32ToF16 = &vector_cast<MF32, MF16>;
constexpr PwRow kCasts[] = {{{&scalar_cast<float, float>, &scalar_cast<float, double>, kF32ToBf16, kF32ToF16,
                              &scalar_cast<float, i64>, &scalar_cast<float, int>, &scalar_cast<float, i16>,
                              &scalar_cast<float, i8>, &scalar_cast<float, u8>, &scalar_cast<float, Truth>}},
                            ROW(double),
                            ROW16(MBF16),
                            ROW16(MF16),
                            ROW(i64),
                            ROW(int),
                            ROW(i16),
                            ROW(i8),
                            ROW(u8),
                            ROW(Truth)};

}  // namespace

const PwRow* cast_rows() { return kCasts; }

}  // namespace weft::kernels::WEFT_ISA_NS
