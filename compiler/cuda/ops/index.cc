// Gathers, and sums at indices in the order of the CPU without atomics: places are sorted by where they go, and each
// target is one thread's, which takes its sources one after another.
#include "ops/core/index.h"

#include "compiler/cuda/ops/families.h"
#include "compiler/cuda/ops/layout.h"
#include "compiler/cuda/ops/order.h"
#include "framework/base/error.h"

namespace weft::cuda {
namespace {

int dim_of(const Request& r) { return static_cast<int>(r.attrs.i("dim")); }

Shape without(Shape s, int dim) {
  s.erase(dim);
  return s;
}

// ---- gather, index_select
// --------------------------------------------------------------------------------------------

constexpr std::string_view kGather = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const I i = (I)blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.n) return;
  const I at = (I)checked((int64)p.index[offset_of<kRank>(i, p.shape, p.of_index)], p.limit, p.bad);
  p.y[offset_of<kRank>(i, p.shape, p.to)] = p.x[offset_of<kRank>(i, p.shape, p.from) + at * p.along];
}
)";

bool gather(const Request& r, Launches& to, Shape of_index) {
  const StridedView &x = r.in[0], &index = r.in[1], &y = r.out[0];
  const int dim = dim_of(r);
  if (y.numel() == 0) return true;
  to.set_checks_indices();
  if (x.shape[dim] == 0) {
    add_bad(to);
    return true;
  }
  Shape from = x.strides;
  from[dim] = 0;
  const Walk w(y.shape, {from, of_index, y.strides});
  Text t("gather", w.wide() || is_wide(x));
  t.type("T", bytes_type(static_cast<int>(itemsize(x.dtype)))).type("X", index.dtype);
  t.words(kOffsetWords).words(kCheckWords);
  t.address("const T* x", in_place(0)).address("const X* index", in_place(1)).address("T* y", out_place(0)).bad();
  t.whole("limit", x.shape[dim]).index("along", x.strides[dim]);
  w.declare(t, {"from", "of_index", "to"});
  to.add(t.step(kGather, blocks_for(w.n)));
  return true;
}

bool make_gather(const Request& r, Launches& to) { return gather(r, to, r.in[1].strides); }
bool make_index_select(const Request& r, Launches& to) {
  Shape of_index = Shape::filled(r.out[0].shape.size(), 0);
  of_index[dim_of(r)] = r.in[1].strides[0];
  return gather(r, to, of_index);
}

// ---- index_add
// -------------------------------------------------------------------------------------------------------

// A thread takes the sums of kEach neighbours of the row that begins at its place of the order, if one does.
constexpr std::string_view kAddRows = R"(
struct alignas(kEach * sizeof(T)) Some { T v[kEach]; };
static inline void add(A (&sum)[kEach], const Some& s) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) sum[k] = sum[k] + (A)get(s.v[k]);
}
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const int64 task = (int64)blockIdx.x * kThreads + threadIdx.x;
  if (task >= p.tasks) return;
  int64 at = task / p.n;
  const I c = (I)(task % p.n);
  const uint64_t target = p.order[at] >> 32;
  if (at > 0 && p.order[at - 1] >> 32 == target) return;
  const T* x = p.x + offset_of<kRank>(c, p.shape, p.from);
  Some* y = (Some*)(p.y + (int64)target * p.y_row + offset_of<kRank>(c, p.shape, p.to));
  Some row = *y;
  A sum[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) sum[k] = (A)get(row.v[k]);
  // Four at a time are on their way while the ones before are added.
  for (; at + 3 < p.rows && p.order[at + 3] >> 32 == target; at += 4) {
    Some s[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) s[k] = *(const Some*)(x + (int64)(uint32_t)p.order[at + k] * p.x_row);
#pragma unroll
    for (int k = 0; k < 4; ++k) add(sum, s[k]);
  }
  for (; at < p.rows && p.order[at] >> 32 == target; ++at)
    add(sum, *(const Some*)(x + (int64)(uint32_t)p.order[at] * p.x_row));
#pragma unroll
  for (int k = 0; k < kEach; ++k) write(row.v[k], sum[k]);
  *y = row;
}
)";

bool make_index_add(const Request& r, Launches& to) {
  const StridedView &index = r.in[1], &src = r.in[2], &y = r.out[0];
  const int64_t n = index.shape[0];
  add_copy_unless_same(r, to);
  if (n == 0) return true;
  to.set_checks_indices();
  if (y.shape[0] == 0) {
    add_bad(to);
    return true;
  }
  const int64_t order = add_target_sort(to, {index, 1, 0, y.shape[0]});
  if (src.numel() == 0) return true;
  Walk w(without(y.shape, 0), {without(src.strides, 0), without(y.strides, 0)});
  const int64_t element = itemsize(y.dtype);
  int bytes = vector_bytes(element, w.shape, {w.strides[0], w.strides[1]}, {}, r.alignment);
  while (bytes > element && (src.strides[0] * element % bytes != 0 || y.strides[0] * element % bytes != 0)) bytes /= 2;
  const int64_t each = bytes / element;
  const int last = w.rank() - 1;
  // Strides of the last dim count elements: a step is `each` of them.
  w.n /= each;
  w.shape[last] /= each;
  for (Shape& s : w.strides) s[last] *= each;
  Text t("index_add", is_wide(src) || is_wide(y));
  t.type("T", y.dtype).type("A", sums_of(y.dtype)).constant("kEach", each).words(kOffsetWords).words(kWriteWords);
  t.address("const T* x", in_place(2)).address("T* y", out_place(0));
  t.address("const uint64_t* order", scratch_place(order));
  t.whole("tasks", n * w.n).whole("rows", n).whole("x_row", src.strides[0]).whole("y_row", y.strides[0]);
  w.declare(t, {"from", "to"});
  to.add(t.step(kAddRows, blocks_for(n * w.n)));
  return true;
}

// ---- scatter_add
// -----------------------------------------------------------------------------------------------------

constexpr int64_t kShortLine = 256;

// Short lines: the thread of each source looks whether it is its target's first, and then adds all of them.
constexpr std::string_view kAddShort = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const int64 task = (int64)blockIdx.x * kThreads + threadIdx.x;
  if (task >= (int64)p.n * p.length) return;
  const I line = (I)(kAlongLast ? task / p.length : task % p.n), i = (I)(kAlongLast ? task % p.length : task / p.n);
  const X* index = p.index + offset_of<kRank>(line, p.shape, p.of_index);
  const int64 target = checked((int64)index[i * p.index_along], p.limit, p.bad);
  for (I j = 0; j < i; ++j)
    if ((int64)index[j * p.index_along] == target) return;
  const T* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  T& y = p.y[offset_of<kRank>(line, p.shape, p.to) + (I)target * p.y_along];
  A sum = (A)get(y);
  for (I j = i; j < p.length; ++j)
    if ((int64)index[j * p.index_along] == target) sum = sum + (A)get(x[j * p.x_along]);
  write(y, sum);
}
)";

// Long lines: the thread of each place of the order where a target begins.
constexpr std::string_view kAddLong = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const int64 task = (int64)blockIdx.x * kThreads + threadIdx.x;
  if (task >= (int64)p.n * p.length) return;
  const I line = (I)(task / p.length);
  int64 at = task % p.length;
  const uint64_t* order = p.order + (int64)line * p.length;
  const uint64_t target = order[at] >> 32;
  if (at > 0 && order[at - 1] >> 32 == target) return;
  const T* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  T& y = p.y[offset_of<kRank>(line, p.shape, p.to) + (I)target * p.y_along];
  A sum = (A)get(y);
  for (; at + 3 < p.length && order[at + 3] >> 32 == target; at += 4) {
    A v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = (A)get(x[(I)(uint32_t)order[at + k] * p.x_along]);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum = sum + v[k];
  }
  for (; at < p.length && order[at] >> 32 == target; ++at) sum = sum + (A)get(x[(I)(uint32_t)order[at] * p.x_along]);
  write(y, sum);
}
)";

bool make_scatter_add(const Request& r, Launches& to) {
  const StridedView &index = r.in[1], &src = r.in[2], &y = r.out[0];
  const int dim = dim_of(r);
  add_copy_unless_same(r, to);
  if (index.numel() == 0) return true;
  to.set_checks_indices();
  if (y.shape[dim] == 0) {
    add_bad(to);
    return true;
  }
  const int64_t length = index.shape[dim];
  const bool is_short = length <= kShortLine;
  const Walk w(without(index.shape, dim),
               {without(src.strides, dim), without(y.strides, dim), without(index.strides, dim)});
  int64_t order = 0;
  if (!is_short) order = add_target_sort(to, {index, 1, dim, y.shape[dim]});
  Text t(is_short ? "scatter_add_short" : "scatter_add_long", is_wide(src) || is_wide(y) || is_wide(index));
  t.type("T", y.dtype).type("A", sums_of(y.dtype)).words(kOffsetWords).words(kWriteWords);
  if (is_short) {
    t.type("X", index.dtype).constant("kAlongLast", dim == index.shape.size() - 1).words(kCheckWords);
    t.address("const X* index", in_place(1)).bad();
    t.whole("limit", y.shape[dim]).index("index_along", index.strides[dim]);
  } else {
    t.address("const uint64_t* order", scratch_place(order));
  }
  t.address("const T* x", in_place(2)).address("T* y", out_place(0));
  t.index("length", length).index("x_along", src.strides[dim]).index("y_along", y.strides[dim]);
  w.declare(t, {"from", "to", "of_index"});
  to.add(t.step(is_short ? kAddShort : kAddLong, blocks_for(w.n * length)));
  return true;
}

// ---- index_copy
// ------------------------------------------------------------------------------------------------------

// Of rows written twice the last stays: stays[i] tells of each source whether it is that one.
constexpr std::string_view kStays = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const I i = (I)blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.rows) return;
  const X mine = p.index[i * p.index_along];
  bool last = true;
  for (I j = i + 1; last && j < p.rows; ++j) last = p.index[j * p.index_along] != mine;
  checked((int64)mine, p.limit, p.bad);
  p.stays[i] = last && mine >= 0 && (int64)mine < p.limit ? (int)mine : -1;
}
)";

constexpr std::string_view kCopyRows = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const int64 task = (int64)blockIdx.x * kThreads + threadIdx.x;
  if (task >= p.tasks) return;
  const int64 i = task / p.n;
  const I c = (I)(task % p.n);
  const int64 target = p.stays[i];
  if (target < 0) return;
  p.y[target * p.y_row + offset_of<kRank>(c, p.shape, p.to)] = p.x[i * p.x_row + offset_of<kRank>(c, p.shape, p.from)];
}
)";

bool make_index_copy(const Request& r, Launches& to) {
  const StridedView &index = r.in[1], &src = r.in[2], &y = r.out[0];
  const int64_t n = index.shape[0];
  WEFT_CHECK_AS(kUnimplemented, y.shape[0] <= INT32_MAX, "index_copy: ", y.shape[0], " rows; at most ", INT32_MAX,
                " on CUDA");
  add_copy_unless_same(r, to);
  if (n == 0) return true;
  to.set_checks_indices();
  const int64_t stays = to.scratch(n * 4);
  {
    Text t("index_copy_stays", is_wide(index));
    t.type("X", index.dtype).words(kCheckWords).address("const X* index", in_place(1));
    t.address("int* stays", scratch_place(stays)).bad().whole("limit", y.shape[0]);
    t.index("rows", n).index("index_along", index.strides[0]);
    to.add(t.step(kStays, blocks_for(n)));
  }
  if (src.numel() == 0 || y.numel() == 0) return true;
  Walk w(without(y.shape, 0), {without(src.strides, 0), without(y.strides, 0)});
  const int64_t element = itemsize(y.dtype);
  int bytes = vector_bytes(element, w.shape, {w.strides[0], w.strides[1]}, {}, r.alignment);
  while (bytes > element && (src.strides[0] * element % bytes != 0 || y.strides[0] * element % bytes != 0)) bytes /= 2;
  const int64_t each = bytes / element;
  const int last = w.rank() - 1;
  w.n /= each;
  w.shape[last] /= each;
  for (Shape& s : w.strides)
    for (int d = 0; d < last; ++d) s[d] /= each;
  Text t("index_copy", is_wide(src) || is_wide(y));
  t.type("T", bytes_type(bytes)).words(kOffsetWords).address("const T* x", in_place(2)).address("T* y", out_place(0));
  t.address("const int* stays", scratch_place(stays));
  t.whole("tasks", n * w.n).whole("x_row", src.strides[0] / each).whole("y_row", y.strides[0] / each);
  w.declare(t, {"from", "to"});
  to.add(t.step(kCopyRows, blocks_for(n * w.n)));
  return true;
}

}  // namespace

std::span<const MakerRow> index_makers() {
  static const MakerRow rows[] = {{&gather_op, make_gather},
                                  {&index_select_op, make_index_select},
                                  {&index_add_op, make_index_add},
                                  {&scatter_add_op, make_scatter_add},
                                  {&index_copy_op, make_index_copy}};
  return rows;
}

}  // namespace weft::cuda
