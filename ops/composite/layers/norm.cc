#include "ops/composite/layers/norm.h"

#include <cmath>

#include "ops/composite/precision.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

void internal::check_eps(double eps, std::string_view op) {
  WEFT_CHECK(std::isfinite(eps) && eps >= 0, op, ": eps is ", eps, "; need a finite number >= 0");
}

namespace {

// The dims to normalise over; throws if the shapes do not fit.
Shape last_dims(const Tensor& x, const Shape& normalized_shape, const char* op) {
  const int n = normalized_shape.size(), rank = x.dim();
  bool fits = n >= 1 && n <= rank;
  for (int i = 0; fits && i < n; ++i) fits = x.shape()[rank - n + i] == normalized_shape[i];
  WEFT_CHECK(fits, op, ": x has shape ", x.shape(), "; need one that ends in normalized_shape ", normalized_shape);
  Shape dims;
  for (int i = rank - n; i < rank; ++i) dims.push_back(i);
  return dims;
}

// Scale or shift in the dtype of the statistics, v's; an undefined one stays undefined.
Tensor affine_of(const Arg& a, const Shape& normalized_shape, const Tensor& v, const char* op, const char* name) {
  if (!a.is_tensor() || !a.tensor().defined()) return {};
  const Tensor& t = floating_of(a, op);
  WEFT_CHECK(t.shape() == normalized_shape, op, ": ", name, " has shape ", t.shape(), "; need normalized_shape ",
             normalized_shape);
  return t.to(dtype_with(t, v, op));
}

double epsilon(DType t) {
  switch (t) {
    case kFloat64:
      return 0x1p-52;
    case kBFloat16:
      return 0x1p-7;
    case kFloat16:
      return 0x1p-10;
    default:
      return 0x1p-23;
  }
}

}  // namespace

Tensor layer_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight, const Arg& bias, double eps) {
  const F32Operand t(x, "layer_norm");
  check_eps(eps, "layer_norm");
  const Shape dims = last_dims(t, normalized_shape, "layer_norm");
  const Tensor v = widened(t);
  const Tensor w = affine_of(weight, normalized_shape, v, "layer_norm", "weight");
  const Tensor b = affine_of(bias, normalized_shape, v, "layer_norm", "bias");
  const Tensor centred = v - mean(v, dims, true);
  Tensor y = centred * rsqrt(mean(square(centred), dims, true) + eps);
  if (w.defined()) y = y * w;
  if (b.defined()) y = y + b;
  return y.to(t.dtype());
}

Tensor rms_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight, std::optional<double> given_eps) {
  const F32Operand t(x, "rms_norm");
  const double eps = given_eps.value_or(epsilon(x.tensor().dtype()));
  check_eps(eps, "rms_norm");
  const Shape dims = last_dims(t, normalized_shape, "rms_norm");
  const Tensor v = widened(t);
  const Tensor w = affine_of(weight, normalized_shape, v, "rms_norm", "weight");
  Tensor y = v * rsqrt(mean(square(v), dims, true) + eps);
  if (w.defined()) y = y * w;
  return y.to(t.dtype());
}

Tensor rms_norm(const Arg& x, const Arg& weight, double eps) {
  return rms_norm(x, tensor_of(weight, "rms_norm").shape(), weight, eps);
}

namespace {

// A value per channel [C] as [1, C, 1...], in the dtype of the statistics, v's; an undefined one stays undefined.
Tensor per_channel(const Arg& a, const Tensor& x, const Tensor& v, const char* op, const char* name) {
  const Tensor t = affine_of(a, {x.size(1)}, v, op, name);
  if (!t.defined()) return t;
  Shape wide = Shape::filled(x.dim(), 1);
  wide[1] = x.size(1);
  return reshape(t, wide);
}

const Tensor& with_channels(const Arg& x, const char* op) {
  const Tensor& t = floating_of(x, op);
  WEFT_CHECK(t.dim() >= 2, op, ": x is ", t.type(), "; need [N, C, ...]");
  return t;
}

Tensor scaled(const Tensor& y, const Tensor& x, const Arg& weight, const Arg& bias, const char* op) {
  const Tensor w = per_channel(weight, x, y, op, "weight"), b = per_channel(bias, x, y, op, "bias");
  Tensor z = y;
  if (w.defined()) z = z * w;
  if (b.defined()) z = z + b;
  return z.to(x.dtype());
}

// The mean over all dims but dim 1: first over the inner ones, whose elements are neighbours.
Tensor channel_mean(const Tensor& v) {
  Shape inner;
  for (int d = 2; d < v.dim(); ++d) inner.push_back(d);
  return mean(inner.empty() ? v : mean(v, inner, true), 0, true);
}

}  // namespace

ChannelMoments channel_moments(const Arg& x) {
  LineScope line(x.line());
  const Tensor v = widened(with_channels(x, "channel_moments"));
  const Tensor m = channel_mean(v);
  return {m, channel_mean(square(v - m))};
}

Tensor batch_norm(const Arg& x, const Arg& running_mean, const Arg& running_var, const Arg& weight, const Arg& bias,
                  double eps) {
  LineScope line(x.line());
  const char* op = "batch_norm";
  check_eps(eps, op);
  const Tensor& t = with_channels(x, op);
  const Tensor v = widened(t);
  ChannelMoments m{per_channel(running_mean, t, v, op, "mean"), per_channel(running_var, t, v, op, "var")};
  WEFT_CHECK(m.mean.defined() == m.var.defined(), "batch_norm: got ",
             m.mean.defined() ? "a mean without var" : "var without a mean",
             "; need both, or neither for the statistics of x");
  if (!m.mean.defined()) m = channel_moments(v);
  return scaled((v - m.mean) * rsqrt(m.var + eps), t, weight, bias, op);
}

static Tensor norm_of_groups(const Tensor& t, int64_t groups, const Arg& weight, const Arg& bias, double eps,
                             const char* op) {
  check_eps(eps, op);
  const Tensor v = widened(t);
  Shape split{t.size(0), groups, groups == 0 ? 0 : t.numel() / std::max<int64_t>(1, t.size(0) * groups)};
  const Tensor rows = reshape(v, split), centred = rows - mean(rows, 2, true);
  return scaled(reshape(centred * rsqrt(mean(square(centred), 2, true) + eps), t.shape()), t, weight, bias, op);
}

Tensor group_norm(const Arg& x, int64_t groups, const Arg& weight, const Arg& bias, double eps) {
  LineScope line(x.line());
  const Tensor t = autocast_f32(with_channels(x, "group_norm"));
  WEFT_CHECK(groups >= 1 && t.size(1) % groups == 0, "group_norm: ", groups, " groups of ", t.size(1), " channels of ",
             t.shape(), "; need a number of groups that divides the channels");
  return norm_of_groups(t, groups, weight, bias, eps, "group_norm");
}

Tensor instance_norm(const Arg& x, const Arg& weight, const Arg& bias, double eps) {
  LineScope line(x.line());
  const Tensor& t = with_channels(x, "instance_norm");
  WEFT_CHECK(t.dim() >= 3, "instance_norm: x is ", t.type(), "; need [N, C, spatial dims]");
  return norm_of_groups(t, t.size(1), weight, bias, eps, "instance_norm");
}

}  // namespace weft
