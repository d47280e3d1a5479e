// The public functions over the records of reduce.cc: negative dims, keepdim, means and variances.
#include <algorithm>
#include <limits>

#include "framework/base/called.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/log_sum_exp.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using internal::FirstOperand;
using internal::LineScope;
using internal::tensor_of;

namespace {

// The dims to reduce, ascending; all dims if none are given.
Shape resolve(const Shape& dims, int rank, const char* op) {
  if (dims.empty()) {
    Shape all;
    for (int i = 0; i < rank; ++i) all.push_back(i);
    return all;
  }
  Shape r;
  for (int64_t d : dims) {
    const int i = normalize_dim(d, rank, op);
    if (rank > 0) r.push_back(i);
  }
  std::sort(r.begin(), r.end());
  WEFT_CHECK(std::adjacent_find(r.begin(), r.end()) == r.end(), op, ": dims ", dims,
             " name a dim twice; need each once");
  return r;
}

int64_t count(const Shape& shape, const Shape& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= shape[static_cast<int>(d)];
  return n;
}

Tensor keep(const Tensor& y, const Shape& dims, const Shape& from, bool keepdim) {
  if (!keepdim) return y;
  Shape shape = from;
  for (int64_t d : dims) shape[static_cast<int>(d)] = 1;
  return reshape(y, shape);
}

Tensor reduce_over(const OpDef& op, const Tensor& x, const Shape& dims, bool keepdim) {
  return keep(dispatch(op, {&x}, {{"dims", dims}}), dims, x.shape(), keepdim);
}

Tensor reduce(const OpDef& op, const Arg& arg, const Shape& dims, bool keepdim, const char* name) {
  const FirstOperand x(arg, name);
  return reduce_over(op, x, resolve(dims, x.dim(), name), keepdim);
}

Tensor best(const OpDef& op, const Arg& arg, const Shape& dims, bool keepdim, const char* name) {
  const FirstOperand x(arg, name);
  const Shape over = resolve(dims, x.dim(), name);
  WEFT_CHECK(count(x.shape(), over) > 0, name, ": dims ", over, " of ", x.shape(),
             " have no elements; need one or more");
  return reduce_over(op, x, over, keepdim);
}

Tensor place(const OpDef& op, const Arg& arg, int64_t dim, bool keepdim) {
  const FirstOperand x(arg, op.name);
  const int d = normalize_dim(dim, x.dim(), op.name);
  if (x.dim() == 0) return constant(int64_t{0}, kInt64, x.device());
  return keep(dispatch(op, {&x}, {{"dim", int64_t{d}}}), {d}, x.shape(), keepdim);
}

// The mean before rounding to x's dtype: f32 for 16-bit floats.
Tensor wide_mean(const Tensor& x, const Shape& dims, bool keepdim) {
  Attrs attrs{{"dims", dims}};
  if (is_16bit(x.dtype())) attrs = attrs.with("out_dtype", kFloat32);
  const Tensor y = div(dispatch(reduce_sum_op, {&x}, attrs), static_cast<double>(count(x.shape(), dims)));
  return keep(y, dims, x.shape(), keepdim);
}

void need_float(const Tensor& x, const char* op) {
  WEFT_CHECK(is_floating(x.dtype()), op, ": got ", x.dtype(), "; need a floating-point dtype: convert with to(f32)");
}

Tensor wide_var(const Tensor& x, const Shape& dims, double correction, bool keepdim) {
  const Tensor w = is_16bit(x.dtype()) ? cast(x, kFloat32) : x;
  const Tensor squares = reduce_over(reduce_sum_op, square(sub(w, wide_mean(w, dims, true))), dims, false);
  const double n = std::max(static_cast<double>(count(x.shape(), dims)) - correction, 0.0);
  return keep(div(squares, n), dims, x.shape(), keepdim);
}

}  // namespace

Tensor sum(const Arg& x, const Dims& dims, bool keepdim) { return reduce(reduce_sum_op, x, dims, keepdim, "sum"); }
Tensor prod(const Arg& x, const Dims& dims, bool keepdim) { return reduce(reduce_prod_op, x, dims, keepdim, "prod"); }
Tensor amax(const Arg& x, const Dims& dims, bool keepdim) { return best(reduce_max_op, x, dims, keepdim, "amax"); }
Tensor amin(const Arg& x, const Dims& dims, bool keepdim) { return best(reduce_min_op, x, dims, keepdim, "amin"); }

Tensor mean(const Arg& arg, const Dims& dims, bool keepdim) {
  const FirstOperand x(arg, "mean");
  need_float(x, "mean");
  return cast(wide_mean(x, resolve(dims, x.dim(), "mean"), keepdim), x.dtype());
}

Tensor var(const Arg& arg, const Dims& dims, double correction, bool keepdim) {
  const FirstOperand x(arg, "var");
  need_float(x, "var");
  return cast(wide_var(x, resolve(dims, x.dim(), "var"), correction, keepdim), x.dtype());
}

Tensor std(const Arg& x, const Dims& dims, double correction, bool keepdim) {
  return std_of(x, dims, correction, keepdim);
}

Tensor std_of(const Arg& arg, const Dims& dims, double correction, bool keepdim) {
  const FirstOperand x(arg, "std");
  need_float(x, "std");
  // The gradient of equal elements is 0, as in PyTorch, where the gradient of sqrt is infinite.
  const Tensor v = wide_var(x, resolve(dims, x.dim(), "std"), correction, keepdim), none = eq(v, 0);
  return cast(where(none, 0, sqrt(where(none, 1, v))), x.dtype());
}

Tensor logsumexp(const Arg& arg, const Dims& dims, bool keepdim) {
  const FirstOperand given(arg, "logsumexp");
  need_float(given, "logsumexp");
  const Tensor x = internal::autocast_f32(given);
  const internal::LogSumExp parts = internal::log_sum_exp(x, dims, keepdim);
  return cast(add(parts.log_sum, parts.shift), x.dtype());
}

internal::LogSumExp internal::log_sum_exp(const Tensor& given, const Dims& dims, bool keepdim) {
  const Shape over = resolve(dims, given.dim(), "logsumexp");
  const Tensor x = is_16bit(given.dtype()) ? cast(given, kFloat32) : given;
  // Any finite shift gives the same value and derivative, so no gradient flows through it.
  WEFT_CHECK(count(x.shape(), over) > 0, "logsumexp: dims ", over, " of ", x.shape(),
             " have no elements; need one or more");
  Tensor shift = reduce_over(reduce_max_op, x, over, true).detach();
  shift = where(isfinite(shift), shift, 0.0);
  // All elements are -inf: the logarithm of 0, without the infinite derivative, which would give 0 * inf.
  const Tensor total = reduce_over(reduce_sum_op, exp(sub(x, shift)), over, true);
  const Tensor none = eq(total, 0.0);
  Tensor log_sum = where(none, -std::numeric_limits<double>::infinity(), log(where(none, 1.0, total)));
  if (!keepdim) {
    Shape kept;
    for (int d = 0; d < x.dim(); ++d)
      if (std::find(over.begin(), over.end(), d) == over.end()) kept.push_back(x.shape()[d]);
    shift = reshape(shift, kept), log_sum = reshape(log_sum, kept);
  }
  return {shift, log_sum};
}

Tensor argmax(const Arg& x, int64_t dim, bool keepdim) { return place(argmax_op, x, dim, keepdim); }
Tensor argmin(const Arg& x, int64_t dim, bool keepdim) { return place(argmin_op, x, dim, keepdim); }
Tensor argmax(const Arg& x) {
  LineScope here(x.line());
  return place(argmax_op, flatten(x), 0, false);
}
Tensor argmin(const Arg& x) {
  LineScope here(x.line());
  return place(argmin_op, flatten(x), 0, false);
}

Tensor cumsum(const Arg& arg, int64_t dim, bool reverse) {
  FirstOperand x(arg, "cumsum");
  const int d = normalize_dim(dim, x.dim(), "cumsum");
  if (x.dim() == 0) return is_floating(x.dtype()) ? x : cast(x, kInt64);
  return dispatch(cumsum_op, {&x}, {{"dim", int64_t{d}}, {"reverse", reverse}}, arg.line());
}

Tensor any(const Arg& arg, const Dims& dims, bool keepdim) {
  const internal::Called name("any");
  LineScope here(arg.line());
  return gt(sum(ne(tensor_of(arg, "any"), 0), dims, keepdim), 0);
}
Tensor all(const Arg& arg, const Dims& dims, bool keepdim) {
  const internal::Called name("all");
  LineScope here(arg.line());
  return eq(sum(eq(tensor_of(arg, "all"), 0), dims, keepdim), 0);
}

}  // namespace weft
