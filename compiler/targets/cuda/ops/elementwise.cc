// Copies, conversions, fills, iota, and elementwise ops on types that the loop IR does not support (small
// integers; integer division): one thread per element, or per 16 bytes of a copy.
#include <cmath>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "framework/base/error.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft::cuda {
namespace {

using kernels::Pw;

constexpr std::string_view kCopy = R"(
W_KERNEL {
  W_EACH(I, i, p.n);
  p.y[offset_of<kRank>(i, p.shape, p.to)] = p.x[offset_of<kRank>(i, p.shape, p.from)];
}
)";

// For an operand that is transposed against the result: 32 x 32 tiles go through shared memory, read and written along
// lines.
constexpr std::string_view kTranspose = R"(
W_KERNEL {
  const Shared<T> tile = shared_at<T>(0);
  const I across = (I)blockIdx.x % p.tiles_n * 32, down = (I)blockIdx.x / p.tiles_n % p.tiles_m * 32;
  const I outer = (I)blockIdx.x / p.tiles_n / p.tiles_m;
  const T* x = p.x + offset_of<kRank>(outer, p.shape, p.from);
  T* y = p.y + offset_of<kRank>(outer, p.shape, p.to);
  const int i = threadIdx.x % 32;
  for (int j = threadIdx.x / 32; j < 32; j += kThreads / 32)
    if (across + j < p.columns && down + i < p.rows) tile[j * 33 + i] = x[(across + j) * p.x_column + down + i];
  __syncthreads();
  for (int j = threadIdx.x / 32; j < 32; j += kThreads / 32)
    if (across + i < p.columns && down + j < p.rows) y[(down + j) * p.y_row + across + i] = tile[i * 33 + j];
}
)";

constexpr std::string_view kConvert = R"(
template <class T>
static inline auto value_of(T x) { return get(x); }
W_KERNEL {
  W_EACH(I, i, p.n);
  write(p.y[offset_of<kRank>(i, p.shape, p.to)], value_of(p.x[offset_of<kRank>(i, p.shape, p.from)]));
}
)";

constexpr std::string_view kFill = R"(
W_KERNEL {
  const I i = (I)blockIdx.x * kThreads + threadIdx.x;
  if (i < p.n) write(p.y[offset_of<kRank>(i, p.shape, p.to)], p.value);
}
)";

// In f64, or in int64 if start, step and the elements are integers.
constexpr std::string_view kIota = R"(
W_KERNEL {
  const I i = (I)blockIdx.x * kThreads + threadIdx.x;
  if (i < p.n) write(p.y[i * p.stride], p.start + (N)i * p.step);
}
)";

constexpr std::string_view kBad = R"(
W_KERNEL {
  if (threadIdx.x == 0) checked((int64)*p.index, 0, 0, p.bad);
}
)";

constexpr std::string_view kFloat8Types = "struct f8e4m3 { u8 bits; };\nstruct f8e5m2 { u8 bits; };\n";
// 8-bit floats: the OCP formats, converted as in framework/tensor/dtype.cc.
constexpr std::string_view kFloat8 = R"(
template <int kMantissa, int kBias>
static inline f32 small_float(u8 bits) {  // finite
  const int e = (bits & 127) >> kMantissa, m = bits & ((1 << kMantissa) - 1);
  const f32 v = e == 0 ? (f32)m * w_as_f((128 - kBias - kMantissa) << 23)
                       : w_as_f(((e - kBias + 127) << 23) | (m << (23 - kMantissa)));
  return bits & 128 ? -v : v;
}
static inline f32 value_of(f8e4m3 x) {
  const f32 v = small_float<3, 7>(x.bits);
  return (x.bits & 127) == 127 ? w_as_f((x.bits & 128) << 24 | 0x7fc00000) : v;
}
static inline f32 value_of(f8e5m2 x) {
  const f32 sign = x.bits & 128 ? -1.0f : 1.0f;
  if ((x.bits & 124) == 124)
    return (x.bits & 3) ? w_as_f((x.bits & 128) << 24 | 0x7fc00000) : sign * w_as_f(0x7f800000);
  return small_float<2, 15>(x.bits);
}
// |f| rounded to nearest even at the format's last place; `most` is the largest value.
template <int kMantissa, int kBias>
static inline u8 to_small_float(f32 f, f32 most) {
  const int sign = w_as_i(f) < 0 ? 128 : 0;
  f32 a = w_as_f(w_as_i(f) & 0x7fffffff);
  if (a > most) a = most;
  int e = (w_as_i(a) >> 23) - 127;
  if (e < 1 - kBias) e = 1 - kBias;
  int q = (int)__builtin_rintf(a * w_as_f((127 + kMantissa - e) << 23));
  if (q == (2 << kMantissa)) {
    q = q / 2;
    ++e;
  }
  if (q < (1 << kMantissa)) return (u8)(sign | q);
  return (u8)(sign | ((e + kBias) << kMantissa) | (q & ((1 << kMantissa) - 1)));
}
template <class V>
static inline void write(f8e4m3& y, V v) {
  const f32 f = to_f32(v);
  y.bits = f != f ? (u8)((w_as_i(f) < 0 ? 128 : 0) | 127) : to_small_float<3, 7>(f, 448.0f);
}
template <class V>
static inline void write(f8e5m2& y, V v) {
  const f32 f = to_f32(v);
  const int sign = w_as_i(f) < 0 ? 128 : 0;
  if (f != f) y.bits = (u8)(sign | 126);
  else if (f >= 61440.0f || f <= -61440.0f) y.bits = (u8)(sign | 124);
  else y.bits = to_small_float<2, 15>(f, 57344.0f);
}
)";

bool is_float8(DType t) { return t == kFloat8E4M3 || t == kFloat8E5M2; }

StridedView spread(StridedView x, const Shape& shape) {
  if (x.shape.size() == shape.size()) return x;
  WEFT_BUG_IF(!x.shape.empty(), "cuda: a view ", x.shape, " replaces ", shape);
  x.shape = shape;
  x.strides = Shape::filled(shape.size(), 0);
  return x;
}

}  // namespace

std::string_view bytes_type(int bytes) {
  return bytes == 16 ? "uint4" : bytes == 8 ? "uint64_t" : bytes == 4 ? "uint32_t" : bytes == 2 ? "u16" : "u8";
}

int vector_bytes(int64_t element, const Shape& shape, std::initializer_list<Shape> strides,
                 std::initializer_list<int64_t> offsets, int alignment) {
  const int last = shape.size() - 1;
  for (int64_t bytes = std::min(alignment, 16); bytes > element; bytes /= 2) {
    bool fits = shape[last] * element % bytes == 0;
    for (int64_t o : offsets) fits = fits && o % bytes == 0;
    for (const Shape& s : strides) {
      fits = fits && s[last] == 1;
      for (int d = 0; d < last; ++d) fits = fits && s[d] * element % bytes == 0;
    }
    if (fits) return static_cast<int>(bytes);
  }
  return static_cast<int>(element);
}

// Adds a copy of y's lines from x's columns. False if they are not laid out that way, or are short.
static bool add_transpose(Launches& to, const Walk& w, const MemoryAddress& from, const MemoryAddress& at, int bytes) {
  const int last = w.rank() - 1;
  const Shape &x = w.strides[0], &y = w.strides[1];
  int row = -1;
  for (int d = 0; d < last; ++d)
    if (x[d] == 1) row = d;
  if (row < 0 || y[last] != 1 || x[last] == 1 || x[last] == 0 || w.shape[row] < 16 || w.shape[last] < 16 || bytes > 8)
    return false;
  Shape outer = w.shape, outer_x = x, outer_y = y;
  for (int d : {last, row})
    for (Shape* s : {&outer, &outer_x, &outer_y}) s->erase(d);
  const Walk others(outer, {outer_x, outer_y});
  const int64_t tiles_m = blocks_for(w.shape[row], 32), tiles_n = blocks_for(w.shape[last], 32);
  Text t("transpose", w.wide());
  t.type("T", bytes_type(bytes)).functions(kOffsetFunctions).address("const T* x", from).address("T* y", at);
  t.index("rows", w.shape[row]).index("columns", w.shape[last]).index("tiles_m", tiles_m).index("tiles_n", tiles_n);
  t.index("x_column", x[last]).index("y_row", y[row]);
  others.declare(t, {"from", "to"});
  to.add(t.step(kTranspose, others.n * tiles_m * tiles_n, 256, 32 * 33 * bytes));
  return true;
}

void add_copy(Launches& to, const StridedView& x, const MemoryAddress& from, const StridedView& y,
              const MemoryAddress& at, int alignment) {
  if (y.numel() == 0) return;
  const bool converts = x.dtype != y.dtype;
  Walk w(y.shape, {spread(x, y.shape).strides, y.strides});
  if (!converts) {
    const int bytes =
        vector_bytes(itemsize(x.dtype), w.shape, {w.strides[0], w.strides[1]}, {from.bytes, at.bytes}, alignment);
    if (bytes == itemsize(x.dtype) && add_transpose(to, w, from, at, bytes)) return;
    const int64_t each = bytes / itemsize(x.dtype);
    const int last = w.rank() - 1;
    w.n /= each;
    w.shape[last] /= each;
    for (Shape& s : w.strides)
      for (int d = 0; d < last; ++d) s[d] /= each;
    Text t("copy", w.wide());
    t.type("T", bytes_type(bytes)).functions(kOffsetFunctions).address("const T* x", from).address("T* y", at);
    w.declare(t, {"from", "to"});
    return to.add(t.step(kCopy, blocks_for(w.n)));
  }
  Text t("convert", w.wide());
  if (is_float8(x.dtype) || is_float8(y.dtype)) t.types(kFloat8Types);
  t.type("X", x.dtype).type("Y", y.dtype).functions(kOffsetFunctions).functions(kWriteFunctions);
  if (is_float8(x.dtype) || is_float8(y.dtype)) t.functions(kFloat8);
  t.address("const X* x", from).address("Y* y", at);
  w.declare(t, {"from", "to"});
  to.add(t.step(kConvert, blocks_for(w.n)));
}

void add_copy_unless_same(const OperationRequest& r, Launches& to) {
  const size_t before = to.steps().size();
  add_copy(to, r.in[0], operand_address(0), r.out[0], result_address(0), r.alignment);
  if (to.steps().size() > before && r.in[0].strides == r.out[0].strides) to.leave_out_where_same(0, 0);
}

template <class V>
static void fill(Launches& to, const StridedView& y, const MemoryAddress& at, V value) {
  if (y.numel() == 0) return;
  const Walk w(y.shape, {y.strides});
  Text t("fill", w.wide());
  constexpr bool kReal = std::is_same_v<V, double>;
  if (is_float8(y.dtype)) t.types(kFloat8Types);
  t.type("V", kReal ? "f64" : "int64").type("Y", y.dtype).functions(kOffsetFunctions).functions(kWriteFunctions);
  if (is_float8(y.dtype)) t.functions(kFloat8);
  t.address("Y* y", at);
  if constexpr (kReal) {
    t.real("value", value);
  } else {
    t.whole("value", value);
  }
  w.declare(t, {"to"});
  to.add(t.step(kFill, blocks_for(w.n)));
}

void add_fill(Launches& to, const StridedView& y, const MemoryAddress& at, double value) { fill(to, y, at, value); }
void add_fill(Launches& to, const StridedView& y, const MemoryAddress& at, int64_t value) { fill(to, y, at, value); }

void add_bad(Launches& to, const StridedView& index, int place) {
  Text t("bad_index");
  t.type("X", index.dtype).functions(kCheckFunctions).address("const X* index", operand_address(place)).bad();
  to.add(t.step(kBad, 1, 32));
}

// ---- elementwise ops ----

namespace {

std::string_view expression_of(Pw op) {
  switch (op) {
#define WEFT_UNARY(name, types, expr, ...) \
  case Pw::name:                           \
    return #expr;
#define WEFT_TEST(name, types, expr, ...) WEFT_UNARY(name, types, expr)
#define WEFT_BINARY(name, types, expr, ...) WEFT_UNARY(name, types, expr)
#define WEFT_COMPARE(name, types, expr, ...) WEFT_UNARY(name, types, expr)
#define WEFT_TERNARY(name, types, expr, ...) WEFT_UNARY(name, types, expr)
#include "ops/kernels/pointwise.inc"
    default:
      return "";
  }
}

// Integer division rounds towards minus infinity. Division by zero sets the flag.
constexpr std::string_view kDivide = R"(
template <class V>
static inline V rest_of(V a, V b) {
  const V r = b == -1 ? 0 : a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class V>
static inline V w_remainder(V a, V b) { return rest_of(a, b); }
template <class V>
static inline V w_floor_divide(V a, V b) {
  if (b == -1) return (V)(0 - (uint64_t)a);
  return (a - rest_of(a, b)) / b;
}
)";

// Values are computed in type V: the type of get(), or int64 for integers that need a 64-bit division.
std::string pointwise_body(Pw op, int operands, bool divides, DType dtype) {
  constexpr std::string_view kNames[] = {"x", "a", "b", "c"};
  const int first = operands == 1 ? 0 : operands == 2 ? 1 : 3;
  std::string s = R"(
W_KERNEL {
  W_EACH(I, i, p.n);
)";
  for (int k = 0; k < operands; ++k) {
    const std::string_view name = kNames[operands == 3 && k > 0 ? k : first + k];
    s += str_cat("  const auto ", name, " = get(p.in", k, "[offset_of<kRank>(i, p.shape, p.of", k, ")]);\n");
  }
  // Zeros move in at the top of the element, not of the int that has its value.
  std::string_view expression = expression_of(op);
  if (op == Pw::shift_right_logical && (dtype == kInt16 || dtype == kInt8))
    expression = dtype == kInt16 ? "w_shift_right_logical((i32)(u16)a, b)" : "w_shift_right_logical((i32)(u8)a, b)";
  if (divides) s += "  if (b == 0) {\n    raise_flag(p.bad);\n    return;\n  }\n";
  return s + str_cat("  write(p.y[offset_of<kRank>(i, p.shape, p.to)], ", expression, ");\n}\n");
}

bool make_cast(const OperationRequest& r, Launches& to) {
  add_copy(to, r.in[0], operand_address(0), r.out[0], result_address(0), r.alignment);
  return true;
}

bool make_constant(const OperationRequest& r, Launches& to) {
  const AttrValue& v = *r.attrs.find("value");
  if (std::holds_alternative<int64_t>(v)) {
    add_fill(to, r.out[0], result_address(0), std::get<int64_t>(v));
  } else {
    add_fill(to, r.out[0], result_address(0), std::get<double>(v));
  }
  return true;
}

bool make_iota(const OperationRequest& r, Launches& to) {
  const StridedView& y = r.out[0];
  if (y.numel() == 0) return true;
  const int64_t* start = std::get_if<int64_t>(r.attrs.find("start"));
  const int64_t* step = std::get_if<int64_t>(r.attrs.find("step"));
  const bool whole = !is_floating(y.dtype) && start && step;
  Text t("iota", is_wide(y));
  t.type("N", whole ? "int64" : "f64").type("Y", y.dtype).functions(kWriteFunctions).address("Y* y", result_address(0));
  if (whole) {
    t.whole("start", *start).whole("step", *step);
  } else {
    t.real("start", weft::internal::number(r.attrs, "start")).real("step", weft::internal::number(r.attrs, "step"));
  }
  t.index("n", y.numel()).index("stride", y.strides[0]);
  to.add(t.step(kIota, blocks_for(y.numel())));
  return true;
}

}  // namespace

bool make_pointwise(const OperationRequest& r, Launches& to) {
  const Pw op = static_cast<Pw>(r.op.scalar);
  const StridedView& y = r.out[0];
  if (y.numel() == 0) return true;
  const int operands = static_cast<int>(r.in.size());
  const bool divides = (op == Pw::remainder || op == Pw::floor_divide) && !is_floating(r.in[0].dtype);
  StridedView in[3];
  for (int k = 0; k < operands; ++k) in[k] = spread(r.in[static_cast<size_t>(k)], y.shape);
  const Walk w(y.shape, {y.strides, in[0].strides, operands > 1 ? in[1].strides : y.strides,
                         operands > 2 ? in[2].strides : y.strides});
  Text t(r.op.name, w.wide());
  for (int k = 0; k < operands; ++k) t.type(str_cat("X", k), in[k].dtype);
  t.type("Y", y.dtype).functions(kOffsetFunctions).functions(kWriteFunctions);
  if (divides) t.functions(kDivide);
  for (int k = 0; k < operands; ++k) t.address(str_cat("const X", k, "* in", k), operand_address(k));
  t.address("Y* y", result_address(0));
  if (divides) {
    t.bad();
    to.set_checks_indices();
  }
  w.declare(t, {"to", "of0", "of1", "of2"});
  to.add(t.step(pointwise_body(op, operands, divides, r.in[0].dtype), blocks_for(w.n)));
  return true;
}

std::span<const MakerRow> elementwise_makers() {
  static const MakerRow rows[] = {{&cast_op, make_cast}, {&constant_op, make_constant}, {&iota_op, make_iota}};
  return rows;
}

}  // namespace weft::cuda
