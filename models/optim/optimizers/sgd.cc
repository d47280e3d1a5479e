#include "models/optim/optimizers/sgd.h"

#include <algorithm>
#include <cmath>

#include "models/optim/moments.h"
#include "models/optim/optimizer_with.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::optim {

template <>
Optimizer::StateOf SGD::checked_state(const SGDOptions& o) {
  WEFT_CHECK(o.momentum >= 0 && (!o.nesterov || o.momentum > 0), "SGD: momentum is ", o.momentum,
             "; need a number >= 0, above 0 with nesterov");
  WEFT_CHECK(std::isfinite(o.dampening) && (!o.nesterov || o.dampening == 0), "SGD: dampening is ", o.dampening,
             "; need a finite number, 0 with nesterov");
  std::vector<std::string> names;
  if (o.momentum > 0) names.emplace_back("momentum");
  return like_parameter(std::move(names));
}

template <>
Tensor SGD::next(Update& u, const SGDOptions& o) {
  Tensor g = internal::with_decay(u.grad, u.value, u.weight_decay);
  if (o.momentum > 0) {
    Tensor& m = u.state[0];
    m = m * o.momentum + (o.dampening == 0 ? g : g * (1.0 - (u.step > 1.0).to(kFloat64) * o.dampening).to(g.dtype()));
    g = o.nesterov ? g + m * o.momentum : m;
  }
  return u.value - g * u.lr;
}

template <>
Optimizer::StateOf ASGD::checked_state(const ASGDOptions& o) {
  internal::check_not_negative(o.lambd, "lambd", "ASGD");
  internal::check_not_negative(o.alpha, "alpha", "ASGD");
  internal::check_not_negative(o.t0, "t0", "ASGD");
  return [](const Parameter& p) { return std::vector<StateTensor>{{"ax", p.shape()}, {"eta", {}}}; };
}

template <>
Tensor ASGD::next(Update& u, const ASGDOptions& o) {
  const Tensor g = internal::with_decay(u.grad, u.value, u.weight_decay);
  Tensor &mean = u.state[0], &eta = u.state[1];
  const Tensor rate = where(eta == 0.0, u.lr, eta);  // 0: before the first step
  const Tensor value = u.value * (1.0 - rate * o.lambd) - g * rate;
  const Tensor averaged = u.step - (1 + o.t0), part = reciprocal(maximum(averaged, 1.0)).to(g.dtype());
  mean = where(averaged > 1.0, mean + (value - mean) * part, value);
  const Tensor lr = u.lr.to(kFloat64);
  eta = (lr / pow(lr * u.step * o.lambd + 1.0, o.alpha)).to(g.dtype());
  return value;
}

// Approximates the nearest orthogonal matrix: an odd polynomial of degree five moves the singular values close to 1.
static Tensor orthogonalised(const Tensor& m, int iterations) {
  const bool tall = m.size(-2) > m.size(-1);
  Tensor x = tall ? transpose(m, -2, -1) : m;
  x = x / (sqrt(sum(square(x), {-2, -1}, true)) + 1e-7);
  for (int i = 0; i < iterations; ++i) {
    const Tensor a = matmul(x, transpose(x, -2, -1));
    x = x * 3.4445 + matmul(a * -4.7750 + matmul(a, a) * 2.0315, x);
  }
  return tall ? transpose(x, -2, -1) : x;
}

template <>
Optimizer::StateOf Muon::checked_state(const MuonOptions&) {
  return [](const Parameter& p) {
    WEFT_CHECK(p.shape().size() >= 2, "Muon: parameter '", p.name(), "' has shape ", p.shape(),
               "; need at least two dims, give others to AdamW");
    return std::vector<StateTensor>{{"momentum", p.shape()}};
  };
}

template <>
Tensor Muon::next(Update& u, const MuonOptions& o) {
  Tensor& m = u.state[0];
  m = m * o.momentum + u.grad;
  const Tensor direction = orthogonalised(o.nesterov ? u.grad + m * o.momentum : m, o.iterations);
  const double ratio = static_cast<double>(m.size(-2)) / static_cast<double>(m.size(-1));
  return internal::decayed(u.value, u.lr, u.weight_decay) - direction * (u.lr * ::std::sqrt(::std::max(1.0, ratio)));
}

template class OptimizerWith<SGDOptions>;
template class OptimizerWith<ASGDOptions>;
template class OptimizerWith<MuonOptions>;

}  // namespace weft::optim
