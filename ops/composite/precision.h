// Shared by composites: checks of an operand, and the dtype for computation.
#pragma once
#include <initializer_list>
#include <string_view>

#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/promotion.h"

namespace weft::internal {

/// A floating-point tensor operand; throws, naming `op`, for a number, an undefined tensor or another dtype.
inline const Tensor& floating_of(const Arg& x, const char* op) {
  const Tensor& t = tensor_of(x, op);
  WEFT_CHECK(is_floating(t.dtype()), op, ": operand is ", t.type(), "; need a floating-point dtype");
  return t;
}

/// The first operand of a function, as a float. Nodes and errors get the line of its call.
class FloatingOperand : LineScope, public Tensor {
 public:
  FloatingOperand(const Arg& x, const char* op) : LineScope(x.line()), Tensor(floating_of(x, op)) {}
};

/// 16-bit floats as f32, others unchanged: the dtype in which norms, softmax, losses and routers compute.
inline Tensor widened(const Tensor& t) { return t.dtype() == kBFloat16 || t.dtype() == kFloat16 ? t.to(kFloat32) : t; }

/// A result computed from widened() operands, in their dtype t; f32 under Autocast. For functions that give f32 there.
inline Tensor rounded(const Tensor& y, DType t) { return thread_state.autocast ? y : y.to(t); }

/// Whether `op`, one of the functions of of_real, is in torch.autocast's list of those that give f32.
inline bool gives_f32(std::string_view op) {
  for (std::string_view listed : {"acos", "asin", "cosh", "erfinv", "log10", "log2", "sinh", "tan"})
    if (op == listed) return true;
  return false;
}

/// f(x) for a function of real numbers, computed in f32 for 16-bit floats, integers and bool; the result has x's dtype,
/// or f32 for integers and bool.
template <class F>
Tensor of_real(const Arg& x, const char* op, const F& f) {
  const FirstOperand t(x, op);
  if (!is_floating(t.dtype())) return f(t.to(kFloat32));
  const Tensor y = f(widened(t));
  return gives_f32(op) ? rounded(y, t.dtype()) : y.to(t.dtype());
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
  LineScope line(a.line());
  const OperandPair p = common(a, b, op);
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
