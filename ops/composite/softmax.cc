#include "ops/composite/softmax.h"

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
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "softmax");
  const int64_t along = normalize_dim(dim, t.dim(), "softmax");
  if (t.numel() == 0) return t;
  const Tensor v = widened(t);
  return dispatch(softmax_op, {&v}, {{"dim", along}}).to(t.dtype());
}

Tensor log_softmax(const Arg& x, int64_t dim) {
  LineScope line(x.line());
  const Tensor& t = floating_of(x, "log_softmax");
  normalize_dim(dim, t.dim(), "log_softmax");
  if (t.numel() == 0) return t;
  const Tensor v = widened(t);
  const Tensor shifted = v - row_max(v, dim);
  return (shifted - log(sum(exp(shifted), dim, true))).to(t.dtype());
}

Tensor Tensor::softmax(int64_t dim, Loc loc) const { return weft::softmax({*this, loc}, dim); }

}  // namespace weft
