// Reductions of any dtype over any dims, in the order of ops/numerics/reduce_order.h, argmax and argmin.
#include "ops/core/reductions/reduce.h"

#include <algorithm>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {
namespace {

// ---- sum, prod, max, min ----

// 16 threads take a block of 1024 elements of one result.
constexpr std::string_view kBlocks = R"(
W_KERNEL {
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

// Combines the blocks of one result by a tree of neighbours.
constexpr std::string_view kTree = R"(
W_KERNEL {
  E* v = p.partial + (int64)blockIdx.x * p.blocks;
  for (int64 s = 1; s < p.blocks; s *= 2) {
    for (int64 i = threadIdx.x * 2 * s; i + s < p.blocks; i += kThreads * 2 * s) v[i] = R::f(v[i], v[i + s]);
    __syncthreads();
  }
  if (threadIdx.x == 0) write(p.y[offset_of<kKept>((I)blockIdx.x, p.kept, p.to)], v[0]);
}
)";

bool reduce(const OperationRequest& r, Launches& to, const char* op, const Shape& dims, int64_t identity) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0) return true;
  const Reduced split(x, dims);
  const int64_t n = split.reduced.numel();
  if (n == 0) {
    add_fill(to, y, result_address(0), identity);
    return true;
  }
  const Walk kept(y.shape, {split.kept_strides, y.strides}), inner(split.reduced, {split.reduced_strides});
  const int64_t blocks = (n + kReduceBlock - 1) / kReduceBlock;
  const bool wide = is_wide(x) || kept.wide();
  const DType e = sums_of(x.dtype);
  const int64_t partial = blocks > 1 ? to.scratch(y.numel() * blocks * itemsize(e)) : 0;
  {
    Text t("reduce_blocks", wide);
    t.type("R", op).type("E", e).type("X", x.dtype).type("Y", y.dtype).constant("kWhole", blocks == 1);
    t.functions(kOffsetFunctions).functions(kWriteFunctions);
    t.address("const X* x", operand_address(0))
        .address("Y* y", result_address(0))
        .address("E* partial", scratch_address(partial));
    t.index("outputs", y.numel()).index("blocks", blocks).index("n", n);
    kept.declare(t, "kKept", "kept", {"from", "to"});
    inner.declare(t, "kReduced", "extent", {"step"});
    to.add(t.step(kBlocks, blocks_for(y.numel() * blocks, 16)));
  }
  if (blocks > 1) {
    Text t("reduce_tree", wide);
    t.type("R", op).type("E", e).type("Y", y.dtype).functions(kOffsetFunctions).functions(kWriteFunctions);
    t.address("Y* y", result_address(0)).address("E* partial", scratch_address(partial)).index("blocks", blocks);
    kept.declare(t, "kKept", "kept", {"from", "to"});
    to.add(t.step(kTree, y.numel()));
  }
  return true;
}

bool make_sum(const OperationRequest& r, Launches& to) { return reduce(r, to, "Sum", r.attrs.ints("dims"), 0); }
bool make_prod(const OperationRequest& r, Launches& to) { return reduce(r, to, "Prod", r.attrs.ints("dims"), 1); }
bool make_max(const OperationRequest& r, Launches& to) { return reduce(r, to, "Max", r.attrs.ints("dims"), 0); }
bool make_min(const OperationRequest& r, Launches& to) { return reduce(r, to, "Min", r.attrs.ints("dims"), 0); }

// ---- argmax, argmin ----

// One block per result, or per part of a long line if lines are few (kTold 1); a second launch combines the results of
// the parts (kTold 2). The order does not change the result: NaN is the best, and of equal values the first one is.
constexpr std::string_view kArg = R"(
static inline bool goes_before(E a, int64 i, E b, int64 j) {  // i, j < 0: no element
  if (i < 0 || j < 0) return j < 0 && i >= 0;
  if (a != a || b != b) return a != a && (b == b || i < j);
  return (kLargest ? a > b : a < b) || (a == b && i < j);
}
W_KERNEL {
  const I parts = kTold == 1 ? p.parts : 1, o = (I)blockIdx.x / parts, begin = (I)blockIdx.x % parts * p.span;
  const I end = p.n - begin < p.span ? p.n : begin + p.span;
  const X* x = p.x + offset_of<kKept>(o, p.kept, p.from);
  E best = (E)0;
  int64 at = -1;
#pragma unroll 4
  for (I i = begin + threadIdx.x; i < end; i += kThreads) {
    const E v = kTold == 2 ? p.bests[o * p.n + i] : (E)get(x[i * p.step]);
    const int64 j = kTold == 2 ? p.ats[o * p.n + i] : (int64)i;
    if (goes_before(v, j, best, at)) {
      best = v;
      at = j;
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
  if (threadIdx.x != 0) return;
  if (kTold == 1) {
    p.bests[blockIdx.x] = best;
    p.ats[blockIdx.x] = at;
  } else {
    p.y[offset_of<kKept>(o, p.kept, p.to)] = at;
  }
}
)";

bool arg(const OperationRequest& r, Launches& to, bool largest) {
  const StridedView &x = r.in[0], &y = r.out[0];
  if (y.numel() == 0) return true;
  const int dim = static_cast<int>(r.attrs.i("dim"));
  Shape from = x.strides;
  from.erase(dim);
  const Walk kept(y.shape, {from, y.strides});
  const int64_t n = x.shape[dim], span = 4096, outputs = y.numel();
  const int64_t parts = outputs <= 256 ? blocks_for(n, span) : 1;
  const int64_t bests = parts > 1 ? to.scratch(outputs * parts * 8) : 0,
                ats = parts > 1 ? to.scratch(outputs * parts * 8) : 0;
  auto pass = [&](int told, int64_t count, int64_t each, int64_t blocks) {
    const int threads = std::min(count, each) > 1024 ? 256 : 32;
    Text t("arg_best", is_wide(x) || kept.wide());
    t.type("E", sums_of(x.dtype)).type("X", x.dtype).constant("kLargest", largest).constant("kTold", told);
    t.functions(kOffsetFunctions).address("const X* x", operand_address(0)).address("int64* y", result_address(0));
    t.address("E* bests", scratch_address(bests)).address("int64* ats", scratch_address(ats));
    t.index("n", count).index("span", each).index("parts", parts).index("step", x.strides[dim]);
    kept.declare(t, "kKept", "kept", {"from", "to"});
    to.add(t.step(kArg, blocks, threads, threads > 32 ? 512 : 0));
  };
  if (parts == 1) {
    pass(0, n, n, outputs);
  } else {
    pass(1, n, span, outputs * parts);
    pass(2, parts, parts, outputs);
  }
  return true;
}
bool make_argmax(const OperationRequest& r, Launches& to) { return arg(r, to, true); }
bool make_argmin(const OperationRequest& r, Launches& to) { return arg(r, to, false); }

}  // namespace

std::span<const MakerRow> reduce_makers() {
  static const MakerRow rows[] = {{&reduce_sum_op, make_sum}, {&reduce_prod_op, make_prod}, {&reduce_max_op, make_max},
                                  {&reduce_min_op, make_min}, {&argmax_op, make_argmax},    {&argmin_op, make_argmin}};
  return rows;
}

}  // namespace weft::cuda
