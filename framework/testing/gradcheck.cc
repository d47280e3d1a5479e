#include "framework/testing/gradcheck.h"

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/interpreter.h"

namespace weft::testing {
namespace {

using Directions = std::vector<std::vector<Real>>;

// The projection of fn's floating results on `weights`, and the sum of the magnitudes of its terms.
struct Projection {
  Real value = 0, magnitude = 0;
};

Projection project(const TensorFn& fn, const std::vector<Tensor>& in, const std::vector<Tensor>& weights) {
  NoGrad guard;
  std::vector<Tensor> out = fn(in);
  Projection p;
  for (size_t o = 0; o < out.size(); ++o) {
    if (!weights[o].defined()) continue;
    std::vector<Real> y = to_reals(out[o]), w = to_reals(weights[o]);
    for (size_t i = 0; i < y.size(); ++i) {
      p.value += y[i] * w[i];
      p.magnitude += std::fabs(y[i] * w[i]);
    }
  }
  return p;
}

Tensor moved(const Tensor& x, const std::vector<Real>& direction, Real step) {
  std::vector<Real> v = to_reals(x);
  for (size_t i = 0; i < v.size(); ++i) v[i] += direction[i] * step;
  return from_reals(v, x.type());
}

std::vector<Tensor> sum_of_grads(const std::vector<Tensor>& out, const std::vector<Tensor>& weights,
                                 const std::vector<Tensor>& wrt, bool create_graph) {
  std::vector<Tensor> total;
  for (size_t o = 0; o < out.size(); ++o) {
    if (!weights[o].defined() || !out[o].requires_grad_enabled()) continue;
    std::vector<Tensor> g = grad(out[o], wrt, {.create_graph = create_graph, .grad_output = weights[o]});
    if (total.empty()) {
      total = g;
    } else {
      for (size_t i = 0; i < g.size(); ++i) total[i] = internal::accumulate(total[i], g[i]);
    }
  }
  if (total.empty())
    for (const Tensor& t : wrt) total.push_back(internal::full_of(t.type(), 0));
  return total;
}

std::vector<Tensor> analytic(const TensorFn& fn, const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights,
                             const std::vector<int>& wrt, bool captured) {
  auto run = [&](std::span<const Tensor> given, bool create_graph) {
    std::vector<Tensor> in(given.begin(), given.end()), leaves;
    for (int i : wrt) leaves.push_back(in[i] = in[i].requires_grad());
    return sum_of_grads(fn(in), weights, leaves, create_graph);
  };
  if (!captured) return run(inputs, false);
  std::vector<TensorType> types;
  for (const Tensor& t : inputs) types.push_back(t.type());
  Ref<Graph> g = expand_grad(*capture_graph([&](std::span<const Tensor> in) { return run(in, false); }, types));
  NoGrad guard;
  return interpret(*g, inputs);
}

}  // namespace

::testing::AssertionResult gradcheck(const TensorFn& fn, const std::vector<Tensor>& inputs, const GradCheck& options,
                                     const std::vector<int>& asked) {
  std::vector<int> wrt = asked;
  if (wrt.empty())
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].dtype() == kFloat64) wrt.push_back(static_cast<int>(i));
  Random random(options.seed);
  std::vector<Tensor> weights;
  {
    NoGrad guard;
    for (const Tensor& t : fn(inputs))
      weights.push_back(is_floating(t.dtype()) ? random_tensor(t.dtype(), t.shape(), random, 0.5, 1.5) : Tensor());
  }
  std::vector<Tensor> grads = analytic(fn, inputs, weights, wrt, options.captured);
  for (size_t k = 0; k < wrt.size(); ++k) {
    const Tensor& x = inputs[wrt[k]];
    if (grads[k].shape() != x.shape() || grads[k].dtype() != x.dtype())
      return ::testing::AssertionFailure() << "the gradient of operand " << wrt[k] << " is "
                                           << grads[k].type().to_string() << "; need " << x.type().to_string();
    const std::vector<Real> g = to_reals(grads[k]);
    const int64_t n = x.numel();
    // Checks one element at a time, and all of them together in a random direction.
    for (int64_t e = 0; e <= std::min(n, options.elements); ++e) {
      if (n == 0) break;
      std::vector<Real> direction(n, 0);
      const bool all = e == std::min(n, options.elements);
      int64_t at = n <= options.elements ? e : static_cast<int64_t>(random.bits() % n);
      if (all) {
        for (Real& d : direction) d = random.between(0.5, 1, false) * (random.bits() & 1 ? 1 : -1);
      } else {
        direction[at] = 1;
      }
      Real want = 0, reach = 0;
      for (int64_t i = 0; i < n; ++i) {
        want += g[i] * direction[i];
        reach += std::fabs(g[i] * direction[i]);
      }
      std::vector<Tensor> in = inputs;
      auto difference = [&](Real step, Real& magnitude) {
        in[wrt[k]] = moved(x, direction, step);
        Projection up = project(fn, in, weights);
        in[wrt[k]] = moved(x, direction, -step);
        Projection down = project(fn, in, weights);
        magnitude = std::max({magnitude, up.magnitude, down.magnitude});
        return (up.value - down.value) / (2 * step);
      };
      // The truncation error of the fourth-order formula falls with h^4 and the rounding error grows with 1 / h.
      // Smaller steps are for points near a kink or jump.
      bool ok = false;
      Real fine = 0, bound = 0;
      for (Real h : {0x1p-12L, 0x1p-17L, 0x1p-22L, 0x1p-27L}) {
        Real magnitude = 0;
        Real d1 = difference(h, magnitude), d2 = difference(2 * h, magnitude), d4 = difference(4 * h, magnitude);
        fine = (4 * d1 - d2) / 3;
        Real coarse = (4 * d2 - d4) / 3;
        // Richardson: coarse - fine is about 15 times the error of fine. The bound must stay below the derivative
        // itself.
        Real scale = std::max(reach, std::fabs(fine));
        Real truncation = std::min(std::fabs(coarse - fine), Real(1e-5) * scale + Real(1e-9));
        Real rounding = options.roundings * unit_roundoff(kFloat64) * (magnitude / h + reach);
        bound = truncation + rounding;
        ok = std::fabs(fine - want) <= bound;
        if (ok) break;
      }
      if (!ok)
        return ::testing::AssertionFailure()
               << "operand " << wrt[k] << " " << x.type().to_string()
               << (all ? ", random direction" : str_cat(", element ", at)) << ": grad gives " << want
               << ", central differences " << fine << " +- " << bound << (options.captured ? " (captured)" : "");
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult gradgradcheck(const TensorFn& fn, const std::vector<Tensor>& inputs,
                                         const GradCheck& options, const std::vector<int>& asked) {
  std::vector<int> wrt = asked;
  if (wrt.empty())
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].dtype() == kFloat64) wrt.push_back(static_cast<int>(i));
  Random random(options.seed + 1);
  std::vector<Tensor> weights;
  {
    NoGrad guard;
    for (const Tensor& t : fn(inputs))
      weights.push_back(is_floating(t.dtype()) ? random_tensor(t.dtype(), t.shape(), random, 0.5, 1.5) : Tensor());
  }
  TensorFn first = [&](std::span<const Tensor> given) {
    EnableGrad record;
    std::vector<Tensor> in(given.begin(), given.end()), leaves;
    for (int i : wrt) leaves.push_back(in[i] = in[i].requires_grad());
    return sum_of_grads(fn(in), weights, leaves, true);
  };
  GradCheck second = options;
  second.roundings = options.roundings * 4;
  return gradcheck(first, inputs, second, wrt);
}

}  // namespace weft::testing
