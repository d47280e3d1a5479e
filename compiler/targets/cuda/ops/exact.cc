// Order-independent sums (ops/kernels/sums/exact.h). Every term is split into digits, which are added as integers, so
// any split of the work gives the bits of the CPU. One warp per sum, or one thread per sum of a product.
#include "ops/core/products/exact.h"

#include <algorithm>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "compiler/targets/cuda/ops/order.h"
#include "ops/core/products/dot_product.h"

namespace weft::cuda {
namespace {

constexpr std::string_view kDigits = R"(
struct Limbs { int64 d[8]; };
static inline f64 power_of_2(int e) { return w_d_of_bits((long long)(1023 + e) << 52); }
static inline void add_term(Limbs& to, f64 x) {
  const f64 size = x < 0 ? -x : x;
  if (!(size < 0x1p128)) {
    to.d[7] += (int64)1 << (x != x ? 42 : x > 0 ? 21 : 0);
    return;
  }
#pragma unroll
  for (int j = 6; j >= 0; --j) {
    const int64 bits = (int64)(1023 + 52 - 149 + 40 * j) << 52 | (int64)1 << 51;
    const f64 shift = w_d_of_bits(bits), t = x + shift;
    to.d[j] += (int64)w_d_bits(t) - bits;
    x = x - (t - shift);
  }
}
static inline void clear(Limbs& l) {
#pragma unroll
  for (int j = 0; j < 8; ++j) l.d[j] = 0;
}
// exact_carry of ops/kernels/sums/exact.cc.
static inline void carry(Limbs& l) {
#pragma unroll
  for (int j = 0; j < 6; ++j) {
    const int64 c = (l.d[j] + ((int64)1 << 39)) >> 40;
    l.d[j] -= c << 40;
    l.d[j + 1] += c;
  }
  if (l.d[6] >= (int64)1 << 47 || l.d[6] <= -((int64)1 << 47)) {
    l.d[7] += (int64)1 << (l.d[6] > 0 ? 21 : 0);
#pragma unroll
    for (int j = 0; j < 7; ++j) l.d[j] = 0;
  }
  const int64 n = l.d[7], mask = ((int64)1 << 21) - 1;
  l.d[7] = (n & mask ? 1 : 0) | (n >> 21 & mask ? (int64)1 << 21 : 0) | (n >> 42 ? (int64)1 << 42 : 0);
}
)";

// One warp per sum. Carries happen where the CPU has them: after 2^14 terms (carried digits are unique).
constexpr std::string_view kSum = R"(
W_KERNEL {
  const int lane = threadIdx.x % 32;
  const int64 s = (int64)blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (s >= p.sums) return;
  const X* x = p.x + offset_of<kKept>(s, p.kept, p.from);
  Limbs l, all;
  clear(all);
  for (int64 first = 0; first < p.terms; first += 16384) {
    clear(l);
    const int64 end = p.terms - first < 16384 ? p.terms : first + 16384;
    for (int64 i = first + lane; i < end; i += 32) add_term(l, (f64)get(x[offset_of<kReduced>(i, p.extent, p.step)]));
#pragma unroll
    for (int j = 0; j < 8; ++j) all.d[j] += warp_sum(l.d[j]);
    if (p.terms > 16384) carry(all);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (lane == j) p.y[s * 8 + j] = all.d[j];
}
)";

// One thread per sum of a product: rows of a times columns of b, starting at term `begin`.
constexpr std::string_view kProducts = R"(
static inline void add_products(Limbs& l, const A* a, int64 a_k, const B* b, int64 b_k, int64 n) {
  for (int64 first = 0; first < n; first += 16384) {
    const int64 end = n - first < 16384 ? n : first + 16384;
    for (int64 k = first; k < end; ++k) add_term(l, (f64)get(a[k * a_k]) * (f64)get(b[k * b_k]));
    if (n > 16384) carry(l);
  }
}
)";

constexpr std::string_view kDot = R"(
W_KERNEL {
  W_EACH(int64, i, p.results);
  const int64 n = i % p.n, m = i / p.n % p.m, z = i / p.n / p.m;
  Limbs l;
  clear(l);
  const A* a = p.a + offset_of<kBatch>(z, p.batch, p.a_batch) + offset_of<kRows>(m, p.rows, p.a_rows);
  const B* b = p.b + offset_of<kBatch>(z, p.batch, p.b_batch) + offset_of<kColumns>(n, p.columns, p.b_columns);
  for (int64 k = 0; k < p.k; ++k) {
    add_term(l, (f64)get(a[offset_of<kTerms>(k, p.terms, p.a_terms)]) *
                    (f64)get(b[offset_of<kTerms>(k, p.terms, p.b_terms)]));
    if (p.k > 16384 && (k % 16384 == 16383 || k == p.k - 1)) carry(l);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) p.y[i * 8 + j] = l.d[j];
}
)";

// Groups are rows offsets[e] to offsets[e + 1] of a (kRowMode), or that range of terms.
constexpr std::string_view kGrouped = R"(
W_KERNEL {
  const int64 i = (int64)blockIdx.x * kThreads + threadIdx.x;
  if (i == 0) {
    int64 before = 0;
    for (int64 e = 0; e <= p.groups; ++e) {
      const int64 o = (int64)p.offsets[e * p.offset_step];
      if (o < before || o > p.t) raise_flag(p.bad);
      before = o;
    }
  }
  if (i >= p.results) return;
  Limbs l;
  clear(l);
  const int64 n = i % p.n, r = i / p.n;
  if (kRowMode) {
    int64 lo = 0, hi = p.groups + 1;  // the first offset above r
    while (lo < hi) {
      const int64 mid = (lo + hi) / 2;
      if ((int64)p.offsets[mid * p.offset_step] > r) hi = mid;
      else lo = mid + 1;
    }
    const int64 e = lo - 1;
    if (e >= 0 && e < p.groups)
      add_products(l, p.a + r * p.a_0, p.a_1, p.b + e * p.b_0 + n * p.b_2, p.b_1, p.k);
  } else {
    int64 begin = (int64)p.offsets[r / p.k * p.offset_step], end = (int64)p.offsets[(r / p.k + 1) * p.offset_step];
    begin = begin < 0 ? 0 : begin;
    end = end > p.t ? p.t : end;
    if (end > begin)
      add_products(l, p.a + begin * p.a_0 + r % p.k * p.a_1, p.a_0, p.b + begin * p.b_0 + n * p.b_1, p.b_0,
                   end - begin);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) p.y[i * 8 + j] = l.d[j];
}
)";

constexpr std::string_view kRowDots = R"(
W_KERNEL {
  W_EACH(int64, i, p.results);
  Limbs l;
  clear(l);
  const int64 row = checked((int64)p.rows[i * p.row_step], p.limit, i, p.bad);
  add_products(l, p.a + row * p.a_row, p.a_step, p.b + i / p.k * p.b_row, p.b_step, p.width);
#pragma unroll
  for (int j = 0; j < 8; ++j) p.y[i * 8 + j] = l.d[j];
}
)";

// One thread for each pair of a column and a position in the sorted order where a new target starts.
constexpr std::string_view kAdd = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  const int64 c = task % p.columns, at = task / p.columns % p.length, line = task / p.columns / p.length;
  const uint64_t* order = p.order + line * p.length;
  const uint64_t target = order[at] >> 32;
  if (at > 0 && order[at - 1] >> 32 == target) return;
  const X* x = p.x + offset_of<kLines>(line, p.lines, p.from) + offset_of<kColumnDims>(c, p.inner, p.column);
  Limbs l;
  clear(l);
  int64 i = at;
  for (; i < p.length && order[i] >> 32 == target; ++i) {
    add_term(l, (f64)get(x[(int64)(uint32_t)order[i] * p.along]));
    if ((i - at) % 16384 == 16383) carry(l);
  }
  if (p.length > 16384) carry(l);
  int64* y = p.y + (offset_of<kLines>(line, p.lines, p.to) + (int64)target * p.y_along + c) * 8;
#pragma unroll
  for (int j = 0; j < 8; ++j) y[j] = l.d[j];
}
)";

constexpr std::string_view kFinish = R"(
static inline f64 scaled(f64 x, int e) {  // in steps that round only at the last one
  while (e < -1000) {
    x = x * power_of_2(-1000);
    e += 1000;
  }
  while (e > 1000) {
    x = x * power_of_2(1000);
    e -= 1000;
  }
  return x * power_of_2(e);
}
// The sum rounded once to kBits bits, with least denormal 2^kLeast, as in ops/kernels/sums/exact.cc.
static inline f64 rounded(const int64* l) {
  const int64 counts = l[7], mask = ((int64)1 << 21) - 1;
  const f64 inf = __builtin_inf();
  if (counts) {
    const bool plus = (counts >> 21 & mask) != 0, minus = (counts & mask) != 0;
    if (counts >> 42 || plus == minus) return w_d_of_bits((long long)0x7ff8 << 48);
    return plus ? inf : -inf;
  }
  int64 d[7], c = 0;
  const int64 digit = ((int64)1 << 40) - 1;
  for (int j = 0; j < 6; ++j) {
    const int64 v = l[j] + c;
    d[j] = v & digit;
    c = v >> 40;
  }
  d[6] = l[6] + c;
  const bool negative = d[6] < 0;
  if (negative) {
    c = 0;
    for (int j = 0; j < 6; ++j) {
      const int64 v = c - d[j];
      d[j] = v & digit;
      c = v >> 40;
    }
    d[6] = c - d[6];
  }
  const f64 sign = negative ? -1.0 : 1.0;
  if (d[6] >= (int64)1 << 47) return sign * inf;
  int top = 6;
  while (top >= 0 && d[top] == 0) --top;
  if (top < 0) return 0;
  // The three highest digits in two words, and whether any lower digit is not zero.
  const uint64_t d0 = (uint64_t)d[top], d1 = top >= 1 ? (uint64_t)d[top - 1] : 0,
                 d2 = top >= 2 ? (uint64_t)d[top - 2] : 0;
  const uint64_t low = d1 << 40 | d2, high = d0 << 16 | d1 >> 24;  // of d0 2^80 + d1 2^40 + d2
  bool below = false;
  for (int j = 0; j < top - 2; ++j) below = below || d[j] != 0;
  const int unit = -149 + 40 * top - 80;
  int last = 127;
  while (last >= 64 && !(high >> (last - 64) & 1)) --last;
  if (last < 64)
    while (!(low >> last & 1)) --last;
  const int normal = unit + last - (kBits - 1), drop = (normal > kLeast ? normal : kLeast) - unit;
  if (drop <= 0) return sign * scaled((f64)high * 0x1p64 + (f64)low, unit);
  if (drop > 127) return sign * 0.0;
  uint64_t q = drop >= 64 ? (drop == 64 ? high : high >> (drop - 64)) : high << (64 - drop) | low >> drop;
  const uint64_t rest_high = drop > 64 ? high & (((uint64_t)1 << (drop - 64)) - 1) : 0;
  const uint64_t rest_low = drop >= 64 ? low : low & (((uint64_t)1 << drop) - 1);
  const uint64_t half_high = drop > 64 ? (uint64_t)1 << (drop - 65) : 0;
  const uint64_t half_low = drop > 64 ? 0 : (uint64_t)1 << (drop - 1);
  const bool more = rest_high > half_high || (rest_high == half_high && rest_low > half_low);
  const bool tie = rest_high == half_high && rest_low == half_low;
  if (more || (tie && (below || (q & 1)))) ++q;
  return sign * scaled((f64)q, unit + drop);
}
W_KERNEL {
  W_EACH(int64, i, p.results);
  int64 l[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) l[j] = p.x[offset_of<kKept>(i, p.kept, p.from) + j * p.digit];
  write(p.y[i], rounded(l));
}
)";

/// Clears the result: sums without terms.
bool empty(Launches& to, const StridedView& y) {
  add_fill(to, y, result_address(0), int64_t{0});
  return true;
}

bool make_sum(const OperationRequest& r, Launches& to) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0 || !y.contiguous()) return y.numel() == 0;
  const Reduced split(x, r.attrs.ints("dims"));
  const Walk outer(split.kept, {split.kept_strides}), inner(split.reduced, {split.reduced_strides});
  if (inner.n == 0) return empty(to, y);
  Text t("exact_sum", true);
  t.type("X", x.dtype).functions(kOffsetFunctions).functions(kDigits);
  t.address("const X* x", operand_address(0))
      .address("int64* y", result_address(0))
      .whole("sums", outer.n)
      .whole("terms", inner.n);
  outer.declare(t, "kKept", "kept", {"from"});
  inner.declare(t, "kReduced", "extent", {"step"});
  to.add(t.step(kSum, blocks_for(outer.n, 4), 128));
  return true;
}

// Some dims of a view: their extents and strides.
struct Part {
  Shape extent, stride;
  Part(const StridedView& v, const Shape& dims) {
    for (int64_t d : dims) {
      extent.push_back(v.shape[static_cast<int>(d)]);
      stride.push_back(v.strides[static_cast<int>(d)]);
    }
  }
};

bool make_dot(const OperationRequest& r, Launches& to) {
  const StridedView &a = r.in[0], &b = r.in[1], &y = r.out[0];
  if (y.numel() == 0 || !y.contiguous()) return y.numel() == 0;
  const Shape &a_batch = r.attrs.ints("a_batch"), &b_batch = r.attrs.ints("b_batch"),
              &a_sum = r.attrs.ints("a_contract"), &b_sum = r.attrs.ints("b_contract");
  const Part a_z(a, a_batch), b_z(b, b_batch), a_k(a, a_sum), b_k(b, b_sum),
      rows(a, weft::internal::free_dims(a.shape.size(), a_batch, a_sum)),
      columns(b, weft::internal::free_dims(b.shape.size(), b_batch, b_sum));
  const Walk z(a_z.extent, {a_z.stride, b_z.stride}), k(a_k.extent, {a_k.stride, b_k.stride}),
      m(rows.extent, {rows.stride}), n(columns.extent, {columns.stride});
  if (k.n == 0) return empty(to, y);
  Text t("exact_dot", true);
  t.type("A", a.dtype).type("B", b.dtype).functions(kOffsetFunctions).functions(kDigits);
  t.address("const A* a", operand_address(0))
      .address("const B* b", operand_address(1))
      .address("int64* y", result_address(0));
  t.whole("results", y.numel() / 8).whole("m", m.n).whole("n", n.n).whole("k", k.n);
  z.declare(t, "kBatch", "batch", {"a_batch", "b_batch"});
  m.declare(t, "kRows", "rows", {"a_rows"});
  n.declare(t, "kColumns", "columns", {"b_columns"});
  k.declare(t, "kTerms", "terms", {"a_terms", "b_terms"});
  to.add(t.step(kDot, blocks_for(y.numel() / 8)));
  return true;
}

bool make_grouped(const OperationRequest& r, Launches& to) {
  const StridedView &a = r.in[0], &b = r.in[1], &offsets = r.in[2], &y = r.out[0];
  if (!y.contiguous()) return false;
  const bool rows = r.attrs.get<std::string>("mode") == "rows";
  to.set_checks_indices();
  Text t("exact_grouped_dot", true);
  t.type("A", a.dtype).type("B", b.dtype).type("O", offsets.dtype).constant("kRowMode", rows);
  t.functions(kDigits).functions(kProducts);
  t.address("const A* a", operand_address(0))
      .address("const B* b", operand_address(1))
      .address("const O* offsets", operand_address(2));
  t.address("int64* y", result_address(0)).bad();
  t.whole("results", y.numel() / 8).whole("groups", offsets.shape[0] - 1).whole("offset_step", offsets.strides[0]);
  t.whole("t", a.shape[0]).whole("k", a.shape[1]).whole("n", b.shape.back());
  t.whole("a_0", a.strides[0]).whole("a_1", a.strides[1]).whole("b_0", b.strides[0]).whole("b_1", b.strides[1]);
  t.whole("b_2", rows ? b.strides[2] : 0);
  to.add(t.step(kGrouped, std::max<int64_t>(1, blocks_for(y.numel() / 8))));
  return true;
}

bool make_row_dots(const OperationRequest& r, Launches& to) {
  const StridedView &a = r.in[0], &b = r.in[1], &rows = r.in[4], &y = r.out[0];
  if (y.numel() == 0 || !y.contiguous()) return y.numel() == 0;
  to.set_checks_indices();
  if (a.shape[0] == 0) {
    add_bad(to, rows, 4);
    return true;
  }
  Text t("exact_row_dots", true);
  t.type("A", a.dtype)
      .type("B", b.dtype)
      .type("R", rows.dtype)
      .functions(kDigits)
      .functions(kProducts)
      .functions(kCheckFunctions);
  t.address("const A* a", operand_address(0))
      .address("const B* b", operand_address(1))
      .address("const R* rows", operand_address(4));
  t.address("int64* y", result_address(0)).bad();
  t.whole("results", y.numel() / 8).whole("k", r.attrs.i("k")).whole("width", b.shape[1]).whole("limit", a.shape[0]);
  t.whole("row_step", rows.strides[0]).whole("a_row", a.strides[0]).whole("a_step", a.strides[1]);
  t.whole("b_row", b.strides[0]).whole("b_step", b.strides[1]);
  to.add(t.step(kRowDots, blocks_for(y.numel() / 8)));
  return true;
}

// Sums of src at index along dim. index has the dims of src, or dim only.
bool add_at(const OperationRequest& r, Launches& to, int dim, bool elementwise) {
  const StridedView &index = r.in[0], &src = r.in[1], &y = r.out[0];
  if (!y.contiguous()) return false;
  const int64_t length = index.shape[elementwise ? dim : 0], limit = y.shape[dim];
  add_fill(to, y, result_address(0), int64_t{0});
  if (index.numel() == 0) return true;
  to.set_checks_indices();
  if (limit == 0) {
    add_bad(to, index, 0);
    return true;
  }
  // Lines: the other dims of index. Columns: the dims of src that index lacks.
  Shape lines, of_index, from, at, inner, column, plain;
  for (int d = 0; d < src.shape.size(); ++d) {
    if (d == dim) continue;
    if (elementwise) {
      lines.push_back(src.shape[d]);
      of_index.push_back(index.strides[d]);
      from.push_back(src.strides[d]);
      at.push_back(y.strides[d] / 8);
    } else {
      inner.push_back(src.shape[d]);
      column.push_back(src.strides[d]);
    }
  }
  const Walk w(lines, {from, at}), columns(inner, {column});
  const int64_t order = add_target_sort(to, {index, 0, elementwise ? dim : 0, limit});
  if (src.numel() == 0) return true;
  Text t("exact_add", true);
  t.type("X", src.dtype).functions(kOffsetFunctions).functions(kDigits);
  t.address("const X* x", operand_address(1)).address("int64* y", result_address(0));
  t.address("const uint64_t* order", scratch_address(order)).whole("tasks", w.n * length * columns.n);
  t.whole("columns", columns.n).whole("length", length).whole("along", src.strides[dim]);
  t.whole("y_along", y.strides[dim] / 8);
  w.declare(t, "kLines", "lines", {"from", "to"});
  columns.declare(t, "kColumnDims", "inner", {"column"});
  to.add(t.step(kAdd, blocks_for(w.n * length * columns.n)));
  return true;
}
bool make_index_add(const OperationRequest& r, Launches& to) { return add_at(r, to, 0, false); }
bool make_scatter_add(const OperationRequest& r, Launches& to) {
  return add_at(r, to, static_cast<int>(r.attrs.i("dim")), true);
}

bool make_finish(const OperationRequest& r, Launches& to) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0 || !y.contiguous()) return y.numel() == 0;
  struct FloatBits {
    int bits, least;
  };
  const FloatBits f = y.dtype == kFloat64    ? FloatBits{53, -1074}
                      : y.dtype == kFloat32  ? FloatBits{24, -149}
                      : y.dtype == kBFloat16 ? FloatBits{8, -133}
                                             : FloatBits{11, -24};
  Shape from = x.strides;
  from.erase(from.size() - 1);
  const Walk kept(y.shape, {from});
  Text t("exact_finish", true);
  t.type("Y", y.dtype).constant("kBits", f.bits).constant("kLeast", f.least);
  t.functions(kOffsetFunctions).functions(kDigits).functions(kWriteFunctions);
  t.address("const int64* x", operand_address(0)).address("Y* y", result_address(0)).whole("results", y.numel());
  t.whole("digit", x.strides.back());
  kept.declare(t, "kKept", "kept", {"from"});
  to.add(t.step(kFinish, blocks_for(y.numel())));
  return true;
}

}  // namespace

std::span<const MakerRow> exact_makers() {
  static const MakerRow rows[] = {{&exact_sum_op, make_sum},
                                  {&exact_dot_op, make_dot},
                                  {&exact_grouped_dot_op, make_grouped},
                                  {&exact_index_add_op, make_index_add},
                                  {&exact_scatter_add_op, make_scatter_add},
                                  {&exact_row_dots_op, make_row_dots},
                                  {&exact_finish_op, make_finish}};
  return rows;
}

}  // namespace weft::cuda
