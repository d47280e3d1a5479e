#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/strided_loop.h"
#include "ops/kernels/sums/reduce_plan.h"
#include "ops/kernels/tables.h"
#include "ops/numerics/reduce_order.h"

namespace weft::kernels {
namespace {

constexpr int64_t kWork = 1 << 15;  // elements worth a task
constexpr int64_t kChunk = 256;     // maximum outputs of a task

constexpr const char* kNames[] = {"sum", "max", "min", "prod", "argmax", "argmin"};

const ReduceFns& fns_of(Rd op, DType type) {
  static const auto get = WEFT_SELECT(reduce_fns);
  return get(static_cast<int>(op), type == kInt64 ? 4 : static_cast<int>(type));
}
const ArgFns& arg_fns_of(Rd op, DType acc) {
  static const auto get = WEFT_SELECT(arg_fns);
  return get(op == Rd::argmax, acc == kFloat32 ? 0 : acc == kFloat64 ? 1 : 2);
}

// ---- values and their order, for any layout in memory ----

// Packs elements first .. first + n of the sequence at `base`, converted to plan.element, into `buffer`.
void pack(const ReduceSplit& p, const char* base, int64_t first, int64_t n, char* buffer) {
  alignas(64) char raw[kReduceBlock * 8];
  char* to = p.converts ? raw : buffer;
  int64_t done = 0;
  p.for_runs(first, n, [&](int64_t offset, int64_t stride, int64_t count) {
    copy_2d(base + offset, 0, stride / p.size, to + done * p.size, 0, 1, 1, count, p.size);
    done += count;
  });
  if (p.converts) cast_copy({raw, p.in, {n}, {1}}, {buffer, p.element, {n}, {1}});
}

// Packs elements first .. first + n as rows of `cols` columns into `buffer`, row after row.
void pack_columns(const ReduceSplit& p, const char* base, int64_t first, int64_t n, int64_t cols, char* buffer) {
  const int64_t size = itemsize(p.element);
  p.for_runs(first, n, [&](int64_t offset, int64_t stride, int64_t count) {
    cast_copy({const_cast<char*>(base) + offset, p.in, {count, cols}, {stride / p.size, p.column_stride / p.size}},
              {buffer, p.element, {count, cols}, {cols, 1}});
    buffer += count * cols * size;
  });
}

// Computes the result of block b for `count` outputs from `base` on (rows or columns) into acc[0 .. count).
void one_block(const ReduceSplit& p, const ReduceFns& fns, const char* base, int64_t count, int64_t b, void* acc) {
  const int64_t first = b * kReduceBlock, n = std::min<int64_t>(kReduceBlock, p.n - first);
  const int64_t size = itemsize(p.element);
  if (p.by_columns) {
    int64_t offsets[kReduceBlock];
    if (p.direct) {
      int64_t i = 0;
      p.for_runs(first, n, [&](int64_t offset, int64_t stride, int64_t run) {
        for (int64_t j = 0; j < run; ++j) offsets[i++] = offset + j * stride;
      });
      fns.columns(base, offsets, n, count, acc);
    } else {
      std::vector<char> buffer(n * count * size);
      pack_columns(p, base, first, n, count, buffer.data());
      for (int64_t i = 0; i < n; ++i) offsets[i] = i * count * size;
      fns.columns(buffer.data(), offsets, n, count, acc);
    }
  } else if (p.direct) {
    fns.rows(base + first * size, p.column_stride, count, n, acc);
  } else {
    alignas(64) char buffer[kReduceBlock * 8];
    for (int64_t r = 0; r < count; ++r) {
      pack(p, base + r * p.column_stride, first, n, buffer);
      fns.rows(buffer, 0, 1, n, static_cast<char*>(acc) + r * p.acc_size);
    }
  }
}

// All blocks of `count` <= kChunk outputs, combined as they are computed: the tree of reduce_order.h as a binary
// counter.
void all_blocks(const ReduceSplit& p, const ReduceFns& fns, const char* base, int64_t count, char* acc) {
  if (p.blocks == 1) return one_block(p, fns, base, count, 0, acc);
  if (p.direct && !p.by_columns) return fns.rows(base, p.column_stride, count, p.n, acc);
  alignas(64) char stack[48][kChunk * 8];
  int depth = 0;
  for (int64_t b = 0; b < p.blocks; ++b) {
    one_block(p, fns, base, count, b, stack[depth++]);
    for (int64_t d = b; d & 1; d >>= 1, --depth) fns.combine(stack[depth - 2], stack[depth - 1], count);
  }
  for (; depth > 1; --depth) fns.combine(stack[depth - 2], stack[depth - 1], count);
  std::memcpy(acc, stack[0], count * p.acc_size);
}

void write(const ReduceSplit& p, const void* acc, int64_t chunk, const StridedView& out) {
  const auto at = p.chunk(chunk);
  cast_copy({const_cast<void*>(acc), p.acc, {at.count}, {1}},
            {static_cast<char*>(out.data) + at.out * itemsize(out.dtype), out.dtype, {at.count}, {p.out_stride}});
}

// Few outputs: their blocks are divided among tasks, too. Partial results are stored in the workspace and combined
// afterwards.
void reduce_split(const ReduceSplit& p, const ReduceFns& fns, const char* data, const StridedView& out,
                  char* workspace) {
  constexpr int64_t kGroup = kWork / kReduceBlock;
  const int64_t groups = (p.blocks + kGroup - 1) / kGroup, width = p.chunk_size * p.acc_size;
  auto partial = [&](int64_t chunk, int64_t b) { return workspace + (chunk * p.blocks + b) * width; };
  parallel_for(p.chunks * groups, [&](int64_t task) {
    const int64_t chunk = task / groups, begin = task % groups * kGroup, end = std::min(begin + kGroup, p.blocks);
    const auto at = p.chunk(chunk);
    if (p.direct && !p.by_columns && p.chunk_size == 1) {
      // Whole blocks of one row are treated as rows, one block apart.
      const int64_t step = kReduceBlock * itemsize(p.element), whole = std::min(end, p.n / kReduceBlock);
      fns.rows(data + at.in + begin * step, step, whole - begin, kReduceBlock, partial(chunk, begin));
      if (whole < end) one_block(p, fns, data + at.in, 1, whole, partial(chunk, whole));
      return;
    }
    for (int64_t b = begin; b < end; ++b) one_block(p, fns, data + at.in, at.count, b, partial(chunk, b));
  });
  parallel_for(p.chunks, [&](int64_t chunk) {
    const int64_t count = p.chunk(chunk).count;
    for (int64_t s = 1; s < p.blocks; s *= 2)
      for (int64_t b = 0; b + s < p.blocks; b += 2 * s) fns.combine(partial(chunk, b), partial(chunk, b + s), count);
    write(p, partial(chunk, 0), chunk, out);
  });
}

void reduce_arg(Rd op, const ReduceSplit& p, const char* data, const StridedView& out) {
  const ArgFns& fns = arg_fns_of(op, p.acc);
  const int64_t size = itemsize(p.acc);
  parallel_chunks(p.chunks, p.chunks_per_task(), [&](int64_t begin, int64_t end) {
    alignas(64) char best[kChunk * 8];
    alignas(64) char buffer[kReduceBlock * 8];
    int64_t index[kChunk];
    for (int64_t c = begin; c < end; ++c) {
      const auto at = p.chunk(c);
      const char* base = data + at.in;
      if (p.by_columns) {
        p.for_runs(0, p.n, [&](int64_t offset, int64_t stride, int64_t run) {
          for (int64_t i = 0; i < run; ++i) {  // one dim: a single run
            const char* row = base + offset + i * stride;
            if (!p.direct || p.in != p.acc) {
              cast_copy({const_cast<char*>(row), p.in, {at.count}, {p.column_stride / p.size}},
                        {buffer, p.acc, {at.count}, {1}});
              row = buffer;
            }
            fns.columns(row, at.count, i, best, index);
          }
        });
      } else {
        for (int64_t r = 0; r < at.count; ++r) {
          index[r] = -1;
          for (int64_t first = 0; first < p.n; first += kReduceBlock) {
            const int64_t n = std::min<int64_t>(kReduceBlock, p.n - first);
            const int64_t stride = p.reduced_dims ? p.reduced[0].stride : 0;
            const char* x = base + r * p.column_stride + first * stride;
            if (stride != size || p.in != p.acc) {
              cast_copy({const_cast<char*>(x), p.in, {n}, {stride / p.size}}, {buffer, p.acc, {n}, {1}});
              x = buffer;
            }
            fns.row(x, n, first, best, &index[r]);
          }
        }
      }
      cast_copy({index, kInt64, {at.count}, {1}},
                {static_cast<char*>(out.data) + at.out * 8, kInt64, {at.count}, {p.out_stride}});
    }
  });
}

void reduce_nothing(Rd op, const StridedView& out) {
  WEFT_CHECK(op == Rd::sum || op == Rd::prod, kNames[static_cast<int>(op)],
             ": nothing to reduce; need at least one element");
  fill(out, op == Rd::prod ? 1 : 0);
}

}  // namespace

ReduceSplit::ReduceSplit(Rd op, DType in_dtype, const Shape& shape, const Shape& strides, uint32_t mask,
                         const Shape* out_strides)
    : in(in_dtype), size(itemsize(in_dtype)) {
  const bool arg = op == Rd::argmax || op == Rd::argmin;
  acc = in == kFloat64 ? kFloat64 : is_floating(in) ? kFloat32 : kInt64;
  element = is_floating(in) ? in : kInt64;
  if (in >= kFloat8E4M3) element = kFloat32;
  if (arg) element = acc;
  converts = element != in;
  acc_size = itemsize(acc);

  struct KeptDim {
    int64_t extent, in, out;
  };
  KeptDim kept[kMaxDims];
  int kept_dims = 0;
  for (int d = 0, o = 0; d < shape.size(); ++d) {
    const int64_t e = shape[d], s = strides[d] * size;
    if (mask >> d & 1) {
      n *= e;
      if (e == 1) continue;
      if (reduced_dims && reduced[reduced_dims - 1].stride == s * e) {
        reduced[reduced_dims - 1] = {reduced[reduced_dims - 1].extent * e, s};
      } else {
        reduced[reduced_dims++] = {e, s};
      }
    } else {
      const int64_t so = out_strides ? (*out_strides)[o] : 0;
      ++o;
      outputs *= e;
      if (e == 1) continue;
      if (kept_dims && kept[kept_dims - 1].in == s * e && (!out_strides || kept[kept_dims - 1].out == so * e)) {
        kept[kept_dims - 1] = {kept[kept_dims - 1].extent * e, s, so};
      } else {
        kept[kept_dims++] = {e, s, so};
      }
    }
  }
  if (!kept_dims) kept[kept_dims++] = {1, size, 1};
  blocks = (n + kReduceBlock - 1) / kReduceBlock;

  // The plan is by columns if the closest elements in memory belong to different outputs, and there are enough outputs
  // for a vector.
  int closest = kept_dims - 1;
  for (int k = 0; k < kept_dims; ++k)
    if (kept[k].extent > 1 && std::abs(kept[k].in) < std::abs(kept[closest].in)) closest = k;
  int64_t run = std::numeric_limits<int64_t>::max();
  for (int r = 0; r < reduced_dims; ++r) run = std::min(run, std::abs(reduced[r].stride));
  by_columns = kept[closest].extent > 1 && kept[closest].in != 0 && std::abs(kept[closest].in) < run &&
               kept[closest].extent >= 16;
  std::swap(kept[closest], kept[kept_dims - 1]);  // the order of outputs among tasks is free
  const KeptDim& line = kept[kept_dims - 1];
  column_stride = line.in;
  out_stride = line.out;
  line_extent = line.extent;
  for (int k = 0; k + 1 < kept_dims; ++k) outer[outer_dims++] = {kept[k].extent, kept[k].in, kept[k].out};
  direct = !converts &&
           (by_columns ? column_stride == size : reduced_dims == 0 || (reduced_dims == 1 && reduced[0].stride == size));

  chunk_size =
      std::min(line_extent, by_columns ? kChunk : std::clamp<int64_t>(kWork / std::max<int64_t>(n, 1), 1, kChunk));
  line_chunks = chunk_size ? (line_extent + chunk_size - 1) / chunk_size : 0;
  chunks = line_chunks;
  for (int k = 0; k < outer_dims; ++k) chunks *= outer[k].extent;
  split = !arg && chunks < 16 && blocks >= 4 && n * outputs >= 4 * kWork;
}

int64_t ReduceSplit::chunks_per_task() const {
  return std::max<int64_t>(1, kWork / std::max<int64_t>(1, n * chunk_size));
}

void combine(Rd op, DType acc, void* a, const void* b, int64_t n) { fns_of(op, acc).combine(a, b, n); }

void fill_identity(Rd op, DType acc, void* a, int64_t n) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double real[] = {0, -inf, inf, 1};
  const int64_t whole[] = {0, INT64_MIN, INT64_MAX, 1};
  const int k = static_cast<int>(op);
  if (acc == kInt64) {
    std::fill_n(static_cast<int64_t*>(a), n, whole[k]);
  } else if (acc == kFloat64) {
    std::fill_n(static_cast<double*>(a), n, real[k]);
  } else {
    std::fill_n(static_cast<float*>(a), n, static_cast<float>(real[k]));
  }
}

int64_t reduce_workspace(Rd op, DType in, const Shape& in_shape, uint32_t dim_mask) {
  // The size suffices for any strides: fewer than 16 chunks, none longer than its line, so at most half of the space is
  // unused.
  int64_t n = 1, outputs = 1;
  for (int d = 0; d < in_shape.size(); ++d) (dim_mask >> d & 1 ? n : outputs) *= in_shape[d];
  const int64_t blocks = (n + kReduceBlock - 1) / kReduceBlock;
  if (op == Rd::argmax || op == Rd::argmin || blocks < 4 || n * outputs < 4 * kWork) return 0;
  const int64_t acc = in == kFloat64 || !is_floating(in) ? 8 : 4;
  return (outputs == 1 ? 1 : std::min(2 * outputs, 15 * kChunk)) * blocks * acc;
}

void reduce(Rd op, const StridedView& in, uint32_t dim_mask, const StridedView& out, void* workspace) {
  const char* name = kNames[static_cast<int>(op)];
  const bool arg = op == Rd::argmax || op == Rd::argmin;
  Shape kept;
  for (int d = 0; d < in.shape.size(); ++d)
    if (!(dim_mask >> d & 1)) kept.push_back(in.shape[d]);
  WEFT_CHECK(out.shape == kept, name, ": output has shape ", out.shape, "; need ", kept);
  WEFT_CHECK(!arg || std::popcount(dim_mask) == 1, name, ": got ", std::popcount(dim_mask), " dims; need one");
  const bool floating = is_floating(in.dtype), keeps = op == Rd::max || op == Rd::min;
  WEFT_CHECK(arg ? out.dtype == kInt64
                 : out.dtype == in.dtype || (floating && out.dtype == kFloat32) ||
                       (!floating && !keeps && out.dtype == kInt64),
             name, ": output has dtype ", out.dtype, " for input ", in.dtype);
  const ReduceSplit p(op, in.dtype, in.shape, in.strides, dim_mask, &out.strides);
  if (p.outputs == 0) return;
  if (p.n == 0) return reduce_nothing(op, out);
  const char* data = static_cast<const char*>(in.data);
  if (arg) return reduce_arg(op, p, data, out);
  const ReduceFns& fns = fns_of(op, p.element);
  if (p.split && workspace) return reduce_split(p, fns, data, out, static_cast<char*>(workspace));
  parallel_chunks(p.chunks, p.chunks_per_task(), [&](int64_t begin, int64_t end) {
    alignas(64) char acc[kChunk * 8];
    for (int64_t c = begin; c < end; ++c) {
      const auto at = p.chunk(c);
      all_blocks(p, fns, data + at.in, at.count, acc);
      write(p, acc, c, out);
    }
  });
}

}  // namespace weft::kernels
