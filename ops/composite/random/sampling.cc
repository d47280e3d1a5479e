#include "ops/composite/random/sampling.h"

#include "ops/composite/precision.h"
#include "ops/composite/search.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using internal::FloatingOperand;
using internal::LineScope;

// Exponential numbers in f64 of at least 2^-54, because a divisor must not be 0.
static Tensor exponentials(const Shape& shape, Device device) {
  return maximum(-log1p(-rand(shape, {.dtype = kFloat64, .device = device})), 0x1p-54);
}

// Keys of 53 random bits: equal keys, which would keep their order, are too rare to matter.
Tensor randperm(int64_t n, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(n >= 0, "randperm: n is ", n, "; need 0 or more");
  const int64_t most = internal::whole_numbers(options.dtype).second;
  WEFT_CHECK(n - 1 <= most, "randperm: ", options.dtype, " does not have all integers from 0 to ", n - 1,
             "; need at most ", most, ", or another dtype");
  const Tensor order = argsort(rand({n}, {.dtype = kFloat64, .device = options.device}));
  const Tensor y = cast(order, options.dtype);
  return options.requires_grad ? y.requires_grad() : y;
}

Tensor exponential(const Shape& shape, double rate, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(rate > 0, "exponential: rate is ", rate, "; need a positive number");
  WEFT_CHECK(is_floating(options.dtype), "exponential: dtype is ", options.dtype, "; need a floating-point dtype");
  checked_numel(shape, "exponential");
  const Tensor y = cast(exponentials(shape, options.device) / rate, options.dtype);
  return options.requires_grad ? y.requires_grad() : y;
}

Tensor multinomial(const Arg& weights, int64_t samples, bool replacement) {
  const FloatingOperand w(weights, "multinomial");
  WEFT_CHECK(w.dim() == 1 || w.dim() == 2, "multinomial: weights are ", w.type(), "; need one or two dims");
  const int64_t n = w.size(-1);
  WEFT_CHECK(n > 0, "multinomial: weights are ", w.type(), "; need one category or more");
  WEFT_CHECK(samples >= 0 && (replacement || samples <= n), "multinomial: ", samples, " samples of ", n,
             " categories; need ", replacement ? "0 or more" : str_cat("0 to ", n, " without replacement"));
  const Tensor p = cast(w.detach(), kFloat64);
  const Tensor usable = sum(cast(p > 0.0, kInt64), -1, true) >= (replacement ? 1 : std::max<int64_t>(samples, 1));
  const Tensor valid = all((p >= 0.0) & isfinite(p), -1, true) & usable;
  const std::string wrong = str_cat("multinomial: a weight is negative or not finite, or fewer than ",
                                    replacement ? 1 : samples, " of a row are positive; need that many");
  if (!valid.is_traced() && valid.device().type != DeviceType::kMeta) WEFT_CHECK(all(valid).item<bool>(), wrong);
  Tensor picked;
  if (replacement) {
    // The category whose interval of the running sum contains the point. The factor keeps points below the total.
    const Tensor ends = cumsum(p, -1);
    Shape shape = w.shape();
    shape.back() = samples;
    const Tensor points = rand(shape, {.dtype = kFloat64, .device = w.device()}) * (1 - 0x1p-50);
    picked = searchsorted(ends, points * slice(ends, -1, n - 1, n), {.right = true});
  } else {
    // The order of weight / exponential is the order of successive draws (Efraimidis and Spirakis 2006).
    picked = topk(p / exponentials(w.shape(), w.device()), samples).indices;
  }
  // A compiled function finds wrong weights when it runs: n is no category.
  const Tensor categories = arange(n, {.dtype = kInt64, .device = w.device()});
  return reshape(internal::look_up(index_select_op, categories, 0, flatten(where(valid, picked, n)), wrong),
                 picked.shape());
}

}  // namespace weft
