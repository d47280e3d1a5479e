// Explicit derivatives of composites, for which the derivative of the parts would be inexact or infinite somewhere.
#pragma once
#include <functional>

#include "framework/tensor/tensor.h"

namespace weft::internal {

/// fn(x) with the derivative backward(x, y, dy), which is differentiable itself. If nothing is recorded, this is fn(x).
Tensor with_derivative(const Tensor& x, const std::function<Tensor(const Tensor& x)>& fn,
                       const std::function<Tensor(const Tensor& x, const Tensor& y, const Tensor& dy)>& backward);

/// Two operands of equal type, and their gradients.
struct PairGrads {
  Tensor a, b;
};
Tensor with_derivative(
    const Tensor& a, const Tensor& b, const std::function<Tensor(const Tensor& a, const Tensor& b)>& fn,
    const std::function<PairGrads(const Tensor& a, const Tensor& b, const Tensor& y, const Tensor& dy)>& backward);

}  // namespace weft::internal
