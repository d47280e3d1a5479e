#include "ops/composite/images/conv.h"

#include "framework/base/saturate.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/conv.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;

Shape Sizes::of(int spatial, const char* op, const char* what) const {
  WEFT_CHECK(size() == spatial || size() == 1, op, ": ", what, " is ", static_cast<const Shape&>(*this),
             "; need one number or ", spatial);
  return size() == 1 ? Shape::filled(spatial, (*this)[0]) : Shape(*this);
}

namespace {

// Operands with a batch dim, in one dtype.
struct ConvOperands {
  Tensor x, weight, bias;
  bool batched = true;

  ConvOperands(const char* op, int spatial, const Arg& input, const Arg& w, const Arg& b, int64_t groups,
               bool transposed) {
    x = floating_of(input, op);
    weight = floating_of(w, op).to(internal::dtype_with(floating_of(w, op), x, op));
    batched = x.dim() == spatial + 2;
    const char* dims = spatial == 1 ? " spatial dim]" : " spatial dims]";
    WEFT_CHECK(batched || x.dim() == spatial + 1, op, ": input is ", x.type(), "; need [N, C, ", spatial, dims,
               " or [C, ", spatial, dims);
    WEFT_CHECK(weight.dim() == spatial + 2, op, ": weight is ", weight.type(), "; need [",
               transposed ? "C, out channels / groups, " : "out channels, C / groups, ", spatial, " kernel dims]");
    WEFT_CHECK(groups >= 1, op, ": groups is ", groups, "; need 1 or more");
    if (!batched) x = unsqueeze(x, 0);
    const int64_t channels = transposed ? weight.size(0) : saturating_mul(weight.size(1), groups);
    WEFT_CHECK(x.size(1) == channels, op, ": input ", floating_of(input, op).shape(), " has ", x.size(1),
               " channels; weight ", weight.shape(), groups > 1 ? str_cat(" in ", groups, " groups") : std::string(),
               " needs ", channels);
    if (!b.is_tensor() || !b.tensor().defined()) return;
    bias = floating_of(b, op).to(internal::dtype_with(floating_of(b, op), x, op));
    const int64_t out = transposed ? saturating_mul(weight.size(1), groups) : weight.size(0);
    WEFT_CHECK(bias.shape() == Shape{out}, op, ": bias is ", bias.type(), "; need [", out, "], one per out channel");
    Shape wide{out};
    for (int i = 0; i < spatial; ++i) wide.push_back(1);
    bias = reshape(bias, wide);
  }

  Tensor finish(const Tensor& y) const {
    const Tensor z = bias.defined() ? y + bias.to(y.dtype()) : y;
    return batched ? z : squeeze(z, 0);
  }
};

void check_positive(const char* op, const char* what, const Shape& v) {
  for (int64_t n : v) WEFT_CHECK(n >= 1, op, ": ", what, " is ", v, "; need 1 or more");
}

ConvDims dims_of(const char* op, int spatial, const Sizes& stride, const Sizes& padding, const Sizes& dilation,
                 int64_t groups) {
  ConvDims d;
  d.groups = groups;
  d.stride = stride.of(spatial, op, "stride");
  d.dilation = dilation.of(spatial, op, "dilation");
  d.lo = d.hi = padding.of(spatial, op, "padding");
  d.interior = Shape::filled(spatial, 0);
  check_positive(op, "stride", d.stride);
  check_positive(op, "dilation", d.dilation);
  return d;
}

}  // namespace

namespace internal {

Tensor conv_nd(const char* op, int spatial, const Arg& x, const Arg& weight, const Arg& bias, const Sizes& stride,
               const internal::Padding& padding, const Sizes& dilation, int64_t groups) {
  LineScope line(x.line());
  const ConvOperands in(op, spatial, x, weight, bias, groups, /*transposed=*/false);
  ConvDims d = dims_of(op, spatial, stride, padding.sizes, dilation, groups);
  for (int64_t n : d.lo) WEFT_CHECK(n >= 0, op, ": padding is ", d.lo, "; need 0 or more");
  if (!padding.name.empty() && padding.name != "valid") {
    WEFT_CHECK(padding.name == "same", op, ": padding is '", padding.name, "'; need numbers, \"valid\" or \"same\"");
    for (int i = 0; i < spatial; ++i) {
      WEFT_CHECK(d.stride[i] == 1, op, ": padding \"same\" with stride ", d.stride, "; need a stride of 1");
      const int64_t all = saturating_mul(in.weight.size(i + 2) - 1, d.dilation[i]);
      d.lo[i] = all / 2;
      d.hi[i] = all - all / 2;
    }
  }
  return in.finish(conv_general(in.x, in.weight, d));
}

Tensor conv_transpose_nd(const char* op, int spatial, const Arg& x, const Arg& weight, const Arg& bias,
                         const Sizes& stride, const Sizes& padding, const Sizes& output_padding, int64_t groups,
                         const Sizes& dilation) {
  LineScope line(x.line());
  const ConvOperands in(op, spatial, x, weight, bias, groups, /*transposed=*/true);
  const ConvDims d = dims_of(op, spatial, stride, padding, dilation, groups);
  const Shape more = output_padding.of(spatial, op, "output_padding");
  Shape extent;
  for (int i = 0; i < spatial; ++i) {
    WEFT_CHECK(d.lo[i] >= 0, op, ": padding is ", d.lo, "; need 0 or more");
    WEFT_CHECK(more[i] >= 0 && more[i] < std::max(d.stride[i], d.dilation[i]), op, ": output_padding is ", more,
               "; need 0 or more, and less than stride ", d.stride, " or dilation ", d.dilation);
    const int64_t n = in.x.size(i + 2), k = in.weight.size(i + 2);
    extent.push_back(saturating_add(saturating_add(saturating_mul(n - 1, d.stride[i]), -saturating_mul(2, d.lo[i])),
                                    saturating_add(saturating_mul(k - 1, d.dilation[i]), more[i] + 1)));
    WEFT_CHECK(n >= 1 && extent[i] >= 1, op, ": input ", in.x.shape(), " gives ", extent[i],
               " positions in spatial dim ", i, "; need 1 or more");
  }
  return in.finish(conv_transpose_general(in.x, in.weight, d, extent));
}

}  // namespace internal

#define WEFT_CONV(n)                                                                                                 \
  Tensor conv##n##d(const Arg& x, const Arg& weight, const Arg& bias, const Sizes& stride,                           \
                    const internal::Padding& padding, const Sizes& dilation, int64_t groups) {                       \
    return internal::conv_nd("conv" #n "d", n, x, weight, bias, stride, padding, dilation, groups);                  \
  }                                                                                                                  \
  Tensor conv_transpose##n##d(const Arg& x, const Arg& weight, const Arg& bias, const Sizes& stride,                 \
                              const Sizes& padding, const Sizes& output_padding, int64_t groups,                     \
                              const Sizes& dilation) {                                                               \
    return internal::conv_transpose_nd("conv_transpose" #n "d", n, x, weight, bias, stride, padding, output_padding, \
                                       groups, dilation);                                                            \
  }
WEFT_CONV(1)
WEFT_CONV(2)
WEFT_CONV(3)
#undef WEFT_CONV

}  // namespace weft
