#include "models/optim/optimizers/adafactor.h"

#include <limits>

#include "models/optim/moments.h"
#include "models/optim/optimizer_with.h"
#include "ops/composite/layers/activation.h"
#include "ops/core/reductions/reduce.h"

namespace weft::optim {

using internal::check_not_negative;

namespace {

Tensor root_mean_square(const Tensor& x) { return sqrt(mean(square(x))); }

// a + weight (b - a), for a weight that the step computes.
Tensor moved(const Tensor& a, const Tensor& b, const Tensor& weight) { return a + (b - a) * weight.to(a.dtype()); }

}  // namespace

template <>
Optimizer::StateOf Adafactor::checked_state(const AdafactorOptions& o) {
  WEFT_CHECK(o.beta2_decay <= 0, "Adafactor: beta2_decay is ", o.beta2_decay, "; need a number <= 0");
  WEFT_CHECK(o.d >= 1, "Adafactor: d is ", o.d, "; need a number >= 1");
  if (o.eps1) check_not_negative(*o.eps1, "eps1", "Adafactor");
  check_not_negative(o.eps2, "eps2", "Adafactor");
  return [](const Parameter& p) {
    Shape row = p.shape(), column = p.shape();
    const int n = row.size();
    if (n < 2) return std::vector<StateTensor>{{"variance", p.shape()}};
    row[n - 1] = column[n - 2] = 1;
    return std::vector<StateTensor>{{"row_var", row}, {"col_var", column}};
  };
}

template <>
Tensor Adafactor::next(Update& u, const AdafactorOptions& o) {
  const Tensor& g = u.grad;
  if (g.numel() == 0) return u.value;
  const DType dtype = g.dtype();
  const double eps = o.eps1.value_or(dtype == kFloat64 ? std::numeric_limits<double>::epsilon()
                                                       : std::numeric_limits<float>::epsilon());
  const Tensor share = exp(log(u.step) * o.beta2_decay);  // 1 - b_t, f64
  Tensor estimate;
  if (g.dim() < 2) {
    estimate = u.state[0] = moved(u.state[0], square(g), share);
  } else {
    Tensor &row = u.state[0], &column = u.state[1];
    row = moved(row, mean(square(g), -1, true), share);
    column = moved(column, mean(square(g), -2, true), share);
    estimate = row * column / clamp_min(mean(row, -2, true), eps);
  }
  const Tensor update = g * rsqrt(clamp_min(estimate, eps * eps));
  const Tensor rate = minimum(u.lr.to(kFloat64), rsqrt(u.step)).to(dtype);
  const Tensor size =
      clamp_min(root_mean_square(u.value), o.eps2) * rate / clamp_min(root_mean_square(update) / o.d, 1.0);
  return internal::decayed(u.value, u.lr, u.weight_decay) - update * size;
}

template class OptimizerWith<AdafactorOptions>;

}  // namespace weft::optim
