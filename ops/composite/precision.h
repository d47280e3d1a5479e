// Shared by composites: checks of an operand, and the dtype for computation.
#pragma once
#include <initializer_list>

#include "framework/base/called.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/promotion.h"
#include "ops/core/record_parts.h"

namespace weft::internal {

/// A floating-point tensor operand; throws, naming `op`, for a number, an undefined tensor or another dtype.
inline const Tensor& floating_of(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(is_floating(t.dtype()), op, ": operand is ", t.type(), "; need a floating-point dtype");
  return t;
}

/// Throws, naming `op`, for a dtype that is for storage only.
inline void check_computed(const Tensor& t, const char* op) {
  WEFT_CHECK(!is_floating(t.dtype()) || is_computed_float(t.dtype()), op, ": does not support ", t.dtype(),
             "; convert with to(f32) first");
}

/// The first operand of a function, as a float that kernels compute with. Nodes and errors get the line of its call.
class FloatingOperand : LineScope, public Tensor {
 public:
  FloatingOperand(const Arg& x, const char* op) : LineScope(x.line()), Tensor(floating_of(x, op)) {
    check_computed(*this, op);
  }
};

/// The same for a function that gives f32 under Autocast, where 16-bit floats become f32.
class F32Operand : LineScope, public Tensor {
 public:
  F32Operand(const Arg& x, const char* op) : LineScope(x.line()), Tensor(autocast_f32(floating_of(x, op))) {
    check_computed(*this, op);
  }
};

/// 16-bit floats as f32, others unchanged: the dtype in which norms, softmax, losses and routers compute.
inline Tensor widened(const Tensor& t) { return is_16bit(t.dtype()) ? t.to(kFloat32) : t; }

/// f(x) for a function of real numbers, computed in f32 for 16-bit floats, integers and bool; the result has x's dtype,
/// or f32 for integers and bool.
template <class F>
Tensor of_real(const Arg& x, const char* op, const F& f) {
  const Called name(op);
  const FirstOperand t(x, op);
  check_computed(t, op);
  if (!is_floating(t.dtype())) return f(t.to(kFloat32));
  return f(widened(t)).to(t.dtype());
}

/// The same for a function that gives f32 under Autocast.
template <class F>
Tensor f32_of_real(const Arg& x, const char* op, const F& f) {
  const FirstOperand t(x, op);
  return of_real(autocast_f32(t), op, f);
}

/// Two operands in their common dtype and shape.
struct OperandPair {
  Tensor a, b;
};
inline OperandPair common(const Arg& a, const Arg& b, const char* op) {
  const Arg* args[] = {&a, &b};
  Device device = Device::cpu();
  for (const Arg* x : args)
    if (x->is_tensor()) device = tensor_of(*x, op).device();
  const DType dtype = result_type(args);
  Tensor t[2];
  for (int i = 0; i < 2; ++i)
    t[i] = args[i]->is_tensor() ? args[i]->tensor().to(dtype) : full({}, *args[i], {.dtype = dtype, .device = device});
  const Shape shape = broadcast_shapes(t[0].shape(), t[1].shape(), op);
  return {broadcast_to(t[0], shape), broadcast_to(t[1], shape)};
}

/// f(a, b) in the same dtypes as of_real, for operands of equal shape.
template <class F>
Tensor of_reals(const Arg& a, const Arg& b, const char* op, const F& f) {
  const Called name(op);
  LineScope line(a.line());
  const OperandPair p = common(a, b, op);
  check_computed(p.a, op);
  if (!is_floating(p.a.dtype())) return f(p.a.to(kFloat32), p.b.to(kFloat32));
  return f(widened(p.a), widened(p.b)).to(p.a.dtype());
}

/// c[0] x^n + c[1] x^(n - 1) + ... + c[n].
inline Tensor polynomial(const Tensor& x, std::initializer_list<double> c) {
  Tensor y = x * *c.begin();
  for (const double* p = c.begin() + 1; p + 1 < c.end(); ++p) y = (y + *p) * x;
  return y + *(c.end() - 1);
}

}  // namespace weft::internal
