// Reductions of one instruction set (WEFT_ISA_NS), in the order of reduce_order.h: of one block of contiguous elements,
// and of the rows of one block, column by column.
#include "ops/kernels/tables.h"
#include "ops/numerics/reduce_order.h"

namespace weft::kernels::WEFT_ISA_NS {
namespace {
#include "ops/kernels/simd.inc"

constexpr int kL = kReduceLanes, kB = kReduceBlock;
constexpr double kInf = __builtin_inf();
constexpr i64 kMost = 0x7fffffffffffffffll;

W_FN float w_max(float a, float b) { return (a > b) | (a != a) ? a : b; }
W_FN float w_min(float a, float b) { return (a < b) | (a != a) ? a : b; }
W_FN double w_max(double a, double b) { return (a > b) | (a != a) ? a : b; }
W_FN double w_min(double a, double b) { return (a < b) | (a != a) ? a : b; }
W_FN i64 w_max(i64 a, i64 b) { return a > b ? a : b; }
W_FN i64 w_min(i64 a, i64 b) { return a < b ? a : b; }

struct SumReduction {
  static constexpr double real = 0;
  static constexpr i64 whole = 0;
  template <class V>
  static W_INLINE V f(V a, V b) {
    return a + b;
  }
};
struct Prod {
  static constexpr double real = 1;
  static constexpr i64 whole = 1;
  template <class V>
  static W_INLINE V f(V a, V b) {
    return a * b;
  }
};
struct Max {
  static constexpr double real = -kInf;
  static constexpr i64 whole = -kMost - 1;
  template <class V>
  static W_INLINE V f(V a, V b) {
    return w_max(a, b);
  }
};
struct Min {
  static constexpr double real = kInf;
  static constexpr i64 whole = kMost;
  template <class V>
  static W_INLINE V f(V a, V b) {
    return w_min(a, b);
  }
};

// The type of one accumulator, and the identity in it.
template <class V>
struct AccOf;
template <>
struct AccOf<VF> {
  typedef float A;
};
template <>
struct AccOf<VD> {
  typedef double A;
};
template <>
struct AccOf<VI64> {
  typedef i64 A;
};
template <class Op>
W_FN float identity(float) {
  return (float)Op::real;
}
template <class Op>
W_FN double identity(double) {
  return Op::real;
}
template <class Op>
W_FN i64 identity(i64) {
  return Op::whole;
}

// Lane l takes lane l + s for s = 8, 4, 2, 1: first between vectors, then inside one.
template <class V, int... i>
W_FN V down(V v, Order<i...>, int s) {
  typedef decltype(v == v) Places;
  const Places order = {(i + s) % int(sizeof...(i))...};
  return __builtin_shuffle(v, order);
}
template <class Op, class V, int n>
W_FN typename AccOf<V>::A combine_lanes(V (&acc)[n]) {
  for (int s = n / 2; s > 0; s /= 2)
    for (int v = 0; v < s; ++v) acc[v] = Op::f(acc[v], acc[v + s]);
  V v = acc[0];
  for (int s = kL / n / 2; s > 0; s /= 2) v = Op::f(v, down(v, typename CountTo<kL / n>::type{}, s));
  return v[0];
}

// G blocks of n <= kB contiguous elements each, interleaved to hide the latency of a lane's chain.
template <class Op, class M, int G>
W_FN void blocks(const typename M::E* const (&x)[G], i64 n, typename AccOf<typename M::V>::A* out) {
  typedef typename M::V V;
  typedef typename AccOf<V>::A A;
  constexpr int kV = kL / M::N;
  V acc[G][kV];
  for (int g = 0; g < G; ++g)
    for (int v = 0; v < kV; ++v) acc[g][v] = V{} + identity<Op>(A{});
  i64 i = 0;
  for (; i + kL <= n; i += kL)
    for (int g = 0; g < G; ++g)
      for (int v = 0; v < kV; ++v) acc[g][v] = Op::f(acc[g][v], M::get(x[g] + i + v * M::N));
  for (int g = 0; g < G; ++g) {
    if (i < n) {
      A lane[kL], tail[kL];
      alignas(64) typename M::E last[kL];
      for (int l = 0; l < kL; ++l) last[l] = x[g][i + l < n ? i + l : i];
      for (int v = 0; v < kV; ++v) store<V>(tail + v * M::N, M::get(last + v * M::N));
      __builtin_memcpy(lane, acc[g], sizeof lane);
      for (int l = 0; l < kL; ++l)
        if (i + l < n) lane[l] = Op::f(lane[l], tail[l]);
      __builtin_memcpy(acc[g], lane, sizeof lane);
    }
    out[g] = combine_lanes<Op>(acc[g]);
  }
}
template <class Op, class M>
W_FN typename AccOf<typename M::V>::A block(const typename M::E* x, i64 n) {
  typename AccOf<typename M::V>::A a[1];
  const typename M::E* p[1] = {x};
  blocks<Op, M, 1>(p, n, a);
  return a[0];
}

// The tree over blocks that arrive in order: a binary counter.
template <class Op, class A>
struct PartialTree {
  A stack[48];
  int depth = 0;
  i64 done = 0;
  W_INLINE void add(A v) {
    for (i64 d = done++; d & 1; d >>= 1) v = Op::f(stack[--depth], v);
    stack[depth++] = v;
  }
  W_INLINE A result() {
    A v = stack[--depth];
    while (depth) v = Op::f(stack[--depth], v);
    return v;
  }
};

// Whole rows of contiguous elements, `stride` bytes apart.
template <class Op, class M>
void rows(const void* x, i64 stride, i64 count, i64 n, void* out) {
  typedef typename M::E E;
  typedef typename AccOf<typename M::V>::A A;
  A* y = static_cast<A*>(out);
  const char* base = static_cast<const char*>(x);
  i64 r = 0;
  if (n <= kB) {
    for (; r + 4 <= count; r += 4, base += 4 * stride) {
      const E* p[4];
      for (int g = 0; g < 4; ++g) p[g] = reinterpret_cast<const E*>(base + g * stride);
      blocks<Op, M, 4>(p, n, y + r);
    }
    for (; r < count; ++r, base += stride) y[r] = block<Op, M>(reinterpret_cast<const E*>(base), n);
    return;
  }
  for (; r < count; ++r, base += stride) {
    const E* p = reinterpret_cast<const E*>(base);
    PartialTree<Op, A> tree;
    i64 i = 0;
    for (; i + 4 * kB <= n; i += 4 * kB) {
      const E* q[4] = {p + i, p + i + kB, p + i + 2 * kB, p + i + 3 * kB};
      A v[4];
      blocks<Op, M, 4>(q, kB, v);
      for (int g = 0; g < 4; ++g) tree.add(v[g]);
    }
    for (; i < n; i += kB) tree.add(block<Op, M>(p + i, n - i < kB ? n - i : kB));
    y[r] = tree.result();
  }
}

// n <= kB rows at base + offsets[i], with `cols` contiguous elements each: out[c] is the block's result of column c.
template <class Op, class M>
void columns(const void* base, const i64* offsets, i64 n, i64 cols, void* out) {
  typedef typename M::V V;
  typedef typename AccOf<V>::A A;
  constexpr int kC = 2048 / sizeof(A) / 2;  // columns at a time: 16 KB of accumulators
  A* y = static_cast<A*>(out);
  alignas(64) A acc[kL][kC];
  for (i64 c0 = 0; c0 < cols; c0 += kC) {
    const i64 m = cols - c0 < kC ? cols - c0 : kC, whole = m / M::N * M::N;
    for (int l = 0; l < kL; ++l)
      for (i64 c = 0; c < m; ++c) acc[l][c] = identity<Op>(A{});
    for (i64 i = 0; i < n; ++i) {
      const typename M::E* p = reinterpret_cast<const typename M::E*>(static_cast<const char*>(base) + offsets[i]) + c0;
      A* a = acc[i % kL];
      for (i64 c = 0; c < whole; c += M::N) store<V>(a + c, Op::f(load<V>(a + c), M::get(p + c)));
      if (whole < m) {
        alignas(64) typename M::E last[M::N];
        A widened[M::N];
        for (int j = 0; j < M::N; ++j) last[j] = p[whole + j < m ? whole + j : whole];
        store<V>(widened, M::get(last));
        for (i64 c = whole; c < m; ++c) a[c] = Op::f(a[c], widened[c - whole]);
      }
    }
    for (int s = kL / 2; s > 0; s /= 2)
      for (int l = 0; l < s; ++l)
        for (i64 c = 0; c < m; ++c) acc[l][c] = Op::f(acc[l][c], acc[l + s][c]);
    for (i64 c = 0; c < m; ++c) y[c0 + c] = acc[0][c];
  }
}

// a[i] = op(a[i], b[i]): a step of the tree over blocks, for all columns.
template <class Op, class A>
void combine(void* a, const void* b, i64 n) {
  A* x = static_cast<A*>(a);
  const A* y = static_cast<const A*>(b);
  for (i64 i = 0; i < n; ++i) x[i] = Op::f(x[i], y[i]);
}

template <class Op, class M>
constexpr ReduceFns fns() {
  return {&rows<Op, M>, &columns<Op, M>, &combine<Op, typename AccOf<typename M::V>::A>};
}
#define OF_OP(Op) \
  { fns<Op, MF32>(), fns<Op, MF64>(), fns<Op, MBF16>(), fns<Op, MF16>(), fns<Op, MI64>() }
constexpr ReduceFns kReduce[4][5] = {OF_OP(SumReduction), OF_OP(Max), OF_OP(Min), OF_OP(Prod)};

// The first best of n elements (NaN is best of all): value and index, starting from the given ones.
template <bool largest, class E>
W_FN bool better(E x, E best) {
  return (largest ? x > best : x < best) || (x != x && best == best);
}
template <class E, bool largest>
void arg_best(const void* data, i64 n, i64 first, void* best_value, i64* best_index) {
  const E* x = static_cast<const E*>(data);
  E best = *static_cast<E*>(best_value);
  i64 at = *best_index, i = 0;
  if (at < 0 && n) best = x[0], at = first, i = 1;
  if constexpr (sizeof(E) == 4) {  // float: a candidate per lane, then the best of them
    constexpr i64 kMostIndex = 1 << 30;
    if (n >= 4 * kF && n < kMostIndex) {
      VF v = load<VF>(x);
      VI32 wins{}, now{}, found{};
      for (int l = 0; l < kF; ++l) now[l] = l;
      found = now;
      i64 j = kF;
      for (; j + kF <= n; j += kF) {
        now += kF;
        const VF y = load<VF>(x + j);
        wins = (largest ? y > v : y < v) | ((y != y) & (v == v));
        v = wins ? y : v;
        found = wins ? now : found;
      }
      for (int l = 0; l < kF; ++l) {
        const i64 where = first + found[l];
        const bool equal = v[l] == best || (v[l] != v[l] && best != best);
        if (better<largest, E>(v[l], best) || (equal && where < at)) best = v[l], at = where;
      }
      i = j;
    }
  }
  for (; i < n; ++i)
    if (better<largest, E>(x[i], best)) best = x[i], at = first + i;
  *static_cast<E*>(best_value) = best;
  *best_index = at;
}
// The same for rows of `cols` columns.
template <class E, bool largest>
void arg_best_columns(const void* data, i64 cols, i64 row, void* best_values, i64* best_indices) {
  const E* x = static_cast<const E*>(data);
  E* best = static_cast<E*>(best_values);
  for (i64 c = 0; c < cols; ++c) {
    const bool better =
        (largest ? x[c] > best[c] : x[c] < best[c]) | ((x[c] != x[c]) & (best[c] == best[c])) | (row == 0);
    best[c] = better ? x[c] : best[c];
    best_indices[c] = better ? row : best_indices[c];
  }
}
constexpr ArgFns kArg[2][3] = {{{&arg_best<float, true>, &arg_best_columns<float, true>},
                                {&arg_best<double, true>, &arg_best_columns<double, true>},
                                {&arg_best<i64, true>, &arg_best_columns<i64, true>}},
                               {{&arg_best<float, false>, &arg_best_columns<float, false>},
                                {&arg_best<double, false>, &arg_best_columns<double, false>},
                                {&arg_best<i64, false>, &arg_best_columns<i64, false>}}};

}  // namespace

const ReduceFns& reduce_fns(int op, int type) { return kReduce[op][type]; }
const ArgFns& arg_fns(bool largest, int accumulator) { return kArg[largest ? 0 : 1][accumulator]; }

}  // namespace weft::kernels::WEFT_ISA_NS
