#include "compiler/targets/cuda/ops/order.h"

#include <bit>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "framework/base/error.h"
#include "ops/core/indexing/index.h"

namespace weft::cuda {

const std::string_view kEntryTypes = "struct Wide { uint64_t key, index; };\n";

const std::string_view kEntryFunctions = R"(
static inline bool less(uint64_t a, uint64_t b) { return a < b; }
static inline bool less(const Wide& a, const Wide& b) { return a.key != b.key ? a.key < b.key : a.index < b.index; }
static inline uint64_t index_of(uint64_t e) { return e & 0xffffffffu; }
static inline uint64_t index_of(const Wide& e) { return e.index; }
static inline void set_last(uint64_t& e) { e = ~(uint64_t)0; }
static inline void set_last(Wide& e) { e.key = e.index = ~(uint64_t)0; }
static inline uint64_t from_lane(uint64_t e, int mask) { return shfl_xor(e, mask); }
static inline Wide from_lane(const Wide& e, int mask) {
  Wide w;
  w.key = shfl_xor(e.key, mask);
  w.index = shfl_xor(e.index, mask);
  return w;
}
)";

// A bitonic sort.
const std::string_view kSortTileFunctions = R"(
template <int kTile, class E>
static inline void sort_tile(const Shared<E>& tile) {
  for (int size = 2; size <= kTile; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < kTile / 2; t += kThreads) {
        const int i = 2 * t - (t & (step - 1)), j = i + step;
        const E a = tile[i], b = tile[j];
        if (less(b, a) == ((i & size) == 0)) {
          tile[i] = b;
          tile[j] = a;
        }
      }
    }
  __syncthreads();
}
)";

namespace {

constexpr int kMostTile = 2048;

// A block sorts a tile.
constexpr std::string_view kTiles = R"(
W_KERNEL {
  const Shared<E> tile = shared_at<E>(0);
  const int64 line = blockIdx.x / p.tiles, first = blockIdx.x % p.tiles * kTile;
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    E e;
    if (first + i < p.length) e = entry_at(p, line, first + i);
    else set_last(e);
    tile[i] = e;
  }
  sort_tile<kTile>(tile);
  const int64 left = p.length - first, most = left < p.keep ? left : p.keep;
  E* y = p.y + line * p.row + blockIdx.x % p.tiles * p.keep;
  for (int i = threadIdx.x; i < most; i += kThreads) y[i] = tile[i];
}
)";

// Merges pairs of runs of `run` entries (the last run of a line may be shorter) and writes the first `keep` of each
// pair. A thread finds the start of its 8 entries in both runs (merge path) and merges from there.
constexpr std::string_view kMerge = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  const int64 chunk = task % p.chunks, pair = task / p.chunks % p.pairs, line = task / p.chunks / p.pairs;
  const int64 begin = 2 * pair * p.run;
  const int64 of_a = p.length - begin < p.run ? p.length - begin : p.run;
  int64 of_b = p.length - begin - of_a;
  if (of_b > p.run) of_b = p.run;
  const E *a = p.x + line * p.row + begin, *b = a + of_a;
  const int64 d = chunk * 8;
  int64 lo = d > of_b ? d - of_b : 0, hi = d < of_a ? d : of_a;
  if (d >= of_a + of_b) return;
  while (lo < hi) {
    const int64 mid = (lo + hi) / 2;
    if (less(b[d - 1 - mid], a[mid])) hi = mid;
    else lo = mid + 1;
  }
  int64 i = lo, j = d - lo;
  E* y = p.y + line * p.row_to + pair * p.keep;
  for (int k = 0; k < 8; ++k) {
    if (d + k >= p.keep || d + k >= of_a + of_b) return;
    const bool first = j >= of_b || (i < of_a && less(a[i], b[j]));
    y[d + k] = first ? a[i] : b[j];
    if (first) ++i;
    else ++j;
  }
}
)";

}  // namespace

int64_t add_sort(Launches& to, const EntrySource& source, int64_t lines, int64_t n, int64_t keep) {
  const int most = source.wide ? kMostTile / 2 : kMostTile;
  const auto tile = static_cast<int>(
      std::min<int64_t>(most, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 64))))));
  const int64_t bytes = source.wide ? 16 : 8;
  int64_t tiles = (n + tile - 1) / tile, run = std::min<int64_t>(keep, tile);
  // The entries of a line: whole runs and the rest of the last run.
  int64_t length = (tiles - 1) * run + std::min(run, n - (tiles - 1) * tile);
  int64_t at = to.scratch(lines * length * bytes);
  const char* type = source.wide ? "Wide" : "uint64_t";
  {
    Text t(str_cat("sort_tiles_", source.name), true);
    t.types(kEntryTypes)
        .functions(kEntryFunctions)
        .functions(kSortTileFunctions)
        .type("E", type)
        .constant("kTile", tile);
    source.declare(t, source.of);
    t.address("E* y", scratch_address(at))
        .whole("length", n)
        .whole("tiles", tiles)
        .whole("keep", run)
        .whole("row", length);
    to.add(t.step(str_cat(source.text, kTiles), lines * tiles, tile / 4 < 32 ? 32 : tile / 4,
                  static_cast<int>(tile * bytes)));
  }
  const int64_t other = tiles > 1 ? to.scratch(lines * length * bytes) : at;
  int64_t from = at, into = other;
  while (tiles > 1) {
    const int64_t pairs = (tiles + 1) / 2, kept = std::min(keep, 2 * run);
    const int64_t last = length - 2 * (pairs - 1) * run;  // length of the last pair
    const int64_t length_to = (pairs - 1) * kept + std::min(kept, last), chunks = (kept + 7) / 8;
    Text t("sort_merge", true);
    t.types(kEntryTypes)
        .functions(kEntryFunctions)
        .type("E", type)
        .address("const E* x", scratch_address(from))
        .address("E* y", scratch_address(into));
    t.whole("tasks", lines * pairs * chunks).whole("chunks", chunks).whole("pairs", pairs).whole("run", run);
    t.whole("length", length).whole("keep", kept).whole("row", length).whole("row_to", length_to);
    to.add(t.step(kMerge, blocks_for(lines * pairs * chunks)));
    std::swap(from, into);
    length = length_to;
    run = kept;
    tiles = pairs;
  }
  return from;
}

namespace {

constexpr std::string_view kTargets = R"(
static inline E entry_at(const P& p, int64 line, int64 i) {
  const int64 at = (int64)p.index[offset_of<kRank>(line, p.shape, p.of_index) + i * p.index_along];
  return (uint64_t)checked(at, p.limit, position_of(line, i, p.length, p.inner), p.bad) << 32 | (uint64_t)i;
}
)";

}  // namespace

int64_t add_target_sort(Launches& to, const Targets& targets) {
  const StridedView& index = targets.index;
  EntrySource source;
  source.name = "targets";
  source.text = kTargets;
  source.of = &targets;
  source.declare = [](Text& t, const void* of) {
    const auto& s = *static_cast<const Targets*>(of);
    t.type("X", s.index.dtype).functions(kOffsetFunctions).functions(kCheckFunctions);
    t.address("const X* index", operand_address(s.place)).bad();
    t.whole("limit", s.limit).index("index_along", s.index.strides[s.dim]);
    t.whole("inner", elements_behind(s.index, s.dim));
    Walk(without(s.index.shape, s.dim), {without(s.index.strides, s.dim)}).declare(t, {"of_index"});
  };
  const int64_t n = index.shape[targets.dim];
  return add_sort(to, source, n > 0 ? index.numel() / n : 0, n, n);
}

namespace {

// A value as an unsigned key in the same order: NaN is the largest, zeros of both signs are equal.
constexpr std::string_view kKeys = R"(
static inline uint32_t key_of(f32 v) {
  if (v != v) return 0xffffffffu;
  const uint32_t u = (uint32_t)w_as_i(v + 0.0f);
  return u >> 31 ? ~u : u | 0x80000000u;
}
static inline uint64_t key_of(f64 v) {
  if (v != v) return ~(uint64_t)0;
  const uint64_t u = (uint64_t)w_d_bits(v + 0.0);
  return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}
static inline uint64_t key_of(i64 v) { return (uint64_t)v ^ (uint64_t)1 << 63; }
static inline uint32_t key_of(i32 v) { return (uint32_t)v ^ 0x80000000u; }
static inline uint32_t key_of(bool v) { return v; }
static inline void set_entry(uint64_t& e, uint32_t key, int64 i) {
  e = (uint64_t)(kDescending ? ~key : key) << 32 | (uint64_t)i;
}
static inline void set_entry(Wide& e, uint64_t key, int64 i) {
  e.key = kDescending ? ~key : key;
  e.index = (uint64_t)i;
}
)";

constexpr std::string_view kValueEntries = R"(
static inline E entry_at(const P& p, int64 line, int64 i) {
  E e;
  set_entry(e, key_of(get(p.x[offset_of<kRank>(line, p.shape, p.from) + i * p.along])), i);
  return e;
}
)";

// The entries of a line as values and places.
constexpr std::string_view kFinish = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  const int64 line = task / p.keep, i = task % p.keep;
  const int64 at = (int64)index_of(p.order[task]);
  p.values[offset_of<kRank>(line, p.shape, p.to_values) + i * p.values_along] =
      p.x[offset_of<kRank>(line, p.shape, p.from) + at * p.along];
  p.indices[offset_of<kRank>(line, p.shape, p.to_indices) + i * p.indices_along] = at;
}
)";

// Short lines: a warp keeps the entries of a line in registers and takes, k times, the best one after the last one
// taken.
constexpr std::string_view kFew = R"(
W_KERNEL {
  const int64 line = (int64)blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (line >= p.n) return;
  const int lane = threadIdx.x % 32;
  const int64 from = offset_of<kRank>(line, p.shape, p.from);
  E mine[kPer], last, kept;
  set_last(last);
  set_last(kept);
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int i = lane + 32 * k;
    if (i < p.length) set_entry(mine[k], key_of(get(p.x[from + i * p.along])), i);
    else set_last(mine[k]);
  }
  for (int r = 0; r < p.keep; ++r) {
    E best;
    set_last(best);
#pragma unroll
    for (int k = 0; k < kPer; ++k)
      if ((r == 0 || less(last, mine[k])) && less(mine[k], best)) best = mine[k];
    for (int m = 16; m > 0; m /= 2) {
      const E other = from_lane(best, m);
      if (less(other, best)) best = other;
    }
    if (lane == r) kept = best;
    last = best;
  }
  if (lane >= p.keep) return;
  const int64 at = (int64)index_of(kept);
  p.values[offset_of<kRank>(line, p.shape, p.to_values) + lane * p.values_along] = p.x[from + at * p.along];
  p.indices[offset_of<kRank>(line, p.shape, p.to_indices) + lane * p.indices_along] = at;
}
)";

struct SortLine {
  const StridedView &x, &values, &indices;
  int dim;
  bool descending;
  Walk walk;  // strides: x, values, indices

  SortLine(const OperationRequest& r, int d, bool down)
      : x(r.in[0]),
        values(r.out[0]),
        indices(r.out[1]),
        dim(d),
        descending(down),
        walk(without(x.shape, d), {without(x.strides, d), without(values.strides, d), without(indices.strides, d)}) {}
  void declare(Text& t) const {
    t.type("T", x.dtype).constant("kDescending", descending).functions(kOffsetFunctions).functions(kKeys);
    t.address("const T* x", operand_address(0)).index("along", x.strides[dim]);
    walk.declare(t, {"from", "to_values", "to_indices"});
  }
  void declare_results(Text& t) const {
    t.address("T* values", result_address(0)).address("int64* indices", result_address(1));
    t.index("values_along", values.strides[dim]).index("indices_along", indices.strides[dim]);
  }
};

bool order(const OperationRequest& r, Launches& to, int64_t keep, bool descending) {
  const int dim = static_cast<int>(r.attrs.i("dim"));
  const SortLine line(r, dim, descending);
  if (r.out[0].numel() == 0) return true;
  const int64_t n = line.x.shape[dim], lines = line.walk.n;
  const bool wide = line.x.dtype == kFloat64 || line.x.dtype == kInt64;
  const char* type = wide ? "Wide" : "uint64_t";
  if (keep <= 16 && n <= 512) {
    Text t("topk_few", true);
    t.types(kEntryTypes)
        .functions(kEntryFunctions)
        .type("E", type)
        .constant("kPer", static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((n + 31) / 32))));
    line.declare(t);
    line.declare_results(t);
    t.whole("length", n).whole("keep", keep);
    to.add(t.step(kFew, blocks_for(lines, 4), 128));
    return true;
  }
  EntrySource source;
  source.name = "of";
  source.text = kValueEntries;
  source.wide = wide;
  source.declare = [](Text& t, const void* of) { static_cast<const SortLine*>(of)->declare(t); };
  source.of = &line;
  const int64_t sorted = add_sort(to, source, lines, n, keep);
  Text t("sort_finish", true);
  t.types(kEntryTypes).functions(kEntryFunctions).type("E", type);
  line.declare(t);
  line.declare_results(t);
  t.address("const E* order", scratch_address(sorted)).whole("tasks", lines * keep).whole("keep", keep);
  to.add(t.step(kFinish, blocks_for(lines * keep)));
  return true;
}

bool make_sort(const OperationRequest& r, Launches& to) {
  return order(r, to, r.in[0].shape[static_cast<int>(r.attrs.i("dim"))], r.attrs.b("descending"));
}
bool make_topk(const OperationRequest& r, Launches& to) { return order(r, to, r.attrs.i("k"), r.attrs.b("largest")); }

}  // namespace

std::span<const MakerRow> order_makers() {
  static const MakerRow rows[] = {{&sort_op, make_sort}, {&topk_op, make_topk}};
  return rows;
}

}  // namespace weft::cuda
