// Reductions of any dtype over any dims, in the order of ops/scalar/reduce_order.h, argmax and argmin, running sums.
#include "ops/core/reduce.h"

#include "compiler/cuda/ops/families.h"
#include "compiler/cuda/ops/layout.h"
#include "framework/base/error.h"
#include "ops/scalar/reduce_order.h"

namespace weft::cuda {
namespace {

// ---- sum, prod, max, min
// ---------------------------------------------------------------------------------------------

// 16 threads take a block of 1024 elements of one result.
constexpr std::string_view kBlocks = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const int lane = threadIdx.x % 16;
  const int64 task = (int64)blockIdx.x * (kThreads / 16) + threadIdx.x / 16;
  const bool live = task < (int64)p.outputs * p.blocks;
  const I o = live ? (I)(task / p.blocks) : 0, first = live ? (I)(task % p.blocks) * 1024 : 0;
  const I left = p.n - first, count = !live ? 0 : left < 1024 ? left : 1024;
  const X* x = p.x + offset_of<kKept>(o, p.kept, p.from);
  E sum = R::identity<E>();
  for (I i = lane; i < count; i += 16) sum = R::f(sum, (E)get(x[offset_of<kReduced>(first + i, p.extent, p.step)]));
  for (int m = 8; m > 0; m /= 2) sum = R::f(sum, shfl_down(sum, m));
  if (lane != 0 || !live) return;
  if (kWhole) write(p.y[offset_of<kKept>(o, p.kept, p.to)], sum);
  else p.partial[task] = sum;
}
)";

// Blocks of one result, a tree of neighbours.
constexpr std::string_view kTree = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  E* v = p.partial + (int64)blockIdx.x * p.blocks;
  for (int64 s = 1; s < p.blocks; s *= 2) {
    for (int64 i = threadIdx.x * 2 * s; i + s < p.blocks; i += kThreads * 2 * s) v[i] = R::f(v[i], v[i + s]);
    __syncthreads();
  }
  if (threadIdx.x == 0) write(p.y[offset_of<kKept>((I)blockIdx.x, p.kept, p.to)], v[0]);
}
)";

void declare(Text& t, const char* count, const char* field, const Walk& w, std::initializer_list<const char*> strides) {
  t.constant(count, w.rank()).indices(cat(field, "[", count, "]"), {w.shape.begin(), w.shape.end()});
  size_t k = 0;
  for (const char* name : strides) {
    t.indices(cat(name, "[", count, "]"), {w.strides[k].begin(), w.strides[k].end()});
    ++k;
  }
}

bool reduce(const Request& r, Launches& to, const char* op, const Shape& dims, int64_t identity) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0) return true;
  Shape reduced, step, from;
  for (int d = 0, k = 0; d < x.shape.size(); ++d) {
    if (k < dims.size() && dims[k] == d) {
      reduced.push_back(x.shape[d]);
      step.push_back(x.strides[d]);
      ++k;
    } else {
      from.push_back(x.strides[d]);
    }
  }
  const int64_t n = reduced.numel();
  if (n == 0) {
    add_fill(to, y, out_place(0), identity);
    return true;
  }
  const Walk kept(y.shape, {from, y.strides}), inner(reduced, {step});
  const int64_t blocks = (n + kReduceBlock - 1) / kReduceBlock;
  const bool wide = is_wide(x) || kept.wide();
  const DType e = sums_of(x.dtype);
  const int64_t partial = blocks > 1 ? to.scratch(y.numel() * blocks * itemsize(e)) : 0;
  {
    Text t("reduce_blocks", wide);
    t.type("R", op).type("E", e).type("X", x.dtype).type("Y", y.dtype).constant("kWhole", blocks == 1);
    t.words(kOffsetWords).words(kWriteWords);
    t.address("const X* x", in_place(0)).address("Y* y", out_place(0)).address("E* partial", scratch_place(partial));
    t.index("outputs", y.numel()).index("blocks", blocks).index("n", n);
    declare(t, "kKept", "kept", kept, {"from", "to"});
    declare(t, "kReduced", "extent", inner, {"step"});
    to.add(t.step(kBlocks, blocks_for(y.numel() * blocks, 16)));
  }
  if (blocks > 1) {
    Text t("reduce_tree", wide);
    t.type("R", op).type("E", e).type("Y", y.dtype).words(kOffsetWords).words(kWriteWords);
    t.address("Y* y", out_place(0)).address("E* partial", scratch_place(partial)).index("blocks", blocks);
    declare(t, "kKept", "kept", kept, {"from", "to"});
    to.add(t.step(kTree, y.numel()));
  }
  return true;
}

bool make_sum(const Request& r, Launches& to) { return reduce(r, to, "Sum", r.attrs.ints("dims"), 0); }
bool make_prod(const Request& r, Launches& to) { return reduce(r, to, "Prod", r.attrs.ints("dims"), 1); }
bool make_max(const Request& r, Launches& to) { return reduce(r, to, "Max", r.attrs.ints("dims"), 0); }
bool make_min(const Request& r, Launches& to) { return reduce(r, to, "Min", r.attrs.ints("dims"), 0); }

// ---- argmax, argmin
// --------------------------------------------------------------------------------------------------

// A block for each result. NaN is best of all; of equals the first.
constexpr std::string_view kArg = R"(
static inline bool goes_before(E a, int64 i, E b, int64 j) {  // i, j < 0: nothing
  if (i < 0 || j < 0) return j < 0 && i >= 0;
  if (a != a || b != b) return a != a && (b == b || i < j);
  return (kLargest ? a > b : a < b) || (a == b && i < j);
}
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const X* x = p.x + offset_of<kKept>((I)blockIdx.x, p.kept, p.from);
  E best = (E)0;
  int64 at = -1;
  for (I i = threadIdx.x; i < p.n; i += kThreads) {
    const E v = (E)get(x[i * p.step]);
    if (goes_before(v, i, best, at)) {
      best = v;
      at = i;
    }
  }
  for (int m = 16; m > 0; m /= 2) {
    const E v = shfl_xor(best, m);
    const int64 i = shfl_xor(at, m);
    if (goes_before(v, i, best, at)) {
      best = v;
      at = i;
    }
  }
  if (kThreads > 32) {
    const Shared<E> bests = shared_at<E>(0);
    const Shared<int64> ats = shared_at<int64>(256);
    if (threadIdx.x % 32 == 0) {
      bests[threadIdx.x / 32] = best;
      ats[threadIdx.x / 32] = at;
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (int w = 1; w < kThreads / 32; ++w) {
        const E v = bests[w];
        const int64 i = ats[w];
        if (goes_before(v, i, best, at)) {
          best = v;
          at = i;
        }
      }
  }
  if (threadIdx.x == 0) p.y[offset_of<kKept>((I)blockIdx.x, p.kept, p.to)] = at;
}
)";

bool arg(const Request& r, Launches& to, bool largest) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0) return true;
  const int dim = static_cast<int>(r.attrs.i("dim"));
  Shape from = x.strides;
  from.erase(dim);
  const Walk kept(y.shape, {from, y.strides});
  const int threads = x.shape[dim] > 1024 ? 256 : 32;
  Text t("arg_best", is_wide(x) || kept.wide());
  t.type("E", sums_of(x.dtype)).type("X", x.dtype).constant("kLargest", largest).words(kOffsetWords);
  t.address("const X* x", in_place(0)).address("int64* y", out_place(0));
  t.index("n", x.shape[dim]).index("step", x.strides[dim]);
  declare(t, "kKept", "kept", kept, {"from", "to"});
  to.add(t.step(kArg, y.numel(), threads, threads > 32 ? 512 : 0));
  return true;
}
bool make_argmax(const Request& r, Launches& to) { return arg(r, to, true); }
bool make_argmin(const Request& r, Launches& to) { return arg(r, to, false); }

// ---- running sums
// ----------------------------------------------------------------------------------------------------

// Sums go one after another, as on the CPU. A thread for each line: where lines lie side by side, or are many.
constexpr std::string_view kScanLines = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const I line = (I)blockIdx.x * kThreads + threadIdx.x;
  if (line >= p.lines) return;
  const X* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  Y* y = p.y + offset_of<kRank>(line, p.shape, p.to);
  E sum = (E)0;
  for (I i = 0; i < p.length; i += 8) {
    E v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const I at = kReverse ? p.length - 1 - i - k : i + k;
      v[k] = i + k < p.length ? (E)get(x[at * p.x_step]) : (E)0;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const I at = kReverse ? p.length - 1 - i - k : i + k;
      sum = sum + v[k];
      if (i + k < p.length) write(y[at * p.y_step], sum);
    }
  }
}
)";

// A warp for each line: 32 x kEach elements go through shared memory, where one lane adds floats in order. Whole
// numbers are added by all lanes: their sums are the same in any order.
constexpr std::string_view kScanLine = R"(
extern "C" __global__ void __launch_bounds__(kThreads) kSymbol(const __grid_constant__ P p) {
  const I line = (I)blockIdx.x;
  const X* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  Y* y = p.y + offset_of<kRank>(line, p.shape, p.to);
  const Shared<E> tile = shared_at<E>(0);
  const int lane = threadIdx.x;
  E sum = (E)0;
  for (I begin = 0; begin < p.length; begin += 1024) {
    const I left = p.length - begin;
    const int count = left < 1024 ? (int)left : 1024;
    for (int i = lane; i < count; i += 32) {
      const I at = kReverse ? p.length - 1 - begin - i : begin + i;
      tile[i] = (E)get(x[at * p.x_step]);
    }
    __syncwarp();
    if (kWhole) {
      for (int i = 0; i < count; i += 32) {
        E v = i + lane < count ? (E)tile[i + lane] : (E)0;
        for (int m = 1; m < 32; m *= 2) {
          const E before = shfl_up(v, m);
          if (lane >= m) v = v + before;
        }
        v = v + sum;
        if (i + lane < count) tile[i + lane] = v;
        sum = shfl(v, 31);
      }
    } else if (lane == 0) {
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        sum = sum + (E)tile[i];
        tile[i] = sum;
      }
    }
    __syncwarp();
    for (int i = lane; i < count; i += 32) {
      const I at = kReverse ? p.length - 1 - begin - i : begin + i;
      write(y[at * p.y_step], (E)tile[i]);
    }
    __syncwarp();
  }
}
)";

bool make_cumsum(const Request& r, Launches& to) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0) return true;
  const int dim = static_cast<int>(r.attrs.i("dim"));
  Shape shape = x.shape, from = x.strides, at = y.strides;
  for (Shape* s : {&shape, &from, &at}) s->erase(dim);
  const Walk lines(shape, {from, at});
  const DType e = sums_of(x.dtype);
  const bool side_by_side = lines.n >= 32 && lines.strides[0].back() == 1;
  const bool alone = !side_by_side && x.shape[dim] > 32;
  Text t(alone ? "scan_line" : "scan_lines", is_wide(x) || is_wide(y));
  t.type("E", e).type("X", x.dtype).type("Y", y.dtype).constant("kReverse", r.attrs.b("reverse"));
  if (alone) t.constant("kWhole", !is_floating(e));
  t.words(kOffsetWords).words(kWriteWords).address("const X* x", in_place(0)).address("Y* y", out_place(0));
  t.index("lines", lines.n).index("length", x.shape[dim]).index("x_step", x.strides[dim]);
  t.index("y_step", y.strides[dim]);
  lines.declare(t, {"from", "to"});
  to.add(alone ? t.step(alone ? kScanLine : kScanLines, lines.n, 32, static_cast<int>(1024 * itemsize(e)))
               : t.step(alone ? kScanLine : kScanLines, blocks_for(lines.n, 128), 128));
  return true;
}

}  // namespace

std::span<const MakerRow> reduce_makers() {
  static const MakerRow rows[] = {{&reduce_sum_op, make_sum}, {&reduce_prod_op, make_prod}, {&reduce_max_op, make_max},
                                  {&reduce_min_op, make_min}, {&argmax_op, make_argmax},    {&argmin_op, make_argmin},
                                  {&cumsum_op, make_cumsum}};
  return rows;
}

}  // namespace weft::cuda
