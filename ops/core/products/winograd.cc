#include "ops/core/products/winograd.h"

#include "framework/base/saturate.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/window.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/products/winograd.h"

namespace weft {
namespace {

kernels::WinogradPadding padding_of(const Attrs& attrs) {
  const Shape& lo = attrs.ints("lo");
  return {lo[0], lo[1]};
}

void check(const InferCall& c) {
  for (const TensorType& t : {c.in[0], c.in[1]})
    WEFT_CHECK(t.dtype == kFloat32 && t.shape.size() == 4, c.op.name, ": got ", c.in[0], " and ", c.in[1],
               "; need f32 with four dims");
  for (const char* key : {"lo", "hi"}) {
    const Shape& n = c.attrs.ints(key);
    WEFT_CHECK(n.size() == 2 && n[0] >= 0 && n[1] >= 0, c.op.name, ": ", key, " is ", n,
               "; need a number of rows and one of columns");
  }
}
// The results along spatial dim i.
int64_t results(const InferCall& c, int i) {
  const int64_t n =
      saturating_add(saturating_add(c.in[0].shape[1 + i], c.attrs.ints("lo")[i]), c.attrs.ints("hi")[i]) - 2;
  WEFT_CHECK(n >= 1, c.op.name, ": the kernel does not fit into dim ", 1 + i, " of ", c.in[0].shape,
             " with padding; need 3 elements");
  return n;
}

Types infer_winograd(const InferCall& c) {
  check(c);
  const Shape &x = c.in[0].shape, &w = c.in[1].shape;
  WEFT_CHECK(w[1] == x[3] && w[2] == 3 && w[3] == 3, c.op.name, ": got ", c.in[0], " and ", c.in[1],
             "; need [N, H, W, C] and [O, C, 3, 3]");
  return {TensorType{kFloat32, c.in[0].device, Shape{x[0], results(c, 0), results(c, 1), w[0]}}};
}

Types infer_weight_gradient(const InferCall& c) {
  check(c);
  const Shape &x = c.in[0].shape, &g = c.in[1].shape;
  WEFT_CHECK((g == Shape{x[0], results(c, 0), results(c, 1), g[3]}), c.op.name, ": got ", c.in[0], " and ", c.in[1],
             "; need [N, H, W, C] and the shape of the convolution's result");
  return {TensorType{kFloat32, c.in[0].device, Shape{g[3], x[3], 3, 3}}};
}

// [N, C, H, W] <-> [N, H, W, C].
Tensor channels_last(const Tensor& x) { return permute(x, {0, 2, 3, 1}); }
Tensor channels_first(const Tensor& x) { return permute(x, {0, 3, 1, 2}); }

ConvDims dims_in(const Attrs& attrs) {
  return {.stride = {1, 1}, .lo = attrs.ints("lo"), .hi = attrs.ints("hi"), .dilation = {1, 1}, .interior = {0, 0}};
}

// [N, I, J, C, 3, 3]: the elements that each result reads.
Tensor windows_of(const Tensor& x, const Attrs& attrs) {
  const Shape &lo = attrs.ints("lo"), &hi = attrs.ints("hi");
  return windows(pad(x, std::vector<int64_t>{0, 0, lo[1], hi[1], lo[0], hi[0]}),
                 std::vector<internal::Window>{{1, 3}, {2, 3}});
}

// The kernels as the op uses them.
Tensor kernels_of(const Tensor& w, const Attrs& attrs) { return attrs.b("flip") ? internal::flip_kernels(w) : w; }

std::vector<Tensor> decompose_winograd(const Attrs& attrs, std::span<const Tensor> in) {
  return {dot_general(windows_of(in[0], attrs), kernels_of(in[1], attrs), {{}, {}, {4, 5, 3}, {2, 3, 1}})};
}
std::vector<Tensor> decompose_weight_gradient(const Attrs& attrs, std::span<const Tensor> in) {
  return {dot_general(in[1], windows_of(in[0], attrs), {{}, {}, {0, 1, 2}, {0, 1, 2}})};
}

// The gradient of x is a convolution, which chooses how it is computed.
Grads vjp_winograd(const VjpCall& c) {
  const ConvDims d = dims_in(c.attrs);
  Grads r(2);
  if (c.needs(0)) {
    const Shape& x = c.in[0].shape();
    const Tensor w = kernels_of(c.in[1], c.attrs);
    r[0] = channels_last(conv_transpose_general(channels_first(c.grad[0]), w, d, {x[1], x[2]}));
  }
  if (c.needs(1)) r[1] = kernels_of(internal::winograd_weight_gradient(c.in[0], c.grad[0], d), c.attrs);
  return r;
}
Grads vjp_weight_gradient(const VjpCall& c) {
  const ConvDims d = dims_in(c.attrs);
  const Tensor& w = c.grad[0];
  Grads r(2);
  if (c.needs(0)) {
    const Shape& x = c.in[0].shape();
    r[0] = channels_last(conv_transpose_general(channels_first(c.in[1]), w, d, {x[1], x[2]}));
  }
  if (c.needs(1)) r[1] = channels_last(conv_general(channels_first(c.in[0]), w, d));
  return r;
}

void run_winograd(const KernelCall& c) {
  kernels::winograd(c.in[0], c.in[1], c.out[0], padding_of(c.attrs), c.attrs.b("flip"), c.workspace);
}
int64_t winograd_bytes(const Attrs&, std::span<const StridedView> in, std::span<const StridedView> out) {
  return kernels::winograd_workspace(in[0], out[0]);
}
void run_weight_gradient(const KernelCall& c) {
  kernels::winograd_weight_gradient(c.in[0], c.in[1], c.out[0], padding_of(c.attrs), c.workspace);
}
int64_t weight_gradient_bytes(const Attrs&, std::span<const StridedView> in, std::span<const StridedView> out) {
  return kernels::winograd_weight_gradient_workspace(in[0], in[1]);
}

// 16 products of channels for each tile of 2 x 2 results.
Cost cost_of(const Shape& results, int64_t channels, std::span<const TensorType> in, std::span<const TensorType> out) {
  Cost c;
  const double tiles = static_cast<double>(results[0]) * static_cast<double>((results[1] + 1) / 2) *
                       static_cast<double>((results[2] + 1) / 2);
  c.products = c.flops = 2.0 * 16 * tiles * static_cast<double>(channels) * static_cast<double>(results[3]);
  c.bytes = internal::bytes_of(in) + internal::bytes_of(out);
  return c;
}

}  // namespace

namespace internal {

// If there are fewer channels, the transforms take longer than the products that they save.
bool suits_winograd(const TensorType& x, const Shape& w, const ConvDims& d) {
  constexpr int64_t kFewChannels = 32;
  const Shape one{1, 1}, none{0, 0};
  if (x.dtype != kFloat32 || x.device.type != DeviceType::kCpu || w.size() != 4 || w[2] != 3 || w[3] != 3) return false;
  for (int64_t n : {d.lo[0], d.lo[1], d.hi[0], d.hi[1]})
    if (n < 0) return false;
  return d.groups == 1 && d.stride == one && d.dilation == one && d.interior == none && w[0] >= kFewChannels &&
         w[1] >= kFewChannels && x.shape[0] > 0;
}

Tensor winograd(const Tensor& x, const Tensor& w, const ConvDims& d, bool flip) {
  return dispatch(winograd_op, {&x, &w}, {{"lo", d.lo}, {"hi", d.hi}, {"flip", flip}});
}
Tensor winograd_weight_gradient(const Tensor& x, const Tensor& g, const ConvDims& d) {
  return dispatch(winograd_weight_gradient_op, {&x, &g}, {{"lo", d.lo}, {"hi", d.hi}});
}

}  // namespace internal

const OpDef winograd_op = {
    .name = "winograd",
    .doc = "Convolution of [N, H, W, C] with 3 x 3 kernels [O, C, 3, 3], by Winograd's transforms.",
    .traits = kContraction,
    .num_inputs = 2,
    .infer = infer_winograd,
    .vjp = vjp_winograd,
    .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("n y? x? c, o c k? l? -> n i? j? o", in, out); },
    .cost = [](const Attrs&, auto in, auto out) { return cost_of(out[0].shape, in[0].shape[3], in, out); },
    .kernel = run_winograd,
    .workspace = winograd_bytes,
    .decompose = decompose_winograd,
    .vjp_reads_out = 0,
    .linear = 3,
};

const OpDef winograd_weight_gradient_op = {
    .name = "winograd_weight_gradient",
    .doc = "The gradient [O, C, 3, 3] of the kernels of a convolution, by Winograd's transforms.",
    .traits = kContraction,
    .num_inputs = 2,
    .infer = infer_weight_gradient,
    .vjp = vjp_weight_gradient,
    .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("n y? x? c, n i? j? o -> o c k? l?", in, out); },
    .cost = [](const Attrs&, auto in, auto out) { return cost_of(in[1].shape, in[0].shape[3], in, out); },
    .kernel = run_weight_gradient,
    .workspace = weight_gradient_bytes,
    .decompose = decompose_weight_gradient,
    .vjp_reads_out = 0,
    .linear = 3,
};

std::span<const OpDef* const> winograd_ops() {
  static const OpDef* const all[] = {&winograd_op, &winograd_weight_gradient_op};
  return all;
}

}  // namespace weft
