// Bilinear: y[o] = x1ᵀ W[o] x2 + b[o].
#pragma once
#include <concepts>

#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct BilinearOptions {
  bool bias = true;
};

class Bilinear : public Module {
 public:
  using Module::Module;
  Parameter weight;  // [out, in1, in2]; uniform within 1/sqrt(in1), like the bias
  Parameter bias;    // [out]; undefined without bias
  Bilinear(int64_t in1, int64_t in2, int64_t out, const BilinearOptions& options = {},
           std::source_location loc = std::source_location::current());
  /// PyTorch's fourth argument.
  template <std::same_as<bool> B>
  Bilinear(int64_t in1, int64_t in2, int64_t out, B bias, std::source_location loc = std::source_location::current())
      : Bilinear(in1, in2, out, BilinearOptions{.bias = bias}, loc) {}
  /// x1[..., in1], x2[..., in2] -> [..., out], with equal dims before the last; computed in the dtype of x1.
  Tensor operator()(const Arg& x1, const Arg& x2) const;
};

}  // namespace weft::nn
