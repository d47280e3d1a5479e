#include "ops/composite/math/cumulative.h"

#include <limits>

#include "framework/dispatch/state/state.h"
#include "ops/composite/math/special.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"

namespace weft {

using namespace internal;

namespace {

// x moved `by` positions up along d; `fill` enters.
Tensor moved(const Tensor& x, int d, int64_t by, double fill) {
  std::vector<int64_t> pads(2 * static_cast<size_t>(x.dim() - d), 0);
  pads[pads.size() - 2] = by;
  pads[pads.size() - 1] = -by;
  return pad(x, pads, fill);
}

// The running result of an associative function with this identity: each step doubles the number of elements that it
// joins (Hillis and Steele 1986), so errors grow as log2(n), and each step is differentiable.
template <class F>
Tensor running(Tensor x, int d, double identity, const F& join) {
  for (int64_t by = 1; by < x.shape()[d]; by *= 2) x = join(moved(x, d, by, identity), x);
  return x;
}

// `wins(a, b)`: a later value b replaces the earlier a.
template <class F>
ValuesIndices running_best(const Arg& arg, int64_t dim, const char* op, const F& wins) {
  FirstOperand x(arg, op);
  const int d = normalize_dim(dim, x.dim(), op);
  if (x.dim() == 0) return {x, zeros({}, {.dtype = kInt64, .device = x.device()})};
  Shape along = Shape::filled(x.dim(), 1);
  along[d] = x.shape()[d];
  Tensor at = broadcast_to(reshape(arange(x.shape()[d], {.dtype = kInt64, .device = x.device()}), along), x.shape());
  {
    NoGrad guard;
    Tensor v = x.dtype() == kBool ? x.to(kUInt8) : x;
    for (int64_t by = 1; by < x.shape()[d]; by *= 2) {
      const Tensor earlier = moved(v, d, by, 0), place = moved(at, d, by, -1);
      const Tensor keep = lt(place, 0) | isnan(v) | wins(earlier, v);
      v = where(keep, v, earlier);
      at = where(keep, at, place);
    }
  }
  return {gather(x, d, at), at};
}

}  // namespace

Tensor cumprod(const Arg& arg, int64_t dim) {
  const FirstOperand given(arg, "cumprod");
  const Tensor x = autocast_f32(given);
  const int d = normalize_dim(dim, x.dim(), "cumprod");
  const Tensor v = is_floating(x.dtype()) ? widened(x) : x.to(kInt64);
  const Tensor y = x.dim() == 0 ? v : running(v, d, 1, [](const Tensor& a, const Tensor& b) { return a * b; });
  return is_floating(x.dtype()) ? y.to(x.dtype()) : y;
}

Tensor logcumsumexp(const Arg& arg, int64_t dim) {
  const FloatingOperand x(arg, "logcumsumexp");
  const int d = normalize_dim(dim, x.dim(), "logcumsumexp");
  if (x.dim() == 0) return x;
  const double none = -std::numeric_limits<double>::infinity();
  return running(widened(x), d, none, [](const Tensor& a, const Tensor& b) { return logaddexp(a, b); }).to(x.dtype());
}

ValuesIndices cummax(const Arg& x, int64_t dim) {
  return running_best(x, dim, "cummax", [](const Tensor& a, const Tensor& b) { return ge(b, a); });
}
ValuesIndices cummin(const Arg& x, int64_t dim) {
  return running_best(x, dim, "cummin", [](const Tensor& a, const Tensor& b) { return le(b, a); });
}

Tensor diff(const Arg& arg, int64_t n, int64_t dim, const Arg& prepend, const Arg& append) {
  LineScope line(arg.line());
  Tensor x = tensor_of(arg, "diff");
  WEFT_CHECK(x.dim() > 0, "diff: got a scalar; need a dim");
  WEFT_CHECK(n >= 0, "diff: n is ", n, "; need 0 or more");
  const int d = normalize_dim(dim, x.dim(), "diff");
  if (n == 0) return x;  // as in PyTorch and NumPy: without the joined tensors
  const auto given = [](const Arg& a) { return a.is_tensor() && a.tensor().defined(); };
  if (given(prepend)) x = cat({prepend.tensor(), x}, d);
  if (given(append)) x = cat({x, append.tensor()}, d);
  const DType dtype = x.dtype();
  x = widened(x);
  for (; n > 0 && x.shape()[d] > 0; --n) {
    const Tensor later = slice(x, d, 1, x.shape()[d]), earlier = slice(x, d, 0, x.shape()[d] - 1);
    x = dtype == kBool ? ne(later, earlier) : later - earlier;
  }
  return x.to(dtype);
}

}  // namespace weft
