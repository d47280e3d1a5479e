// Linear: y = x Wᵀ + b.
#pragma once
#include <concepts>

#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct LinearOptions {
  bool bias = true;
  double std = 0;  // deviation of the weight's normal initialisation; 0: PyTorch's default, uniform within 1/sqrt(in)
  bool full_precision = false;  // Module::cast_weights leaves the parameters as they are
};

class Linear : public Module {
 public:
  using Module::Module;
  Parameter weight;  // [out, in]
  Parameter bias;    // [out]; undefined without bias
  Linear(int64_t in, int64_t out, const LinearOptions& options = {},
         std::source_location loc = std::source_location::current());
  /// PyTorch's third argument: Linear(4, 8, false). A template, so that {} are options.
  template <std::same_as<bool> B>
  Linear(int64_t in, int64_t out, B bias, std::source_location loc = std::source_location::current())
      : Linear(in, out, LinearOptions{.bias = bias}, loc) {}
  /// x[..., in] -> [..., out]; the weights are converted to x's dtype.
  Tensor operator()(const Arg& x) const;
};

}  // namespace weft::nn
