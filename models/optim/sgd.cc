#include "models/optim/sgd.h"

#include <algorithm>
#include <cmath>

#include "ops/core/dot.h"
#include "ops/core/pointwise.h"
#include "ops/core/reduce.h"
#include "ops/core/view.h"

namespace weft::optim {

template <>
SGD::OptimizerWith(std::vector<ParamGroup> groups, const SGDOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay,
                o.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}, loc),
      options_(o) {
  internal::LineScope line(loc);
  WEFT_CHECK(o.momentum >= 0 && (!o.nesterov || o.momentum > 0), "SGD: momentum is ", o.momentum,
             "; need a number >= 0, above 0 with nesterov");
}

template <>
Tensor SGD::updated(Update& u) const {
  Tensor g = u.weight_decay == 0 ? u.grad : u.grad + u.value * u.weight_decay;
  if (options_.momentum > 0) {
    Tensor& m = u.state[0];
    m = m * options_.momentum + g;
    g = options_.nesterov ? g + m * options_.momentum : m;
  }
  return u.value - g * u.lr;
}

namespace {

// Approximates the nearest orthogonal matrix: an odd polynomial of degree five moves the singular values close to 1.
Tensor orthogonalised(const Tensor& m, int iterations) {
  const bool tall = m.size(-2) > m.size(-1);
  Tensor x = tall ? transpose(m, -2, -1) : m;
  x = x / (sqrt(sum(square(x), {-2, -1}, true)) + 1e-7);
  for (int i = 0; i < iterations; ++i) {
    const Tensor a = matmul(x, transpose(x, -2, -1));
    x = x * 3.4445 + matmul(a * -4.7750 + matmul(a, a) * 2.0315, x);
  }
  return tall ? transpose(x, -2, -1) : x;
}

}  // namespace

template <>
Muon::OptimizerWith(std::vector<ParamGroup> groups, const MuonOptions& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, {"momentum"}, loc), options_(o) {
  internal::LineScope line(loc);
  for (const Parameter& p : parameters())
    WEFT_CHECK(p.shape().size() >= 2, "Muon: parameter '", p.name(), "' has shape ", p.shape(),
               "; need at least two dims, give others to AdamW");
}

template <>
Tensor Muon::updated(Update& u) const {
  Tensor& m = u.state[0];
  m = m * options_.momentum + u.grad;
  const Tensor direction = orthogonalised(options_.nesterov ? u.grad + m * options_.momentum : m, options_.iterations);
  const double ratio = static_cast<double>(m.size(-2)) / static_cast<double>(m.size(-1));
  const Tensor value = u.weight_decay == 0 ? u.value : u.value * (1.0 - u.lr * u.weight_decay);
  return value - direction * (u.lr * ::std::sqrt(::std::max(1.0, ratio)));
}

}  // namespace weft::optim
