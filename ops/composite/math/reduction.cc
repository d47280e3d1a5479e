#include "ops/composite/math/reduction.h"

#include <cmath>

#include "framework/base/called.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"

namespace weft {

using namespace internal;

namespace {

const Tensor& some_of(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(t.numel() > 0, op, ": x is ", t.type(), "; need one element or more");
  return t;
}

// The values at `index`, which find computes along a dim that it keeps; the gradient goes to them alone.
template <class F>
ValuesIndices picked(const Arg& x, int64_t dim, bool keepdim, const char* op, const F& find) {
  const FirstOperand t(x, op);
  const int d = normalize_dim(dim, t.dim(), op);
  if (t.dim() == 0) return {t, zeros({}, {.dtype = kInt64, .device = t.device()})};
  WEFT_CHECK(t.shape()[d] > 0, op, ": dim ", d, " of ", t.shape(), " is empty; need one element or more");
  const Tensor at = find(t, d), values = gather(t, d, at);
  if (keepdim) return {values, at};
  return {squeeze(values, d), squeeze(at, d)};
}

}  // namespace

ValuesIndices internal::max_along(const Arg& x, int64_t dim, bool keepdim) {
  return picked(x, dim, keepdim, "max", [](const Tensor& t, int d) { return argmax(t, d, true); });
}
ValuesIndices internal::min_along(const Arg& x, int64_t dim, bool keepdim) {
  return picked(x, dim, keepdim, "min", [](const Tensor& t, int d) { return argmin(t, d, true); });
}

Tensor max(const Arg& x) {
  LineScope line(x.line());
  return amax(some_of(x, "max"));
}
Tensor min(const Arg& x) {
  LineScope line(x.line());
  return amin(some_of(x, "min"));
}
Tensor max(const Arg& a, const Arg& b) {
  const Called name("max");
  return maximum(a, b);
}
Tensor min(const Arg& a, const Arg& b) {
  const Called name("min");
  return minimum(a, b);
}
Tensor max(const Tensor& a, const Tensor& b, std::source_location loc) { return max(Arg(a, loc), Arg(b, loc)); }
Tensor min(const Tensor& a, const Tensor& b, std::source_location loc) { return min(Arg(a, loc), Arg(b, loc)); }

MinMax aminmax(const Arg& x) {
  LineScope line(x.line());
  const Tensor& t = some_of(x, "aminmax");
  return {amin(t), amax(t)};
}
MinMax aminmax(const Arg& x, int64_t dim, bool keepdim) {
  const FirstOperand t(x, "aminmax");
  const int d = normalize_dim(dim, t.dim(), "aminmax");
  WEFT_CHECK(t.dim() == 0 || t.shape()[d] > 0, "aminmax: dim ", d, " of ", t.shape(),
             " is empty; need one element or more");
  return {amin(t, d, keepdim), amax(t, d, keepdim)};
}

Tensor count_nonzero(const Arg& x, const Dims& dims) {
  const Called name("count_nonzero");
  LineScope line(x.line());
  return sum(ne(tensor_of(x, "count_nonzero"), 0), dims);
}

Tensor nansum(const Arg& x, const Dims& dims, bool keepdim) {
  const Called name("nansum");
  FirstOperand t(x, "nansum");
  return sum(is_floating(t.dtype()) ? where(isnan(t), 0.0, t) : t, dims, keepdim);
}

Tensor nanmean(const Arg& x, const Dims& dims, bool keepdim) {
  const FloatingOperand t(x, "nanmean");
  const Tensor v = widened(t), none = isnan(v);
  return (sum(where(none, 0.0, v), dims, keepdim) / sum(logical_not(none), dims, keepdim).to(v.dtype())).to(t.dtype());
}

StdMean std_mean(const Arg& x, const Dims& dims, double correction, bool keepdim) {
  const FloatingOperand t(x, "std_mean");
  return {weft::std(t, dims, correction, keepdim), mean(t, dims, keepdim)};
}

VarMean var_mean(const Arg& x, const Dims& dims, double correction, bool keepdim) {
  const FloatingOperand t(x, "var_mean");
  return {var(t, dims, correction, keepdim), mean(t, dims, keepdim)};
}

Tensor isclose(const Arg& x, const Arg& y, double rtol, double atol, bool equal_nan) {
  LineScope line(x.line());
  WEFT_CHECK(rtol >= 0 && atol >= 0, "isclose: rtol is ", rtol, " and atol ", atol, "; need 0 or more");
  const OperandPair p = common(x, y, "isclose");
  Tensor close = eq(p.a, p.b);
  if (!is_floating(p.a.dtype()) && rtol == 0 && atol == 0) return close;
  const auto wide = [](const Tensor& t) { return is_floating(t.dtype()) ? widened(t) : t.to(kFloat64); };
  const Tensor a = wide(p.a), b = wide(p.b), apart = abs(a - b);
  close = close | (isfinite(apart) & le(apart, abs(b) * rtol + atol));
  return equal_nan ? close | (isnan(a) & isnan(b)) : close;
}

static bool truth(const Tensor& t, const char* op, std::source_location loc) {
  require_concrete(t, op, loc);
  return t.item<bool>(loc);
}

bool allclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan, std::source_location loc) {
  LineScope line(loc);
  return truth(all(isclose(a, b, rtol, atol, equal_nan)), "allclose", loc);
}

bool equal(const Arg& a, const Arg& b) {
  LineScope line(a.loc());
  const Tensor &ta = tensor_of(a, "equal"), &tb = tensor_of(b, "equal");
  return ta.shape() == tb.shape() && truth(all(eq(ta, tb)), "equal", a.loc());
}

}  // namespace weft
