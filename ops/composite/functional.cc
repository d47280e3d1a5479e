#include "ops/composite/functional.h"

#include "framework/autodiff/grad.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;

namespace {

// f(x), and x as a value that records.
struct Called {
  Tensor x, y;
};
Called called(const TensorFunction& f, const Tensor& x, const char* op) {
  const Tensor in = x.requires_grad(), y = f(in);
  WEFT_CHECK(y.defined() && is_floating(y.dtype()), op, ": the function returned ",
             y.defined() ? y.type().to_string() : "nothing", "; need a floating-point tensor");
  return {in, y};
}

// v times the Jacobian of y, recorded: zeros if y does not depend on anything that records.
Tensor pulled(const Tensor& y, const Tensor& x, const Tensor& v) {
  if (!y.requires_grad_enabled()) return zeros_like(x);
  return grad(y, std::vector<Tensor>{x}, {.create_graph = true, .grad_output = v})[0];
}

Tensor result(const Tensor& t, const FunctionalOptions& options) { return options.create_graph ? t : t.detach(); }

Tensor jacobian_of(const Called& c) {
  Shape shape = c.y.shape();
  WEFT_CHECK(shape.size() + c.x.dim() <= kMaxDims, "jacobian: f(x) is ", c.y.type(), " and x ", c.x.type(),
             "; need at most ", kMaxDims, " dims together");
  for (int64_t n : c.x.shape()) shape.push_back(n);
  const int64_t n = c.y.numel();
  if (n == 0) return zeros(shape, {.dtype = c.x.dtype(), .device = c.x.device()});
  const TensorOptions like{.dtype = c.y.dtype(), .device = c.y.device()};
  const Tensor units = eye(n, -1, like);
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(pulled(c.y, c.x, reshape(select(units, 0, i), c.y.shape())));
  return reshape(stack(rows), shape);
}

}  // namespace

Tensor jacobian(const TensorFunction& f, const Arg& arg, const FunctionalOptions& options) {
  LineScope line(arg.line());
  EnableGrad recording;
  return result(jacobian_of(called(f, floating_of(arg, "jacobian"), "jacobian")), options);
}

Tensor hessian(const TensorFunction& f, const Arg& arg, const FunctionalOptions& options) {
  LineScope line(arg.line());
  EnableGrad recording;
  const Called c = called(f, floating_of(arg, "hessian"), "hessian");
  WEFT_CHECK(c.y.numel() == 1, "hessian: the function returned ", c.y.type(), "; need one number");
  return result(jacobian_of({c.x, pulled(c.y, c.x, ones_like(c.y))}), options);
}

FunctionalProduct vjp(const TensorFunction& f, const Arg& arg, const Arg& along, const FunctionalOptions& options) {
  LineScope line(arg.line());
  EnableGrad recording;
  const Called c = called(f, floating_of(arg, "vjp"), "vjp");
  Tensor v = along.is_tensor() ? along.tensor() : full_like(c.y, along);
  WEFT_CHECK(v.defined() || c.y.numel() == 1, "vjp: the function returned ", c.y.type(), "; need v of that shape");
  if (!v.defined()) v = ones_like(c.y);
  WEFT_CHECK(v.shape() == c.y.shape(), "vjp: v has shape ", v.shape(), "; need f(x)'s shape, ", c.y.shape());
  return {result(c.y, options), result(pulled(c.y, c.x, cast(v, c.y.dtype())), options)};
}

// The derivative of v J by v is J: its product with the direction is a second backward pass.
FunctionalProduct jvp(const TensorFunction& f, const Arg& arg, const Arg& along, const FunctionalOptions& options) {
  LineScope line(arg.line());
  EnableGrad recording;
  const Called c = called(f, floating_of(arg, "jvp"), "jvp");
  const Tensor v = along.is_tensor() ? along.tensor() : full_like(c.x, along);
  WEFT_CHECK(v.defined() && v.shape() == c.x.shape(), "jvp: v has shape ", v.defined() ? v.shape() : Shape{},
             "; need x's shape, ", c.x.shape());
  const Tensor u = zeros_like(c.y).requires_grad();
  return {result(c.y, options), result(pulled(pulled(c.y, c.x, u), u, cast(v, c.x.dtype())), options)};
}

}  // namespace weft
