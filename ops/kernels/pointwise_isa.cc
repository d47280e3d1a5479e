// The elementwise kernels of one instruction set (WEFT_ISA_NS): rows of pointwise.inc over vectors. The last, short
// vector is padded, so that an element's bits do not depend on its position.
#include "ops/kernels/tables.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

// An operand of a vector loop: contiguous, or one element repeated in a buffer.
template <class M>
struct LoopOperand {
  const typename M::E* p;
  int64_t step;
  alignas(64) typename M::E buffer[M::N];

  W_INLINE void open(const void* data, bool scalar) {
    p = static_cast<const typename M::E*>(data);
    step = M::N;
    if (scalar) {
      for (int j = 0; j < M::N; ++j) buffer[j] = *p;
      p = buffer;
      step = 0;
    }
  }
  W_INLINE typename M::V next() {
    typename M::V v = M::get(p);
    p += step;
    return v;
  }
  // The last r elements, padded with the first of them.
  W_INLINE typename M::V last(int64_t r) {
    if (!step) return M::get(p);
    for (int j = 0; j < M::N; ++j) buffer[j] = p[j < r ? j : 0];
    return M::get(buffer);
  }
};

template <class M>
W_FN void put_last(typename M::E* out, typename M::V v, int64_t r) {
  alignas(64) typename M::E tail[M::N];
  M::put(tail, v);
  for (int64_t j = 0; j < r; ++j) out[j] = tail[j];
}
template <class Mask>
W_FN void put_last_mask(u8* out, Mask m, int64_t r) {
  alignas(64) u8 tail[W_BYTES];
  put_mask(tail, m);
  for (int64_t j = 0; j < r; ++j) out[j] = tail[j];
}

template <class Op, class M>
int unary(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  LoopOperand<M> x;
  x.open(in[0], scalars & 1);
  typename M::E* y = static_cast<typename M::E*>(out);
  for (; n >= M::N; n -= M::N, y += M::N) M::put(y, Op::f(x.next()));
  if (n) put_last<M>(y, Op::f(x.last(n)), n);
  return 0;
}

template <class Op, class M>
int test(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  LoopOperand<M> x;
  x.open(in[0], scalars & 1);
  u8* y = static_cast<u8*>(out);
  for (; n >= M::N; n -= M::N, y += M::N) put_mask(y, Op::f(x.next()));
  if (n) put_last_mask(y, Op::f(x.last(n)), n);
  return 0;
}

template <class V>
W_FN bool has_zero(V v) {
  bool zero = false;
  for (unsigned i = 0; i < sizeof(V) / sizeof(v[0]); ++i) zero |= v[i] == 0;
  return zero;
}

template <class Op, class M>
int binary(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  constexpr bool kChecksZero = Op::kDivides && M::kind != kKindFloat;
  LoopOperand<M> a, b;
  a.open(in[0], scalars & 1);
  b.open(in[1], scalars & 2);
  typename M::E* y = static_cast<typename M::E*>(out);
  for (; n >= M::N; n -= M::N, y += M::N) {
    typename M::V p = a.next(), q = b.next();
    if constexpr (kChecksZero)
      if (has_zero(q)) return 1;
    M::put(y, Op::f(p, q));
  }
  if (n) {
    typename M::V p = a.last(n), q = b.last(n);
    if constexpr (kChecksZero)
      if (has_zero(q)) return 1;
    put_last<M>(y, Op::f(p, q), n);
  }
  return 0;
}

template <class Op, class M>
int compare(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  LoopOperand<M> a, b;
  a.open(in[0], scalars & 1);
  b.open(in[1], scalars & 2);
  u8* y = static_cast<u8*>(out);
  for (; n >= M::N; n -= M::N, y += M::N) {
    typename M::V p = a.next(), q = b.next();
    put_mask(y, Op::f(p, q));
  }
  if (n) {
    typename M::V p = a.last(n), q = b.last(n);
    put_last_mask(y, Op::f(p, q), n);
  }
  return 0;
}

// `where` moves bits: one function for each element size. I: lanes of that size; C: one byte for each lane.
template <class E, class I, class C>
int where_bits(const void* const* in, void* out, int64_t n, uint32_t scalars) {
  constexpr int N = sizeof(I) / sizeof(E);
  alignas(64) u8 splat_c[N];
  alignas(64) E splat_a[N], splat_b[N];
  const u8* c = static_cast<const u8*>(in[0]);
  const E *a = static_cast<const E*>(in[1]), *b = static_cast<const E*>(in[2]);
  const int64_t dc = scalars & 1 ? 0 : N, da = scalars & 2 ? 0 : N, db = scalars & 4 ? 0 : N;
  for (int j = 0; j < N; ++j) {
    if (!dc) splat_c[j] = *c;
    if (!da) splat_a[j] = *a;
    if (!db) splat_b[j] = *b;
  }
  if (!dc) c = splat_c;
  if (!da) a = splat_a;
  if (!db) b = splat_b;
  E* y = static_cast<E*>(out);
  for (; n >= N; n -= N, c += dc, a += da, b += db, y += N) {
    I m = __builtin_convertvector(load<C>(c), I);
    store(y, (I)(m != 0 ? load<I>(a) : load<I>(b)));
  }
  const int64_t sc = dc != 0, sa = da != 0, sb = db != 0;
  for (int64_t j = 0; j < n; ++j) y[j] = c[j * sc] ? a[j * sa] : b[j * sb];
  return 0;
}

// ---- the table ----

enum AllowedTypes { FLOAT, NUMERIC, ANY, INT, BITS };
constexpr bool takes(AllowedTypes t, Kind k) {
  return t == FLOAT     ? k == kKindFloat
         : t == NUMERIC ? k != kKindBool
                        : t == ANY || (t == INT ? k == kKindInt : k != kKindFloat);
}
constexpr bool same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

#define WEFT_UNARY(name, dtypes, expr, ...)       \
  struct Op_##name {                              \
    static constexpr AllowedTypes types = dtypes; \
    template <class V>                            \
    static W_INLINE auto f(V x) {                 \
      return expr;                                \
    }                                             \
  };
#define WEFT_TEST WEFT_UNARY
#define WEFT_BINARY(name, dtypes, expr, ...)                                                  \
  struct Op_##name {                                                                          \
    static constexpr AllowedTypes types = dtypes;                                             \
    static constexpr bool kDivides = same(#name, "remainder") || same(#name, "floor_divide"); \
    template <class V>                                                                        \
    static W_INLINE auto f(V a, V b) {                                                        \
      return expr;                                                                            \
    }                                                                                         \
  };
#define WEFT_COMPARE WEFT_BINARY
#include "ops/kernels/pointwise.inc"

#define WEFT_ROW_OF(kernel)                                                                                       \
  template <class Op, class M>                                                                                    \
  constexpr PwFn kernel##_fn() {                                                                                  \
    if constexpr (takes(Op::types, M::kind)) {                                                                    \
      return &kernel<Op, M>;                                                                                      \
    } else {                                                                                                      \
      return nullptr;                                                                                             \
    }                                                                                                             \
  }                                                                                                               \
  template <class Op>                                                                                             \
  constexpr PwRow kernel##_row() {                                                                                \
    return {{kernel##_fn<Op, MF32>(), kernel##_fn<Op, MF64>(), kernel##_fn<Op, MBF16>(), kernel##_fn<Op, MF16>(), \
             kernel##_fn<Op, MI64>(), kernel##_fn<Op, MI32>(), kernel##_fn<Op, MI16>(), kernel##_fn<Op, MI8>(),   \
             kernel##_fn<Op, MU8>(), kernel##_fn<Op, MBool>()}};                                                  \
  }
WEFT_ROW_OF(unary)
WEFT_ROW_OF(test)
WEFT_ROW_OF(binary)
WEFT_ROW_OF(compare)

constexpr PwFn kWhere1 = &where_bits<u8, VU8, VU8>, kWhere2 = &where_bits<u16, VU16F, VU8F>,
               kWhere4 = &where_bits<int, VI32, VU8F>, kWhere8 = &where_bits<i64, VI64, VU8D>;

constexpr PwRow kRows[] = {
#define WEFT_UNARY(name, ...) unary_row<Op_##name>(),
#define WEFT_TEST(name, ...) test_row<Op_##name>(),
#define WEFT_BINARY(name, ...) binary_row<Op_##name>(),
#define WEFT_COMPARE(name, ...) compare_row<Op_##name>(),
#define WEFT_TERNARY(...) {{kWhere4, kWhere8, kWhere2, kWhere2, kWhere8, kWhere4, kWhere2, kWhere1, kWhere1, kWhere1}},
#include "ops/kernels/pointwise.inc"
};

}  // namespace

const PwRow* pointwise_rows() { return kRows; }

}  // namespace weft::kernels::WEFT_ISA_NS
