#include "ops/kernels/products/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"
#include "ops/kernels/products/gemm_kernel.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {
namespace {

constexpr int64_t kBlock = 2048;            // elements of a row that are processed while in the nearest cache
constexpr int64_t kPartialBytes = 1 << 20;  // rows of dw that are computed before they are added

DType computed(DType t) { return t == kFloat64 ? kFloat64 : kFloat32; }
int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
StridedView matrix(void* data, DType t, int64_t rows, int64_t columns) {
  return {data, t, Shape{rows, columns}, Shape{columns, 1}};
}
StridedView transposed(const StridedView& v) {
  return {v.data, v.dtype, Shape{v.shape[1], v.shape[0]}, Shape{v.strides[1], v.strides[0]}};
}
void* at(const StridedView& v, int64_t row) {
  return static_cast<char*>(v.data) + row * v.strides[0] * itemsize(v.dtype);
}
StridedView rows_of(const StridedView& v, int64_t begin, int64_t count) {
  return matrix(at(v, begin), v.dtype, count, v.shape[1]);
}

int64_t partial_rows(DType acc, int64_t classes, int64_t dim) {
  return std::clamp<int64_t>(kPartialBytes / itemsize(acc) / std::max<int64_t>(dim, 1), 1,
                             std::max<int64_t>(classes, 1));
}

/// Rows of the next chunk. Products of a few rows have a different order of sums, so no part is that small.
int64_t chunk_rows(int64_t left, int64_t most) {
  return left <= most ? left : left - most <= kMostFewRows ? most / 2 : most;
}

/// The sizes of chunks that occur.
std::vector<int64_t> chunks(int64_t n, int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t count; n > 0; n -= count) {
    count = chunk_rows(n, most);
    if (sizes.empty() || sizes.back() != count) sizes.push_back(count);
  }
  return sizes;
}

/// Offsets of the pieces of the workspace, in order.
struct LossScratch {
  int64_t rows, logits, narrow, sum, partial, bias, bias_part, reduce, products, bytes;
  LossScratch(DType t, int64_t n, int64_t v, int64_t d, bool gradients) {
    const DType c = computed(t);
    const int64_t wide = itemsize(c), part = partial_rows(c, v, d);
    rows = std::clamp<int64_t>(n, 1, linear_cross_entropy_rows(v));
    int64_t top = 0;
    auto take = [&](int64_t size) {
      const int64_t here = top;
      top += aligned(size);
      return here;
    };
    logits = take(rows * v * wide);
    narrow = take(gradients && t != c ? rows * v * itemsize(t) : 0);
    sum = take(gradients && t != c ? v * d * wide : 0);
    partial = take(gradients && n > rows && c == kFloat64 ? part * d * wide : 0);
    bias = take(v * wide);
    bias_part = take(gradients ? 2 * v * wide : 0);
    reduce = take(gradients ? reduce_workspace(Rd::sum, t, Shape{rows, v}, 1) : 0);
    int64_t most = gemm_workspace(t, c, 1, rows, v, d);
    for (int64_t r : chunks(n, rows)) {
      most = std::max(most, gemm_workspace(t, c, 1, r, v, d));
      if (!gradients) continue;
      most = std::max(most, gemm_workspace(t, t, 1, r, d, v));
      for (int64_t m : {v, part, v % part})
        if (m > 0) most = std::max(most, gemm_workspace(t, c, 1, m, d, r));
    }
    products = take(most);
    bytes = top;
  }
};

struct RowFns {
  PwFn add, sub, mul, exp, log, narrow;
  ReduceFns max, sum;
  RowFns(DType c, DType t)
      : add(pointwise_contiguous_fn(Pw::add, c)),
        sub(pointwise_contiguous_fn(Pw::sub, c)),
        mul(pointwise_contiguous_fn(Pw::mul, c)),
        exp(pointwise_contiguous_fn(Pw::exp, c)),
        log(pointwise_contiguous_fn(Pw::log, c)),
        narrow(WEFT_SELECT(cast_rows)()[static_cast<int>(c)].by_dtype[static_cast<int>(t)]),
        max(WEFT_SELECT(reduce_fns)(1, c == kFloat64 ? 1 : 0)),
        sum(WEFT_SELECT(reduce_fns)(0, c == kFloat64 ? 1 : 0)) {}
};

template <class T>
class LogitRows {
 public:
  LogitRows(const LinearCrossEntropy& c, const T* bias)
      : c_(c), bias_(bias), v_(c.w.shape[0]), f_(computed(c.x.dtype), c.x.dtype) {}

  /// Computes row `row` of x: replaces its logits by their gradient, in place or in `narrow`, and writes its loss.
  void run(int64_t row, int64_t target, T* l, void* narrow) const {
    T* loss = c_.loss.as<T>() + row;
    const bool gradients = c_.gradients;
    if (target == c_.ignore_index) {
      *loss = 0;
      if (gradients) std::fill_n(l, v_, T{0});
    } else {
      *loss = scored(gradients ? c_.g.as<T>()[row] : T{0}, target, l, gradients);
    }
    if (gradients && narrow) apply(f_.narrow, l, l, narrow, v_, 0);
  }

 private:
  /// out = fn(a, b) on n elements.
  static void apply(PwFn fn, const T* a, const T* b, void* out, int64_t n, uint32_t scalars) {
    const void* in[2] = {a, b};
    fn(in, out, n, scalars);
  }

  // Does the same ops as reverse mode of cross_entropy, in the same order, for the same bits.
  T scored(T g, int64_t target, T* l, bool gradients) const {
    const T s = static_cast<T>(c_.smoothing), rest = static_cast<T>(1 - c_.smoothing), z = static_cast<T>(c_.z_loss);
    const bool smooth = c_.smoothing > 0, squared = c_.z_loss != 0;
    if (bias_) apply(f_.add, l, bias_, l, v_, 0);
    const T hit = l[target];
    T top, total, mean = 0;
    f_.max.rows(l, 0, 1, v_, &top);
    if (!std::isfinite(top)) top = 0;  // as logsumexp does
    if (smooth) {                      // the mean of top - l, which has digits where top is huge
      apply(f_.sub, l, &top, l, v_, 2);
      f_.sum.rows(l, 0, 1, v_, &mean);
      mean = -mean / static_cast<T>(v_);
    }
    for (int64_t i = 0; i < v_; i += kBlock) {
      const int64_t n = std::min(kBlock, v_ - i);
      if (!smooth) apply(f_.sub, l + i, &top, l + i, n, 2);
      apply(f_.exp, l + i, l + i, l + i, n, 0);
    }
    f_.sum.rows(l, 0, 1, v_, &total);
    T log_sum = -std::numeric_limits<T>::infinity();
    if (total != 0) apply(f_.log, &total, &total, &log_sum, 1, 0);
    const T lse = log_sum + top;
    if (gradients) {
      const T own = smooth ? g * rest : g, even = -(g * s) / static_cast<T>(v_);
      T by_lse = own;
      if (smooth) by_lse = g * s + by_lse;
      if (squared) by_lse = smooth ? (g * z * (lse * 2) + g * s) + own : g * z * (lse * 2) + own;
      const T scale = total == 0 ? T{0} : by_lse / total;
      const T at_target = (smooth ? even - own : -own) + l[target] * scale;
      for (int64_t i = 0; i < v_; i += kBlock) {
        const int64_t n = std::min(kBlock, v_ - i);
        apply(f_.mul, l + i, &scale, l + i, n, 2);
        if (smooth) apply(f_.add, l + i, &even, l + i, n, 2);
      }
      l[target] = at_target;
    }
    // Where top is huge, lse has no digits of log_sum.
    T loss = log_sum + (top - hit);
    if (smooth) loss = loss * rest + (log_sum + mean) * s;
    if (squared) loss = loss + lse * lse * z;
    return loss;
  }

  const LinearCrossEntropy& c_;
  const T* bias_;
  int64_t v_;
  RowFns f_;
};

int64_t target_at(const StridedView& t, int64_t i) {
  return t.dtype == kInt64 ? t.as<int64_t>()[i] : t.as<int32_t>()[i];
}

/// Adds a x b to sum, term after term. f64 gemm cannot continue sums: blocks of rows are added through `partial`.
template <class T>
void add_product(StridedView a, const StridedView& b, const StridedView& sum, void* partial, void* products) {
  if constexpr (sizeof(T) == 4) {
    const GemmHooks hooks{.add = true};
    gemm(a, b, sum, products, &hooks);
  } else {
    const int64_t rows = sum.shape[0], d = sum.shape[1], step = partial_rows(kFloat64, rows, d);
    for (int64_t k = 0; k < rows; k += step) {
      StridedView some = a;
      some.shape[0] = std::min(step, rows - k);
      some.data = a.as<T>() + k * a.strides[0];
      const StridedView part = matrix(partial, kFloat64, some.shape[0], d), to = rows_of(sum, k, some.shape[0]),
                        both[2] = {to, part};
      gemm(some, b, part, products);
      pointwise(Pw::add, both, to);
    }
  }
}

template <class T>
void run(const LinearCrossEntropy& c, char* workspace) {
  const DType t = c.x.dtype, wide = computed(t);
  const int64_t n = c.x.shape[0], d = c.x.shape[1], v = c.w.shape[0];
  const bool gradients = c.gradients;
  const LossScratch at_(t, n, v, d, gradients);
  void* products = workspace + at_.products;
  T* bias = nullptr;
  if (c.bias.data) {
    bias = reinterpret_cast<T*>(workspace + at_.bias);
    cast_copy(c.bias, {bias, wide, Shape{v}, Shape{1}});
  }
  const StridedView dw = t == wide ? c.dw : matrix(workspace + at_.sum, wide, v, d);
  const StridedView dbias{workspace + at_.bias_part, wide, Shape{v}, Shape{1}};
  const StridedView dbias_part{workspace + at_.bias_part + v * itemsize(wide), wide, Shape{v}, Shape{1}};
  const LogitRows<T> rows(c, bias);
  for (int64_t begin = 0, count; begin < n; begin += count) {
    count = chunk_rows(n - begin, at_.rows);
    const StridedView x = rows_of(c.x, begin, count), logits = matrix(workspace + at_.logits, wide, count, v);
    gemm(x, transposed(c.w), logits, products);
    const StridedView dl = t == wide ? logits : matrix(workspace + at_.narrow, t, count, v);
    parallel_chunks(count, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(v, 1)), [&](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r)
        rows.run(begin + r, target_at(c.targets, begin + r), static_cast<T*>(at(logits, r)),
                 t == wide ? nullptr : at(dl, r));
    });
    if (!gradients) continue;
    gemm(dl, c.w, rows_of(c.dx, begin, count), products);
    if (c.dbias.data) {
      reduce(Rd::sum, dl, 1, begin ? dbias_part : dbias, workspace + at_.reduce);
      if (begin) combine(Rd::sum, wide, dbias.data, dbias_part.data, v);
    }
    if (begin == 0) {
      gemm(transposed(dl), x, dw, products);
      continue;
    }
    add_product<T>(transposed(dl), x, dw, workspace + at_.partial, products);
  }
  if (!gradients) return;
  if (n == 0) {
    fill(c.dw, 0);
    if (c.dbias.data) fill(c.dbias, 0);
    return;
  }
  if (t != wide) cast_copy(dw, c.dw);
  if (c.dbias.data) cast_copy(dbias, c.dbias);
}

}  // namespace

int64_t linear_cross_entropy_rows(int64_t classes) {
  const int64_t fit = (int64_t{64} << 20) / 4 / std::max<int64_t>(classes, 1);
  return std::clamp<int64_t>(fit / 32 * 32, 2 * kMostFewRows + 32, 512);
}

int64_t linear_cross_entropy_workspace(DType dtype, int64_t rows, int64_t classes, int64_t dim, bool gradients) {
  return LossScratch(dtype, rows, classes, dim, gradients).bytes;
}

void linear_cross_entropy(const LinearCrossEntropy& c, void* workspace) {
  const int64_t n = c.x.shape[0], v = c.w.shape[0];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t t = target_at(c.targets, i);
    WEFT_CHECK_AS(kOutOfRange, t == c.ignore_index || (t >= 0 && t < v), "cross_entropy: a target is not a class: got ",
                  t, " at position ", i, "; need 0 to ", v - 1);
  }
  auto* scratch = static_cast<char*>(workspace);
  c.x.dtype == kFloat64 ? run<double>(c, scratch) : run<float>(c, scratch);
}

}  // namespace weft::kernels
