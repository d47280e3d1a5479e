#include "ops/composite/math/statistics.h"

#include <cmath>
#include <limits>

#include "framework/base/called.h"
#include "framework/base/saturate.h"
#include "ops/composite/layers/activation.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/along.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

struct SortedLine {
  Sorted sorted;
  int dim;
  int64_t n;
  bool scalar;  // x has no dims: it is computed with one
};

SortedLine sorted_line(const Tensor& given, int64_t dim, const char* op) {
  const Called name(op);
  const Along a(given, dim, op);
  WEFT_CHECK(a.x.shape()[a.dim] > 0, op, ": dim ", a.dim, " of ", given.shape(), " has no elements; need one or more");
  return {sort(a.x, a.dim), a.dim, a.x.shape()[a.dim], a.scalar};
}

// The elements of a sorted line at these positions, which have extent 1 in its dim.
ValuesIndices at(const SortedLine& line, const Tensor& position, bool keepdim) {
  ValuesIndices r{gather(line.sorted.values, line.dim, position), gather(line.sorted.indices, line.dim, position)};
  if (line.scalar || !keepdim) r = {squeeze(r.values, line.dim), squeeze(r.indices, line.dim)};
  return r;
}

Tensor position(const SortedLine& line, int64_t p) {
  Shape shape = line.sorted.values.shape();
  shape[line.dim] = 1;
  return full(shape, p, {.dtype = kInt64, .device = line.sorted.values.device()});
}

// NaNs are the last of the sorted elements.
Tensor count_nan(const SortedLine& line) {
  return sum(cast(isnan(line.sorted.values.detach()), kInt64), line.dim, true);
}

ValuesIndices middle(const Arg& arg, int64_t dim, bool keepdim, bool skip_nan, const char* op) {
  LineScope here(arg.line());
  const SortedLine line = sorted_line(tensor_of(arg, op), dim, op);
  if (!is_floating(line.sorted.values.dtype())) return at(line, position(line, (line.n - 1) / 2), keepdim);
  const Tensor nans = count_nan(line);
  const Tensor p =
      skip_nan ? maximum(shift_right(line.n - 1 - nans, 1), 0) : where(nans > 0, line.n - nans, (line.n - 1) / 2);
  return at(line, p, keepdim);
}

}  // namespace

ValuesIndices median(const Arg& x, int64_t dim, bool keepdim) { return middle(x, dim, keepdim, false, "median"); }
ValuesIndices nanmedian(const Arg& x, int64_t dim, bool keepdim) { return middle(x, dim, keepdim, true, "nanmedian"); }
Tensor median(const Arg& x) {
  LineScope here(x.line());
  return middle(flatten(x), 0, false, false, "median").values;
}
Tensor nanmedian(const Arg& x) {
  LineScope here(x.line());
  return middle(flatten(x), 0, false, true, "nanmedian").values;
}

ValuesIndices kthvalue(const Arg& arg, int64_t k, int64_t dim, bool keepdim) {
  LineScope here(arg.line());
  const SortedLine line = sorted_line(tensor_of(arg, "kthvalue"), dim, "kthvalue");
  WEFT_CHECK(k >= 1 && k <= line.n, "kthvalue: k is ", k, " of dim ", line.dim, " of ", line.sorted.values.shape(),
             "; need 1 to ", line.n);
  return at(line, position(line, k - 1), keepdim);
}

ValuesIndices mode(const Arg& arg, int64_t dim, bool keepdim) {
  LineScope here(arg.line());
  const SortedLine line = sorted_line(tensor_of(arg, "mode"), dim, "mode");
  const Tensor v = line.sorted.values.detach();
  const int d = line.dim;
  const Tensor changes = slice(v, d, 1, line.n) != slice(v, d, 0, line.n - 1);
  const Tensor run = pad(movedim(cumsum(cast(changes, kInt64), d), d, -1), {1, 0});  // 0 for the first element
  const Tensor lengths = scatter_add(zeros_like(run), -1, run, ones_like(run));
  const Tensor best = argmax(lengths, -1, true);
  // The last element of that run.
  const Tensor end = gather(cumsum(lengths, -1), -1, best) - 1;
  return at(line, movedim(end, -1, d), keepdim);
}

Tensor msort(const Arg& arg) {
  LineScope here(arg.line());
  const Called name("msort");
  return sort(arg, 0).values;
}

Tensor quantile(const Arg& arg, const Arg& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  FloatingOperand x(arg, "quantile");
  const std::string_view how = interpolation;
  WEFT_CHECK(how == "linear" || how == "lower" || how == "higher" || how == "midpoint" || how == "nearest",
             "quantile: interpolation is '", how,
             "'; need \"linear\", \"lower\", \"higher\", \"midpoint\" or \"nearest\"");
  if (!q.is_tensor())
    WEFT_CHECK(q.number() >= 0 && q.number() <= 1, "quantile: q is ", q.number(), "; need a number from 0 to 1");
  const Tensor part =
      q.is_tensor() ? floating_of(q, "quantile") : full({}, q, {.dtype = kFloat64, .device = x.device()});
  WEFT_CHECK(part.dim() <= 1, "quantile: q is ", part.type(), "; need a number or one dim");
  const SortedLine line = sorted_line(dim ? x : flatten(x), dim.value_or(0), "quantile");
  const Tensor v = widened(movedim(line.sorted.values, line.dim, -1));  // [..., n]
  const Tensor place = reshape(cast(part, kFloat64), {-1}) * static_cast<double>(line.n - 1);
  // No position for a q outside [0, 1].
  const Tensor q_line = reshape(part, {-1}), inside = (q_line >= 0.0) & (q_line <= 1.0);
  auto element = [&](const Tensor& p) {  // [..., quantiles]
    return look_up(index_select_op, v, -1, where(inside, cast(p, kInt64), -1),
                   "quantile: a q is not in [0, 1]; need numbers from 0 to 1");
  };
  Tensor y;
  if (how == "lower") {
    y = element(floor(place));
  } else if (how == "higher") {
    y = element(ceil(place));
  } else if (how == "nearest") {
    y = element(round(place));
  } else {
    const Tensor low = element(floor(place)), high = element(ceil(place));
    const Tensor weight = how == "midpoint" ? cast(where(ceil(place) > place, 0.5, zeros_like(place)), v.dtype())
                                            : cast(place - floor(place), v.dtype());
    const Tensor same = (low == high) & !isfinite(low);  // inf - inf is NaN
    y = where(same, low, low + weight * (where(same, 0.0, high) - where(same, 0.0, low)));
  }
  const Tensor last = slice(v, -1, line.n - 1, line.n);
  y = movedim(cast(where(isnan(last), last, y), x.dtype()), -1, 0);  // [quantiles, ...]
  if (keepdim && x.dim() > 0) {
    Shape to{part.numel()};
    for (int d = 0; d < x.dim(); ++d) to.push_back(dim && d != line.dim ? x.shape()[d] : 1);
    y = reshape(y, to);
  }
  return part.dim() == 0 ? squeeze(y, 0) : y;
}

Tensor histc(const Arg& arg, int64_t bins, double min, double max) {
  const FloatingOperand x(arg, "histc");
  WEFT_CHECK(bins > 0, "histc: ", bins, " bins; need 1 or more");
  checked_numel({saturating_add(bins, 1)}, "histc");
  WEFT_CHECK(std::isfinite(max - min) && min <= max, "histc: range ", min, " to ", max,
             "; need finite numbers, the smaller first");
  const TensorOptions wide{.dtype = kFloat64, .device = x.device()};
  const Tensor v = cast(flatten(x).detach(), kFloat64);
  Tensor low = full({}, min, wide), high = full({}, max, wide);
  if (min == max && x.numel() > 0) {
    low = amin(v), high = amax(v);
    if (!low.is_traced() && x.device().type != DeviceType::kMeta)
      WEFT_CHECK(std::isfinite(high.item<double>() - low.item<double>()), "histc: x has values from ",
                 low.item<double>(), " to ", high.item<double>(), "; need finite ones, or a range");
    // In a compiled function they are found when it runs: 1 is no position, otherwise 0 is added.
    if (low.is_traced()) {
      const Tensor bad = reshape(where(isfinite(high - low), 0, 1), {1});
      const Tensor zero = look_up(index_select_op, arange(1, {.dtype = kInt64, .device = x.device()}), 0, bad,
                                  "histc: x has values that are not finite; need finite ones, or a range");
      low = low + cast(reshape(zero, {}), kFloat64);
    }
  }
  const Tensor point = low == high;  // a range around the one value
  const Tensor from = where(point, low - 1.0, low), to = where(point, high + 1.0, high);
  const Tensor inside = (v >= from) & (v <= to);
  const Tensor place = (where(inside, v, from) - from) / (to - from) * static_cast<double>(bins);
  const Tensor bin = where(inside, minimum(cast(where(isfinite(place), place, 0.0), kInt64), bins - 1), bins);
  return cast(slice(histogram(bin, bins + 1), 0, 0, bins), x.dtype());
}

Tensor cov(const Arg& arg, const CovOptions& options) {
  FloatingOperand given(arg, "cov");
  WEFT_CHECK(given.dim() <= 2, "cov: got ", given.type(), "; need [variables, observations]");
  const Tensor x = widened(given.dim() == 2 ? given : reshape(given, {1, given.numel()}));
  const int64_t n = x.size(1);
  Tensor w;
  for (const Tensor* part : {&options.fweights, &options.aweights}) {
    if (!part->defined()) continue;
    WEFT_CHECK(part->shape() == Shape{n} && (part == &options.aweights || is_integral(part->dtype())),
               "cov: ", part == &options.aweights ? "aweights" : "fweights", " are ", part->type(), "; need ",
               part == &options.aweights ? "numbers" : "integers", " of shape [", n, "]");
    if (n > 0 && !thread_state.capture && part->device().type == DeviceType::kCpu) {
      NoGrad guard;
      const double least = amin(*part).item<double>();
      WEFT_CHECK(least >= 0, "cov: one of ", part == &options.aweights ? "aweights" : "fweights", " is ", least,
                 "; need 0 or more");
    }
    const Tensor own = cast(*part, dtype_with(*part, x, "cov"));
    w = w.defined() ? w * own : own;
  }
  const Autocast off(std::nullopt);
  Tensor centred, products, norm;
  if (!w.defined()) {
    centred = x - sum(x, 1, true) / static_cast<double>(n);
    products = matmul(centred, centred.t());
    norm = full({}, static_cast<double>(n) - options.correction, {.dtype = x.dtype(), .device = x.device()});
  } else {
    const Tensor total = sum(w);
    centred = x - sum(x * w, 1, true) / total;
    products = matmul(centred * w, centred.t());
    norm = !options.aweights.defined() ? total - options.correction
           : options.correction == 0   ? total
                                     : total - sum(w * cast(options.aweights, x.dtype())) * options.correction / total;
  }
  const Tensor y = cast(products / maximum(norm, 0.0), given.dtype());
  return x.size(0) == 1 ? reshape(y, {}) : y;
}

Tensor corrcoef(const Arg& arg) {
  const FloatingOperand x(arg, "corrcoef");
  WEFT_CHECK(x.dim() <= 2, "corrcoef: got ", x.type(), "; need [variables, observations]");
  const Tensor c = cov(widened(x));
  if (c.dim() == 0) return cast(c / c, x.dtype());
  const int64_t n = c.size(0);
  const Tensor diagonal = arange(n, {.dtype = kInt64, .device = c.device()}) * (n + 1);
  const Tensor scale = sqrt(index_select(flatten(c), 0, diagonal));
  return cast(clamp(c / unsqueeze(scale, 1) / unsqueeze(scale, 0), -1.0, 1.0), x.dtype());
}

}  // namespace weft
