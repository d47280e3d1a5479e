// Derivatives of functions, with the meaning of torch.autograd.functional, eagerly and inside compiled functions. A
// function takes and returns one tensor. Other tensors that it uses are not differentiated.
#pragma once
#include <functional>

#include "framework/dispatch/arg.h"

namespace weft {

using TensorFunction = std::function<Tensor(const Tensor&)>;

struct FunctionalOptions {
  bool create_graph = false;  // the result records for grad() of it
};

/// d f(x) / dx, of shape [f(x)'s shape..., x's shape...]: one backward pass for each element of f(x).
Tensor jacobian(const TensorFunction& f, const Arg& x, const FunctionalOptions& options = {});
/// The second derivatives of f, which gives one number, of shape [x's shape..., x's shape...].
Tensor hessian(const TensorFunction& f, const Arg& x, const FunctionalOptions& options = {});

/// f(x), and v times the Jacobian (or the Jacobian times v).
struct FunctionalProduct {
  Tensor output, product;
};
/// The gradient of sum(v f(x)), of x's shape. v has f(x)'s shape; it may be left out if f gives one number.
FunctionalProduct vjp(const TensorFunction& f, const Arg& x, const Arg& v = Tensor(),
                      const FunctionalOptions& options = {});
/// The derivative of f in the direction v, of f(x)'s shape. v has x's shape. Two backward passes.
FunctionalProduct jvp(const TensorFunction& f, const Arg& x, const Arg& v, const FunctionalOptions& options = {});

}  // namespace weft
