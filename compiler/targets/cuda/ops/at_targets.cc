// Sums and copies at indices, in the order of the CPU and without atomics. Entries are sorted by target, so that the
// entries of one target form a run. In short runs, each thread sums a few columns of a target. A block (for lines, a
// warp) sums a long run: its threads load rows while each column is summed in order. So a run of any length costs about
// the latency of one addition (4 cycles) per row.
#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "compiler/targets/cuda/ops/order.h"
#include "framework/base/error.h"
#include "ops/core/indexing/index.h"

namespace weft::cuda {
namespace {

// Runs longer than this are long. A long run contains a multiple of kLongRun, so the threads that check these places
// find all long runs.
constexpr int64_t kLongRun = 32;

constexpr std::string_view kRunFunctions = R"(
static inline uint64_t entry_of(const uint64_t* order, int64 at, int64 length) {
  return at < length ? order[at] : ~(uint64_t)0;
}
// Whether more than kLongRun entries, starting at `at`, have this target.
static inline bool is_long(const uint64_t* order, int64 at, int64 length, uint64_t target) {
  return at + kLongRun < length && order[at + kLongRun] >> 32 == target;
}
// The start of the run that contains place `chunk` * kLongRun, if it is long and contains no earlier such place; else
// -1.
static inline int64 long_run(const uint64_t* order, int64 chunk, int64 length) {
  const int64 here = chunk * kLongRun;
  const uint64_t target = order[here] >> 32;
  if (chunk > 0 && order[here - kLongRun] >> 32 == target) return -1;
  int64 lo = chunk > 0 ? here - kLongRun + 1 : 0, hi = here;
  while (lo < hi) {
    const int64 mid = (lo + hi) / 2;
    if (order[mid] >> 32 == target) hi = mid;
    else lo = mid + 1;
  }
  return is_long(order, lo, length, target) ? lo : -1;
}
)";

// ---- rows of src to rows of the result ----

constexpr std::string_view kSome = "struct alignas(kEach * sizeof(T)) Some { T v[kEach]; };\n";

// If a short run starts at the thread's place in the order, the thread sums kEach neighbouring columns of it.
constexpr std::string_view kAddRows = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  int64 at = task / p.n;
  const I c = (I)(task % p.n);
  const uint64_t target = p.order[at] >> 32;
  if (at > 0 && p.order[at - 1] >> 32 == target) return;
  if (is_long(p.order, at, p.rows, target)) return;
  const T* x = p.x + offset_of<kRank>(c, p.shape, p.from);
  Some* y = (Some*)(p.y + (int64)target * p.y_row + offset_of<kRank>(c, p.shape, p.to));
  Some row = *y;
  A sum[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) sum[k] = (A)get(row.v[k]);
  bool more = true;
  while (more) {
    // Four rows are loaded at a time.
    uint64_t entry[4];
    Some s[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) entry[r] = entry_of(p.order, at + r, p.rows);
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (entry[r] >> 32 == target) s[r] = *(const Some*)(x + (int64)(uint32_t)entry[r] * p.x_row);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      more = more && entry[r] >> 32 == target;
      if (!more) continue;
#pragma unroll
      for (int k = 0; k < kEach; ++k) sum[k] = sum[k] + (A)get(s[r].v[k]);
    }
    at += 4;
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) write(row.v[k], sum[k]);
  *y = row;
}
)";

// A block sums kPieces x kEach columns of a long run. kRows rows are in shared memory while one thread per column adds
// them. The next rows are in registers or in flight, and so are the places of the rows after those.
constexpr std::string_view kAddLongRows = R"(
constexpr int kRows = kThreads, kColumns = kPieces * kEach, kPlaceAt = kRows * kColumns * (int)sizeof(T);
static inline int count_of(const Shared<int>& counts) {
  int n = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) n += counts[w];
  return n;
}
W_KERNEL {
  const Shared<Some> tile = shared_at<Some>(0);
  const Shared<T> elements = shared_at<T>(0);
  const Shared<uint32_t> places = shared_at<uint32_t>(kPlaceAt);
  const Shared<int> counts = shared_at<int>(kPlaceAt + kRows * 4);
  const int64 begin = long_run(p.order, blockIdx.x / p.strips, p.rows);
  if (begin < 0) return;
  const int me = threadIdx.x, first = me / kPieces;  // rows `first`, first + kThreads / kPieces, ... of a tile
  const uint64_t target = p.order[begin] >> 32;
  const int64 strip = blockIdx.x % p.strips * kPieces;
  const bool brings = strip + me % kPieces < p.n, adds = me < kColumns && strip + me / kEach < p.n;
  const T* x = p.x + (brings ? offset_of<kRank>((I)(strip + me % kPieces), p.shape, p.from) : 0);
  T* y = p.y + (int64)target * p.y_row +
         (adds ? offset_of<kRank>((I)(strip + me / kEach), p.shape, p.to) + me % kEach : 0);
  A sum = adds ? (A)get(*y) : (A)0;
  uint64_t entry = entry_of(p.order, begin + me, p.rows);
  Some some[kPieces];
  int count = 0;
  for (int64 at = begin;; at += kRows) {
    // The number of rows in the tile (none at first); then the places of the next tile.
    const int now = count;
    const uint32_t mine = ballot(entry >> 32 == target);
    places[me] = (uint32_t)entry;
    if (me % 32 == 0) counts[me / 32] = __popc(mine);
    __syncthreads();
    count = count_of(counts);
    entry = count == kRows ? entry_of(p.order, at + kRows + me, p.rows) : ~(uint64_t)0;
#pragma unroll
    for (int r = 0; r < kPieces; ++r) {
      const int row = first + r * (kThreads / kPieces);
      if (brings && row < count) some[r] = *(const Some*)(x + (int64)(uint32_t)places[row] * p.x_row);
    }
    if (adds) {
#pragma unroll 8
      for (int r = 0; r < now; ++r) {
        const T v = elements[r * kColumns + me];
        sum = sum + (A)get(v);
      }
    }
    if (count == 0) break;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kPieces; ++r) {
      const int row = first + r * (kThreads / kPieces);
      if (brings && row < count) tile[row * kPieces + me % kPieces] = some[r];
    }
  }
  if (adds) write(*y, sum);
}
)";

// If several rows are written to one place, the last one stays.
constexpr std::string_view kCopyRows = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  const int64 at = task / p.n;
  const I c = (I)(task % p.n);
  const uint64_t entry = p.order[at];
  if (at + 1 < p.rows && p.order[at + 1] >> 32 == entry >> 32) return;
  const T* x = p.x + (int64)(uint32_t)entry * p.x_row + offset_of<kRank>(c, p.shape, p.from);
  *(Some*)(p.y + (int64)(entry >> 32) * p.y_row + offset_of<kRank>(c, p.shape, p.to)) = *(const Some*)x;
}
)";

/// index_add and index_copy: y = x, the order of the sources by target, and the columns of a row in pieces of `each`
/// contiguous elements.
struct TargetRows {
  const StridedView &index, &src, &y;
  bool any = false;  // there is something to write
  int64_t order = 0, n = 0, each = 1;
  Walk columns;

  TargetRows(const OperationRequest& r, Launches& to)
      : index(r.in[1]),
        src(r.in[2]),
        y(r.out[0]),
        n(index.shape[0]),
        columns(without(y.shape, 0), {without(src.strides, 0), without(y.strides, 0)}) {
    add_copy_unless_same(r, to);
    if (n == 0) return;
    to.set_checks_indices();
    if (y.shape[0] == 0) {
      add_bad(to, index, 1);
      return;
    }
    order = add_target_sort(to, {index, 1, 0, y.shape[0]});
    if (src.numel() == 0) return;
    any = true;
    const int64_t element = itemsize(y.dtype);
    int bytes = vector_bytes(element, columns.shape, {columns.strides[0], columns.strides[1]}, {}, r.alignment);
    while (bytes > element && (src.strides[0] * element % bytes != 0 || y.strides[0] * element % bytes != 0))
      bytes /= 2;
    each = bytes / element;
    const int last = columns.rank() - 1;
    // Strides count elements: a step of the last dim is `each` elements.
    columns.n /= each;
    columns.shape[last] /= each;
    for (Shape& s : columns.strides) s[last] *= each;
  }

  Text text(std::string_view name, std::string_view type) const {
    Text t(name, is_wide(src) || is_wide(y));
    t.type("T", type).constant("kEach", each).types(kSome).functions(kOffsetFunctions);
    t.address("const T* x", operand_address(2)).address("T* y", result_address(0));
    t.address("const uint64_t* order", scratch_address(order));
    t.whole("rows", n).whole("x_row", src.strides[0]).whole("y_row", y.strides[0]);
    columns.declare(t, {"from", "to"});
    return t;
  }
  Text sums(std::string_view name) const {
    Text t = text(name, element_type(y.dtype));
    t.type("A", sums_of(y.dtype)).constant("kLongRun", kLongRun).functions(kWriteFunctions).functions(kRunFunctions);
    return t;
  }
};

bool make_index_add(const OperationRequest& r, Launches& to) {
  const TargetRows rows(r, to);
  if (!rows.any) return true;
  const int64_t pieces_of_row = rows.columns.n, element = itemsize(rows.y.dtype);
  {
    Text t = rows.sums("index_add");
    t.whole("tasks", rows.n * pieces_of_row);
    to.add(t.step(kAddRows, blocks_for(rows.n * pieces_of_row)));
  }
  if (rows.n <= kLongRun) return true;
  // 128 bytes of a row, or one element for each of 32 threads.
  const int64_t pieces = std::min<int64_t>(32, 128 / (rows.each * element)), columns = pieces * rows.each;
  const int64_t strips = blocks_for(pieces_of_row, pieces);
  constexpr int kThreads = 256;
  Text t = rows.sums("index_add_long");
  t.constant("kPieces", pieces).whole("strips", strips);
  to.add(t.step(kAddLongRows, blocks_for(rows.n, kLongRun) * strips, kThreads,
                static_cast<int>(kThreads * (columns * element + 4) + kThreads / 32 * 4)));
  return true;
}

bool make_index_copy(const OperationRequest& r, Launches& to) {
  const TargetRows rows(r, to);
  if (!rows.any) return true;
  Text t = rows.text("index_copy", bytes_type(static_cast<int>(itemsize(rows.y.dtype))));
  t.whole("tasks", rows.n * rows.columns.n);
  to.add(t.step(kCopyRows, blocks_for(rows.n * rows.columns.n)));
  return true;
}

// ---- elements of lines ----

constexpr int64_t kShortLine = 64;

// Short lines: the thread of each source checks whether it is the first of its target, and then adds all of them.
constexpr std::string_view kAddShort = R"(
W_KERNEL {
  W_EACH(int64, task, (int64)p.n * p.length);
  const I line = (I)(kAlongLast ? task / p.length : task % p.n), i = (I)(kAlongLast ? task % p.length : task / p.n);
  const X* index = p.index + offset_of<kRank>(line, p.shape, p.of_index);
  const int64 target = (int64)index[i * p.index_along];
  // A bad index adds nowhere: another thread owns element 0, to which its reads would go.
  if (checked(target, p.limit, position_of(line, i, p.length, p.inner), p.bad) != target) return;
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

// Long lines: one thread for each place of the order; it works if a short run starts there.
constexpr std::string_view kAddElements = R"(
W_KERNEL {
  W_EACH(int64, task, (int64)p.n * p.length);
  const I line = (I)(task / p.length);
  int64 at = task % p.length;
  const uint64_t* order = p.order + (int64)line * p.length;
  const uint64_t target = order[at] >> 32;
  if (at > 0 && order[at - 1] >> 32 == target) return;
  if (is_long(order, at, p.length, target)) return;
  const T* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  T& y = p.y[offset_of<kRank>(line, p.shape, p.to) + (I)target * p.y_along];
  A sum = (A)get(y);
  bool more = true;
  while (more) {
    uint64_t entry[4];
    A v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) entry[k] = entry_of(order, at + k, p.length);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (entry[k] >> 32 == target) v[k] = (A)get(x[(I)(uint32_t)entry[k] * p.x_along]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      more = more && entry[k] >> 32 == target;
      if (more) sum = sum + v[k];
    }
    at += 4;
  }
  write(y, sum);
}
)";

// One warp per long run: it adds 256 elements while the next 256 are in flight.
constexpr std::string_view kAddLongElements = R"(
// Loads elements at + lane, at + lane + 32, ... of the run; returns how many of the 256 are in it.
static inline int bring(const P& p, const uint64_t* order, const T* x, int64 at, uint64_t target, A (&v)[8]) {
  uint64_t entry[8];
  int count = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) entry[j] = entry_of(order, at + 32 * j + threadIdx.x % 32, p.length);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    v[j] = (A)0;
    if (entry[j] >> 32 == target) v[j] = (A)get(x[(I)(uint32_t)entry[j] * p.x_along]);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) count += __popc(ballot(entry[j] >> 32 == target));
  return count;
}
W_KERNEL {
  const int64 task = (int64)blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (task >= p.n * p.chunks) return;
  const I line = (I)(task / p.chunks);
  const uint64_t* order = p.order + (int64)line * p.length;
  const int64 begin = long_run(order, task % p.chunks, p.length);
  if (begin < 0) return;
  const uint64_t target = order[begin] >> 32;
  const T* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  T& y = p.y[offset_of<kRank>(line, p.shape, p.to) + (I)target * p.y_along];
  A sum = (A)get(y), v[8];
  int count = bring(p, order, x, begin, target, v);
  for (int64 at = begin + 256;; at += 256) {
    A next[8];
    int more = 0;
    if (count == 256) more = bring(p, order, x, at, target, next);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int here = count - 32 * j < 32 ? count - 32 * j : 32;
#pragma unroll 8
      for (int k = 0; k < here; ++k) sum = sum + shfl(v[j], k);
    }
    if (more == 0) break;
    count = more;
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = next[j];
  }
  __syncwarp();  // all lanes have read y
  if (threadIdx.x % 32 == 0) write(y, sum);
}
)";

bool make_scatter_add(const OperationRequest& r, Launches& to) {
  const StridedView &index = r.in[1], &src = r.in[2], &y = r.out[0];
  const int dim = static_cast<int>(r.attrs.i("dim"));
  add_copy_unless_same(r, to);
  if (index.numel() == 0) return true;
  to.set_checks_indices();
  if (y.shape[dim] == 0) {
    add_bad(to, index, 1);
    return true;
  }
  const int64_t length = index.shape[dim];
  const Walk w(without(index.shape, dim),
               {without(src.strides, dim), without(y.strides, dim), without(index.strides, dim)});
  auto text = [&](std::string_view name) {
    Text t(name, is_wide(src) || is_wide(y) || is_wide(index));
    t.type("T", y.dtype).type("A", sums_of(y.dtype)).functions(kOffsetFunctions).functions(kWriteFunctions);
    t.address("const T* x", operand_address(2)).address("T* y", result_address(0));
    t.index("length", length).index("x_along", src.strides[dim]).index("y_along", y.strides[dim]);
    w.declare(t, {"from", "to", "of_index"});
    return t;
  };
  if (length <= kShortLine) {
    Text t = text("scatter_add_short");
    t.type("X", index.dtype).constant("kAlongLast", dim == index.shape.size() - 1).functions(kCheckFunctions);
    t.address("const X* index", operand_address(1)).bad();
    t.whole("limit", y.shape[dim]).index("index_along", index.strides[dim]).whole("inner", elements_behind(index, dim));
    to.add(t.step(kAddShort, blocks_for(w.n * length)));
    return true;
  }
  const MemoryAddress order = scratch_address(add_target_sort(to, {index, 1, dim, y.shape[dim]}));
  auto sums = [&](std::string_view name) {
    Text t = text(name);
    t.constant("kLongRun", kLongRun).functions(kRunFunctions).address("const uint64_t* order", order);
    return t;
  };
  to.add(sums("scatter_add").step(kAddElements, blocks_for(w.n * length)));
  const int64_t chunks = blocks_for(length, kLongRun);
  Text t = sums("scatter_add_long");
  t.whole("chunks", chunks);
  to.add(t.step(kAddLongElements, blocks_for(w.n * chunks, 4), 128));
  return true;
}

}  // namespace

std::span<const MakerRow> at_target_makers() {
  static const MakerRow rows[] = {
      {&index_add_op, make_index_add}, {&scatter_add_op, make_scatter_add}, {&index_copy_op, make_index_copy}};
  return rows;
}

}  // namespace weft::cuda
