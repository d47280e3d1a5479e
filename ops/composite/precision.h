// What composites share: checking an operand and the dtype they compute in.
#pragma once
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::internal {

/// A floating-point tensor operand; throws naming `op` on a number, an undefined tensor or another dtype.
inline const Tensor& floating_of(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(is_floating(t.dtype()), op, ": operand is ", t.type(), "; need a floating-point dtype");
  return t;
}

/// 16-bit floats as f32, others as they are: what norms, softmax, losses and routers compute in.
inline Tensor widened(const Tensor& t) { return t.dtype() == kBFloat16 || t.dtype() == kFloat16 ? t.to(kFloat32) : t; }

}  // namespace weft::internal
