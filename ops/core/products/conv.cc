// Windows of the padded operand make a convolution one product, whose operand is packed from the windows' view. The
// product has the channels last: then a row of the operand is a few long runs of memory, and all images are one matrix.
#include "ops/core/products/conv.h"

#include <array>
#include <vector>

#include "framework/base/saturate.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/window.h"
#include "ops/core/products/winograd.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using internal::Sample;
using internal::Window;

namespace {

constexpr int kMaxSpatial = (kMaxDims - 2) / 2;

ConvDims dims_in(const Attrs& attrs) {
  return {attrs.ints("stride"),   attrs.ints("lo"),       attrs.ints("hi"),
          attrs.ints("dilation"), attrs.ints("interior"), attrs.i("groups")};
}

Attrs attrs_of(const ConvDims& d) {
  return {{"stride", d.stride},     {"lo", d.lo},        {"hi", d.hi}, {"dilation", d.dilation},
          {"interior", d.interior}, {"groups", d.groups}};
}

int64_t reach_of(int64_t size, int64_t dilation) { return saturating_add(saturating_mul(size - 1, dilation), 1); }
int64_t spread_of(int64_t extent, int64_t interior) {
  return extent == 0 ? 0 : saturating_add(saturating_mul(extent - 1, saturating_add(interior, 1)), 1);
}
// The extent of the operand after it is spread and padded.
int64_t padded_of(const ConvDims& d, int i, int64_t extent) {
  return saturating_add(saturating_add(spread_of(extent, d.interior[i]), d.lo[i]), d.hi[i]);
}

void check_dims(const ConvDims& d, int spatial) {
  for (const Shape* s : {&d.stride, &d.lo, &d.hi, &d.dilation, &d.interior})
    WEFT_CHECK(s->size() == spatial, "conv: ", s->size(), " entries of an attribute for ", spatial,
               " spatial dims; need one per dim");
  for (int i = 0; i < spatial; ++i)
    WEFT_CHECK(d.stride[i] >= 1 && d.dilation[i] >= 1 && d.interior[i] >= 0, "conv: stride ", d.stride, ", dilation ",
               d.dilation, ", interior ", d.interior,
               "; need strides and dilations of 1 or more, interiors of 0 or more");
  WEFT_CHECK(d.groups >= 1, "conv: groups is ", d.groups, "; need 1 or more");
}

Types infer_conv(const InferCall& c) {
  const Shape &x = c.in[0].shape, &w = c.in[1].shape;
  const int spatial = x.size() - 2;
  WEFT_CHECK(spatial >= 1 && spatial <= kMaxSpatial && w.size() == x.size(), "conv: input ", x, " and weight ", w,
             "; need [batch, channels, 1 to ", kMaxSpatial,
             " spatial dims] and [out channels, channels / groups, one kernel dim per spatial dim]");
  WEFT_CHECK(internal::is_computed_float(c.in[0].dtype), "conv: does not support ", c.in[0].dtype,
             "; need a floating-point dtype");
  WEFT_CHECK(c.in[0].dtype == c.in[1].dtype, "conv: input is ", c.in[0].dtype, " and weight ", c.in[1].dtype,
             "; need one dtype");
  const ConvDims d = dims_in(c.attrs);
  check_dims(d, spatial);
  WEFT_CHECK(x[1] == saturating_mul(w[1], d.groups), "conv: input ", x, " has ", x[1], " channels; weight ", w,
             d.groups > 1 ? str_cat(" in ", d.groups, " groups") : std::string(), " needs ",
             saturating_mul(w[1], d.groups));
  WEFT_CHECK(w[0] % d.groups == 0, "conv: weight ", w, " has ", w[0], " out channels; need a multiple of the ",
             d.groups, " groups");
  Shape out{x[0], w[0]};
  for (int i = 0; i < spatial; ++i) {
    const int64_t have = padded_of(d, i, x[i + 2]), need = reach_of(w[i + 2], d.dilation[i]);
    WEFT_CHECK(w[i + 2] >= 1, "conv: weight ", w, " has an empty kernel dim; need 1 or more");
    WEFT_CHECK(have >= need, "conv: a kernel of ", need, " elements does not fit into spatial dim ", i, " of input ", x,
               ", ", have, " with padding; need a smaller kernel or more padding");
    out.push_back((have - need) / d.stride[i] + 1);
  }
  return {TensorType{c.in[0].dtype, c.in[0].device, out}};
}

// Shapes with the channels in groups: [N, C, S...] as [N, G, C / G, S...].
Shape grouped(const Shape& s, int dim, int64_t groups) {
  Shape r;
  for (int i = 0; i < s.size(); ++i) {
    if (i == dim) r.push_back(groups);
    r.push_back(i == dim ? s[i] / groups : s[i]);
  }
  return r;
}

// x, spread and padded. Its spatial dims start at `at`.
Tensor padded(const Tensor& x, int at, const ConvDims& d) {
  Shape lo = Shape::filled(x.dim(), 0), hi = lo, interior = lo;
  bool any = false, crop = false;
  for (int i = 0; i < d.lo.size(); ++i) {
    lo[at + i] = std::max<int64_t>(d.lo[i], 0);
    hi[at + i] = std::max<int64_t>(d.hi[i], 0);
    interior[at + i] = d.interior[i];
    any |= d.lo[i] > 0 || d.hi[i] > 0 || d.interior[i] > 0;
    crop |= d.lo[i] < 0 || d.hi[i] < 0;
  }
  Tensor y = any ? dispatch(pad_op, {&x}, {{"lo", lo}, {"hi", hi}, {"interior", interior}, {"value", 0.0}}) : x;
  for (int i = 0; crop && i < d.lo.size(); ++i)
    y = slice(y, at + i, std::max<int64_t>(-d.lo[i], 0), y.size(at + i) - std::max<int64_t>(-d.hi[i], 0));
  return y;
}

// The windows of the padded operand that a kernel of this shape reads: [N, C, out..., K...], or [N, out..., C, K...] if
// the spatial dims start at 1.
Tensor windows_of(const Tensor& x, int at, const Shape& kernel, const ConvDims& d) {
  std::vector<Window> cuts;
  for (int i = 0; i < d.stride.size(); ++i) cuts.push_back({at + i, kernel[i + 2], d.stride[i], d.dilation[i]});
  return windows(padded(x, at, d), cuts);
}

Shape range(int begin, int count) {
  Shape r;
  for (int i = 0; i < count; ++i) r.push_back(begin + i);
  return r;
}

// [N, C, S...] as [N, S..., C], and back.
Tensor channels_last(const Tensor& x) {
  Shape dims = range(1, x.dim() - 1);
  for (int64_t& d : dims) d = d == x.dim() - 1 ? 1 : d + 1;
  dims.insert(0, 0);
  return permute(x, dims);
}
Tensor channels_first(const Tensor& x) {
  Shape dims = range(0, x.dim() - 1);
  dims.insert(1, x.dim() - 1);
  return permute(x, dims);
}

Tensor in_f32(const Tensor& x) { return is_16bit(x.dtype()) ? cast(x, kFloat32) : x; }

// True if each channel of y reads one channel of x: products then have one element, so the result is a sum of
// elementwise products.
bool is_depthwise(const Shape& w, int64_t groups) { return groups > 1 && w[1] == 1 && w[0] == groups; }

// True if groups are computed one at a time, because a dim for the groups would exceed kMaxDims.
bool by_group(int spatial, int64_t groups) { return groups > 1 && 3 + 2 * spatial > kMaxDims; }

// The calls of the groups, each with its channels.
template <class F>
Tensor each_group(const Tensor& a, int a_dim, const Tensor& b, int b_dim, int64_t groups, int out_dim, const F& fn) {
  std::vector<Tensor> parts;
  const int64_t na = a.size(a_dim) / groups, nb = b.size(b_dim) / groups;
  for (int64_t g = 0; g < groups; ++g)
    parts.push_back(fn(slice(a, a_dim, g * na, (g + 1) * na), slice(b, b_dim, g * nb, (g + 1) * nb)));
  return cat(parts, out_dim);
}

std::vector<Tensor> decompose_conv(const Attrs& attrs, std::span<const Tensor> in);

// Whether a convolution of a spread operand is computed by phases. Many phases would be many small products.
bool has_phases(const ConvDims& d) {
  constexpr int64_t kMostPhases = 8;
  int64_t phases = 1;
  for (int i = 0; i < d.stride.size(); ++i) {
    if (d.interior[i] > 0 && (d.stride[i] != 1 || d.dilation[i] != 1)) return false;
    phases = saturating_mul(phases, d.interior[i] + 1);
  }
  return phases > 1 && phases <= kMostPhases;
}

// A convolution of a spread operand, without its zeros. If there are s - 1 zeros between neighbours, results with equal
// positions modulo s read every s-th element of the kernel: they are a convolution of the operand before the spread.
class StridePhases {
 public:
  StridePhases(const Tensor& x, const Shape& w, const ConvDims& d) : x_(x), d_(d) {
    for (int i = 0; i < d.stride.size(); ++i) {
      const int64_t s = d.interior[i] + 1;
      const int64_t out = (padded_of(d, i, x.size(i + 2)) - reach_of(w[i + 2], d.dilation[i])) / d.stride[i] + 1;
      // Result t reads the elements from (t - lo) / s on, rounded up.
      const int64_t first = s == 1 ? 0 : divided_up(-d.lo[i], s), last = divided_up(out - 1 - d.lo[i], s);
      out_.push_back(out);
      first_.push_back(first);
      count_.push_back(s == 1 ? out : last - first + 1);
    }
  }

  /// [N, S..., O].
  Tensor run(const Tensor& w) const {
    Tensor y = dim(0, w);
    for (int i = 0; i < out_.size(); ++i) {
      const int64_t s = d_.interior[i] + 1, begin = s == 1 ? 0 : s - 1 - d_.lo[i] - s * first_[i];
      y = slice(y, 1 + i, begin, begin + out_[i]);
    }
    return y;
  }

 private:
  static int64_t divided_up(int64_t a, int64_t s) { return a / s + (a % s > 0); }

  // All results along the spatial dims from i on.
  Tensor dim(int i, const Tensor& w) const {
    if (i == out_.size()) return phase(w);
    const int64_t s = d_.interior[i] + 1, size = w.size(2 + i);
    if (s == 1) return dim(i + 1, w);
    std::vector<Tensor> parts;  // results s apart
    for (int64_t e = s - 1; e >= 0; --e) parts.push_back(dim(i + 1, slice(w, 2 + i, std::min(e, size), size, s)));
    const Tensor y = stack(parts, 2 + i);
    Shape shape = parts[0].shape();
    shape[1 + i] *= s;
    return reshape(y, shape);
  }

  Tensor phase(const Tensor& w) const {
    if (w.numel() == 0) {
      Shape shape{x_.size(0)};
      for (int64_t n : count_) shape.push_back(n);
      shape.push_back(w.size(0));
      return zeros(shape, {.dtype = x_.dtype(), .device = x_.device()});
    }
    ConvDims one = d_;
    for (int i = 0; i < out_.size(); ++i) {
      if (d_.interior[i] == 0) continue;
      one.interior[i] = 0;
      one.lo[i] = -first_[i];
      one.hi[i] = count_[i] - x_.size(i + 2) - one.lo[i] + w.size(i + 2) - 1;
    }
    return channels_last(decompose_conv(attrs_of(one), std::array{x_, w})[0]);
  }

  const Tensor& x_;
  const ConvDims& d_;
  Shape out_, first_, count_;  // spatial dim -> results, the element that phases read first, results of a phase
};

std::vector<Tensor> decompose_conv(const Attrs& attrs, std::span<const Tensor> in) {
  const Tensor &x = in[0], &w = in[1];
  ConvDims d = dims_in(attrs);
  const int spatial = x.dim() - 2;
  const Shape kernel = range(2 + spatial, spatial);  // its dims in the windows
  if (has_phases(d) && x.numel() > 0) return {channels_first(StridePhases(x, w.shape(), d).run(w))};
  if (internal::suits_winograd(x.type(), w.shape(), d))
    return {channels_first(internal::winograd(channels_last(x), w, d))};
  if (d.groups == 1) {
    Shape contract = kernel, weight = range(2, spatial);
    contract.push_back(1 + spatial);
    weight.push_back(1);
    return {channels_first(dot_general(windows_of(channels_last(x), 1, w.shape(), d), w, {{}, {}, contract, weight}))};
  }
  if (is_depthwise(w.shape(), d.groups)) {
    const Tensor v = in_f32(windows_of(x, 2, w.shape(), d));
    Shape shape{1, w.size(0)};
    for (int i = 0; i < spatial; ++i) shape.push_back(1);
    for (int i = 0; i < spatial; ++i) shape.push_back(w.size(i + 2));
    return {cast(sum(v * reshape(in_f32(w), shape), kernel), x.dtype())};
  }
  if (by_group(spatial, d.groups)) {
    ConvDims one = d;
    one.groups = 1;
    return {each_group(x, 1, w, 0, d.groups, 1, [&](const Tensor& part, const Tensor& weight) {
      return decompose_conv(attrs_of(one), std::array{part, weight})[0];
    })};
  }
  // One product for each image and group.
  Tensor v = windows_of(x, 2, w.shape(), d);
  Shape shape{x.size(0), w.size(0)};
  for (int i = 0; i < spatial; ++i) shape.push_back(v.size(i + 2));
  v = reshape(v, grouped(v.shape(), 1, d.groups));
  Tensor weight = reshape(w, grouped(w.shape(), 0, d.groups));
  Shape all = weight.shape(), contract = range(3 + spatial, spatial), weight_contract = range(4, spatial);
  all.insert(0, x.size(0));
  contract.insert(0, 2);
  weight_contract.insert(0, 3);
  const DotDims dims{{0, 1}, {0, 1}, weight_contract, contract};
  return {reshape(dot_general(broadcast_to(weight, all), v, dims), shape)};
}

// The gradient of the weight: for each element of the kernel, g times the elements that it reads.
Tensor weight_gradient(const Tensor& x, const Tensor& g, const Shape& w, const ConvDims& d) {
  const int spatial = x.dim() - 2;
  if (internal::suits_winograd(x.type(), w, d))
    return internal::winograd_weight_gradient(channels_last(x), channels_last(g), d);
  if (d.groups == 1) {
    const Shape places = range(0, 1 + spatial);  // the batch and the spatial dims of g
    Shape order = places;
    for (int i = 0; i < spatial; ++i) order.push_back(2 + spatial + i);
    order.push_back(1 + spatial);
    const Tensor v = permute(windows_of(channels_last(x), 1, w, d), order);
    return channels_first(dot_general(channels_last(g), v, {{}, {}, places, places}));
  }
  if (is_depthwise(w, d.groups)) {
    Shape shape = g.shape(), places = range(1, 1 + spatial);
    places[0] = 0;
    for (int i = 0; i < spatial; ++i) shape.push_back(1);
    const Tensor each = in_f32(windows_of(x, 2, w, d)) * reshape(in_f32(g), shape);
    return cast(reshape(sum(each, places), w), x.dtype());
  }
  if (by_group(spatial, d.groups)) {
    ConvDims one = d;
    one.groups = 1;
    Shape part{w[0] / d.groups};
    for (int i = 1; i < w.size(); ++i) part.push_back(w[i]);
    return each_group(x, 1, g, 1, d.groups, 0,
                      [&](const Tensor& a, const Tensor& b) { return weight_gradient(a, b, part, one); });
  }
  Tensor v = windows_of(x, 2, w, d);
  v = reshape(v, grouped(v.shape(), 1, d.groups));
  const Tensor y = reshape(g, grouped(g.shape(), 1, d.groups));
  Shape contract = range(3, spatial);
  contract.insert(0, 0);
  return reshape(dot_general(y, v, {{1}, {1}, contract, contract}), w);
}

Grads vjp_conv(const VjpCall& c) {
  const ConvDims d = dims_in(c.attrs);
  Grads r(2);
  if (c.needs(0)) {
    const Shape& x = c.in[0].shape();
    Shape extent;
    for (int i = 2; i < x.size(); ++i) extent.push_back(x[i]);
    r[0] = conv_transpose_general(c.grad[0], c.in[1], d, extent);
  }
  if (c.needs(1)) r[1] = weight_gradient(c.in[0], c.grad[0], c.in[1].shape(), d);
  return r;
}

// Channels of a group and elements of the kernel are contracted; with groups, channels do not split.
DimMap dims_conv(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const bool groups = attrs.i("groups") > 1;
  std::string x = groups ? "n c?" : "n c", w = groups ? "o? i?" : "o c", y = groups ? "n o?" : "n o";
  for (int i = 0; i < in[0].shape.size() - 2; ++i) {
    x += str_cat(" x", i, "?");
    w += str_cat(" k", i, "?");
    y += str_cat(" y", i, "?");
  }
  return DimMap::parse(str_cat(x, ", ", w, " -> ", y), in, out);
}

Cost cost_conv(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const Shape& w = in[1].shape;
  Cost c;
  c.flops = w[0] == 0 ? 0 : 2.0 * static_cast<double>(out[0].shape.numel()) * static_cast<double>(w.numel() / w[0]);
  if (const ConvDims d = dims_in(attrs); has_phases(d))
    for (int64_t zeros : d.interior) c.flops /= static_cast<double>(zeros + 1);
  c.bytes = internal::bytes_of(in) + internal::bytes_of(out);
  return c;
}

std::vector<Sample> samples_conv() {
  auto dims = [](int n) {
    const Shape one = Shape::filled(n, 1), none = Shape::filled(n, 0);
    return ConvDims{one, none, none, one, none};
  };
  auto call = [](const Shape& x, const Shape& w, const ConvDims& d, std::string error = "") {
    return Sample{{{x}, {w}}, attrs_of(d), std::move(error), true};
  };
  ConvDims strided = dims(1), padded = dims(2), mixed = dims(2), groups = dims(2), deep = dims(3), depthwise = dims(1),
           cropped = dims(1);
  strided.stride = {2};
  strided.lo = {1};
  padded.lo = padded.hi = {1, 1};
  mixed.stride = {1, 2};
  mixed.lo = {2, 0};
  mixed.hi = {1, 2};
  mixed.dilation = {2, 1};
  mixed.interior = {0, 1};
  groups.groups = 2;
  groups.hi = {1, 0};
  deep.stride = {1, 2, 1};
  depthwise.groups = 3;
  depthwise.lo = {1};
  cropped.lo = {-2};
  cropped.hi = {-1};
  ConvDims deep_groups = deep;
  deep_groups.groups = 2;
  ConvDims bad_stride = dims(1), bad_groups = dims(1);
  bad_stride.stride = {0};
  bad_groups.groups = 2;
  return {call({2, 3, 7}, {4, 3, 3}, dims(1)),
          call({1, 2, 8}, {3, 2, 3}, strided),
          call({2, 3, 5, 6}, {4, 3, 3, 3}, padded),
          call({2, 2, 6, 5}, {3, 2, 2, 3}, mixed),
          call({2, 4, 5, 4}, {6, 2, 2, 3}, groups),
          call({2, 2, 3, 5, 3}, {2, 2, 2, 2, 1}, deep),
          call({1, 4, 3, 5, 3}, {2, 2, 2, 2, 1}, deep_groups),
          call({2, 3, 6}, {3, 1, 3}, depthwise),
          call({1, 2, 9}, {2, 2, 3}, cropped),
          call({0, 2, 4}, {3, 2, 3}, dims(1)),
          call({2, 3, 7}, {4, 2, 3}, dims(1), "conv: input [2, 3, 7] has 3 channels; weight [4, 2, 3] needs 2"),
          call({2, 3, 2}, {4, 3, 3}, dims(1), "conv: a kernel of 3 elements does not fit into spatial dim 0 of input"),
          call({2, 3}, {4, 3}, dims(0), "conv: input [2, 3] and weight [4, 3]; need [batch, channels"),
          call({2, 3, 7}, {4, 3, 3}, bad_stride, "conv: stride [0]"),
          call({2, 4, 7}, {3, 2, 3}, bad_groups, "has 3 out channels; need a multiple of the 2 groups"),
          call({2, 3, 7}, {4, 3, 3}, dims(2), "conv: 2 entries of an attribute for 1 spatial dims")};
}

}  // namespace

// A kernel backwards in each dim has its elements in reverse order.
Tensor internal::flip_kernels(const Tensor& w) { return reshape(flip(flatten(w, 2), 2), w.shape()); }

Tensor conv_general(const Arg& x, const Arg& w, const ConvDims& dims) {
  internal::LineScope line(x.line());
  const Tensor &a = internal::tensor_of(x, "conv"), &b = internal::tensor_of(w, "conv");
  return dispatch(conv_op, {&a, &b}, attrs_of(dims));
}

// dx[i] is the sum over k of g, spread by the stride, at i * (interior + 1) + lo - k * dilation.
Tensor conv_transpose_general(const Arg& y, const Arg& w, const ConvDims& d, const Shape& extent) {
  internal::LineScope line(y.line());
  const Tensor g = internal::autocast(internal::tensor_of(y, "conv_transpose")),
               weight = internal::autocast(internal::tensor_of(w, "conv_transpose"));
  const int spatial = g.dim() - 2;
  WEFT_CHECK(spatial >= 1 && weight.dim() == g.dim() && extent.size() == spatial, "conv_transpose: input ", g.shape(),
             " and weight ", weight.shape(), "; need [batch, channels, spatial dims] and equal numbers of dims");
  check_dims(d, spatial);
  WEFT_CHECK(weight.size(0) % d.groups == 0, "conv_transpose: weight ", weight.shape(), " has ", weight.size(0),
             " channels; need a multiple of the ", d.groups, " groups");
  ConvDims back;
  back.groups = d.groups;
  for (int i = 0; i < spatial; ++i) {
    const int64_t reach = reach_of(weight.size(i + 2), d.dilation[i]), lo = reach - 1 - d.lo[i];
    back.stride.push_back(d.interior[i] + 1);
    back.dilation.push_back(d.dilation[i]);
    back.interior.push_back(d.stride[i] - 1);
    back.lo.push_back(lo);
    back.hi.push_back((extent[i] - 1) * (d.interior[i] + 1) + reach - lo - spread_of(g.size(i + 2), d.stride[i] - 1));
  }
  const bool fits = g.dtype() == weight.dtype() && g.size(1) == weight.size(0);  // else conv_general reports
  if (const Tensor turned = transpose(weight, 0, 1); fits && internal::suits_winograd(g.type(), turned.shape(), back))
    return channels_first(internal::winograd(channels_last(g), turned, back, /*flip=*/true));
  Tensor t = internal::flip_kernels(weight);
  // [O, C / groups, K...] as [C, O / groups, K...].
  if (d.groups == 1) return conv_general(g, transpose(t, 0, 1), back);
  t = transpose(reshape(t, grouped(t.shape(), 0, d.groups)), 1, 2);
  Shape shape{t.size(0) * t.size(1)};
  for (int i = 2; i < t.dim(); ++i) shape.push_back(t.size(i));
  return conv_general(g, reshape(t, shape), back);
}

const OpDef conv_op = {
    .name = "conv",
    .doc = "Convolution of [N, C, S...] with [O, C / groups, K...], after spreading by {interior} and padding.",
    .traits = kContraction,
    .num_inputs = 2,
    .flops_per_point = 2,
    .infer = infer_conv,
    .vjp = vjp_conv,
    .dims = dims_conv,
    .cost = cost_conv,
    .decompose = decompose_conv,
    .samples = samples_conv,
    .vjp_reads_out = 0,
    .linear = 3,
};

std::span<const OpDef* const> conv_ops() {
  static const OpDef* const all[] = {&conv_op};
  return all;
}

}  // namespace weft
