// Shared by composites: checks of an operand, and the dtype for computation.
#pragma once
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::internal {

/// A floating-point tensor operand; throws, naming `op`, for a number, an undefined tensor or another dtype.
inline const Tensor& floating_of(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(is_floating(t.dtype()), op, ": operand is ", t.type(), "; need a floating-point dtype");
  return t;
}

/// 16-bit floats as f32, others unchanged: the dtype in which norms, softmax, losses and routers compute.
inline Tensor widened(const Tensor& t) { return t.dtype() == kBFloat16 || t.dtype() == kFloat16 ? t.to(kFloat32) : t; }

}  // namespace weft::internal
