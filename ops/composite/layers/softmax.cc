#include "ops/composite/layers/softmax.h"

#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/state.h"
#include "ops/composite/precision.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/along.h"
#include "ops/core/reductions/reduce.h"
#include "ops/core/reductions/softmax.h"

namespace weft {

using namespace internal;

// The shift does not change the result, so no gradient passes through it.
static Tensor row_max(const Tensor& x, int64_t dim) {
  NoGrad guard;
  return amax(x, dim, true);
}

Tensor softmax(const Arg& x, int64_t dim) {
  const F32Operand t(x, "softmax");
  const Along a(t, dim, "softmax");
  if (t.numel() == 0) return t;
  const Tensor v = widened(a.x);
  return a.result(dispatch(softmax_op, {&v}, {{"dim", int64_t{a.dim}}}).to(t.dtype()));
}

Tensor log_softmax(const Arg& x, int64_t dim) {
  const F32Operand t(x, "log_softmax");
  normalize_dim(dim, t.dim(), "log_softmax");
  if (t.numel() == 0) return t;
  const Tensor v = widened(t);
  const Tensor shifted = v - row_max(v, dim);
  return (shifted - log(sum(exp(shifted), dim, true))).to(t.dtype());
}

Tensor softmin(const Arg& x, int64_t dim) {
  LineScope line(x.line());
  return softmax(-floating_of(x, "softmin"), dim);
}

// The result has this dtype under Autocast, too.
Tensor softmax(const Arg& x, int64_t dim, DType dtype) {
  const FirstOperand t(x, "softmax");
  return softmax(t.to(dtype), dim).to(dtype);
}
Tensor log_softmax(const Arg& x, int64_t dim, DType dtype) {
  const FirstOperand t(x, "log_softmax");
  return log_softmax(t.to(dtype), dim).to(dtype);
}

static int64_t implicit_dim(const Arg& x, const char* op) {
  const int n = floating_of(x, op).dim();
  return n > 1 && n != 3 ? 1 : 0;
}
Tensor softmax(const Arg& x) {
  LineScope line(x.line());
  return softmax(x, implicit_dim(x, "softmax"));
}
Tensor log_softmax(const Arg& x) {
  LineScope line(x.line());
  return log_softmax(x, implicit_dim(x, "log_softmax"));
}
Tensor softmin(const Arg& x) {
  LineScope line(x.line());
  return softmin(x, implicit_dim(x, "softmin"));
}

Tensor gumbel_softmax(const Arg& logits, double tau, bool hard, int64_t dim) {
  const FloatingOperand t(logits, "gumbel_softmax");
  WEFT_CHECK(tau > 0, "gumbel_softmax: tau is ", tau, "; need a positive number");
  const int64_t along = normalize_dim(dim, t.dim(), "gumbel_softmax");
  if (t.numel() == 0) return t;
  const Tensor v = widened(t);
  // u is in [0, 1), so -log(u) is not 0, and u = 0 gives a class that is not drawn.
  const Tensor u = rand(t.shape(), {.dtype = v.dtype(), .device = t.device()});
  const Tensor y = softmax((v - log(-log(u))) / tau, along);
  if (!hard || t.dim() == 0) return y.to(t.dtype());
  const Shape shape = Shape::filled(t.dim(), 1);
  Shape classes = shape;
  classes[static_cast<int>(along)] = t.size(along);
  const Tensor drawn =
      eq(argmax(y, along, true), reshape(arange(t.size(along), {.dtype = kInt64, .device = t.device()}), classes));
  const Tensor soft = y.detach();
  return (where(drawn, 1.0 - soft, -soft) + y).to(t.dtype());
}

}  // namespace weft
