#include "ops/composite/softmax.h"

#include <limits>

#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state.h"
#include "ops/composite/precision.h"
#include "ops/core/reduce.h"
#include "ops/core/softmax.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;
using internal::widened;

namespace {

// The shift does not change the result, so no gradient passes through it.
Tensor row_max(const Tensor& x, int64_t dim) {
  NoGrad guard;
  return amax(x, dim, true);
}

}  // namespace

Tensor softmax(const Arg& x, int64_t dim) {
  const Tensor& t = floating_of(x, "softmax");
  const int64_t along = normalize_dim(dim, t.dim(), "softmax");
  LineScope line(x.line());
  if (t.numel() == 0) return t;
  const Tensor v = widened(t);
  return dispatch(softmax_op, {&v}, {{"dim", along}}).to(t.dtype());
}

Tensor log_softmax(const Arg& x, int64_t dim) {
  const Tensor& t = floating_of(x, "log_softmax");
  normalize_dim(dim, t.dim(), "log_softmax");
  LineScope line(x.line());
  if (t.numel() == 0) return t;
  const Tensor v = widened(t);
  const Tensor shifted = v - row_max(v, dim);
  return (shifted - log(sum(exp(shifted), dim, true))).to(t.dtype());
}

Tensor internal::softmax_or_zero(const Tensor& scores) {
  Tensor top;
  {
    NoGrad guard;
    top = amax(scores, -1, true);
    top = where(eq(top, -std::numeric_limits<double>::infinity()), 0.0, top);
  }
  const Tensor e = exp(scores - top);
  const Tensor total = sum(e, -1, true);
  return e / where(eq(total, 0.0), 1.0, total);
}

Tensor Tensor::softmax(int64_t dim, Loc loc) const { return weft::softmax({*this, loc}, dim); }

}  // namespace weft
