#include "ops/composite/images/sample.h"

#include <vector>

#include "ops/composite/images/grid.h"
#include "ops/composite/layers/activation.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"
#include "ops/core/products/dot.h"

namespace weft {

using namespace internal;

namespace {

// The dims of x after the first `batch`, in this order.
Tensor reordered(const Tensor& x, int batch, std::initializer_list<int> order) {
  Shape dims;
  for (int d = 0; d < batch; ++d) dims.push_back(d);
  for (int d : order) dims.push_back(batch + d);
  return permute(x, dims);
}

// x with other extents after the first `batch`.
Tensor with_rest(const Tensor& x, int batch, std::initializer_list<int64_t> extents) {
  Shape shape(std::span<const int64_t>(x.shape()).first(batch));
  for (int64_t n : extents) shape.push_back(n);
  return reshape(x, shape);
}

// Places outside of an image of n pixels, mirrored at its edges or at the centres of its outer pixels.
Tensor reflected(const Tensor& at, int64_t n, bool align_corners) {
  const double least = align_corners ? 0 : -0.5,
               span = align_corners ? static_cast<double>(n - 1) : static_cast<double>(n);
  if (span == 0) return at * 0.0;
  const Tensor rest = remainder(abs(at - least), 2 * span);
  return where(lt(rest, span), rest, 2 * span - rest) + least;
}

// Places in [-1, 1] as pixels of an image of n, after the treatment of places outside.
Tensor pixels(const Tensor& place, int64_t n, const GridSampleOptions& o) {
  const auto count = static_cast<double>(n);
  Tensor at = o.align_corners ? (place + 1.0) * ((count - 1) / 2) : ((place + 1.0) * count - 1.0) * 0.5;
  if (o.padding_mode == "zeros") return at;
  if (o.padding_mode == "reflection") at = reflected(at, n, o.align_corners);
  return clamp(at, 0.0, count - 1);
}

}  // namespace

Tensor pixel_shuffle(const Arg& arg, int64_t r) {
  const FirstOperand x(arg, "pixel_shuffle");
  WEFT_CHECK(r >= 1 && r < (1 << 24), "pixel_shuffle: upscale_factor is ", r, "; need 1 or more");
  WEFT_CHECK(x.dim() >= 3 && x.size(-3) % (r * r) == 0, "pixel_shuffle: x is ", x.type(), "; need [..., C * ", r * r,
             ", H, W]");
  const int batch = x.dim() - 3;
  const int64_t c = x.size(-3) / (r * r), h = x.size(-2), w = x.size(-1);
  const Tensor y = with_rest(x, batch, {c, r, r, h, w});
  return with_rest(reordered(y, batch, {0, 3, 1, 4, 2}), batch, {c, h * r, w * r});
}

Tensor pixel_unshuffle(const Arg& arg, int64_t r) {
  const FirstOperand x(arg, "pixel_unshuffle");
  WEFT_CHECK(r >= 1, "pixel_unshuffle: downscale_factor is ", r, "; need 1 or more");
  WEFT_CHECK(x.dim() >= 3 && x.size(-2) % r == 0 && x.size(-1) % r == 0, "pixel_unshuffle: x is ", x.type(),
             "; need [..., C, H * ", r, ", W * ", r, "]");
  const int batch = x.dim() - 3;
  const int64_t c = x.size(-3), h = x.size(-2) / r, w = x.size(-1) / r;
  const Tensor y = with_rest(x, batch, {c, h, r, w, r});
  return with_rest(reordered(y, batch, {0, 2, 4, 1, 3}), batch, {c * r * r, h, w});
}

Tensor affine_grid(const Arg& arg, const Shape& size, bool align_corners) {
  const FloatingOperand theta(arg, "affine_grid");
  const int n = size.size() - 2;
  WEFT_CHECK((n == 2 || n == 3) && theta.shape() == Shape({size[0], n, n + 1}), "affine_grid: theta is ", theta.type(),
             " for size ", size, "; need [N, 2, 3] for [N, C, H, W], or [N, 3, 4] for [N, C, D, H, W]");
  const Tensor wide = widened(theta);
  Shape spatial(std::span<const int64_t>(size).subspan(2)), shape = spatial;
  std::vector<Tensor> columns;
  for (int d = n; d-- > 0;) {  // x first
    const auto count = static_cast<double>(spatial[d]);
    const double edge = spatial[d] <= 1 ? 0 : align_corners ? 1 : (count - 1) / count;
    Shape along = Shape::filled(n, 1);
    along[d] = spatial[d];
    const Tensor line = linspace(-edge, edge, spatial[d], {.dtype = wide.dtype(), .device = theta.device()});
    columns.push_back(flatten(broadcast_to(reshape(line, along), spatial)));
  }
  columns.push_back(ones_like(columns[0]));
  const Autocast off(std::nullopt);
  shape = {size[0]};
  for (int64_t extent : spatial) shape.push_back(extent);
  shape.push_back(n);
  return reshape(matmul(stack(columns, 1), transpose(wide, 1, 2)), shape).to(theta.dtype());
}

Tensor grid_sample(const Arg& arg, const Arg& places, const GridSampleOptions& o) {
  const FloatingOperand x(arg, "grid_sample");
  const Tensor& grid = floating_of(places, "grid_sample");
  const int n = x.dim() - 2;
  const bool fits = (n == 2 || n == 3) && grid.dim() == n + 2 && grid.size(0) == x.size(0) && grid.size(-1) == n;
  WEFT_CHECK(fits, "grid_sample: x is ", x.type(), " and grid ", grid.type(),
             "; need [N, C, H, W] and [N, H, W, 2], or [N, C, D, H, W] and [N, D, H, W, 3]");
  WEFT_CHECK(o.mode == "bilinear" || o.mode == "nearest", "grid_sample: mode is '", o.mode,
             "'; need \"bilinear\" or \"nearest\"");
  WEFT_CHECK(o.padding_mode == "zeros" || o.padding_mode == "border" || o.padding_mode == "reflection",
             "grid_sample: padding_mode is '", o.padding_mode, "'; need \"zeros\", \"border\" or \"reflection\"");
  for (int d = 0; d < n; ++d)
    WEFT_CHECK(x.size(2 + d) >= 1, "grid_sample: x ", x.type(), " is empty in spatial dim ", d, "; need 1 or more");
  const bool nearest = o.mode == "nearest";
  const Tensor wide = widened(x), own = grid.to(dtype_with(grid, wide, "grid_sample", "the grid is"));
  const Tensor flat = flatten(wide, 2), at = flatten(own, 1, n);  // [N, C, HW], [N, out, n]
  std::vector<Tensor> lower, share;
  for (int d = 0; d < n; ++d) {
    const Tensor p = pixels(select(at, -1, n - 1 - d), x.size(2 + d), o);
    lower.push_back(nearest ? round(p.detach()) : floor(p.detach()));
    if (!nearest) share.push_back(p - lower.back());  // the weight of the higher neighbour
  }
  Tensor sum;
  for (int corner = 0; corner < (nearest ? 1 : 1 << n); ++corner) {
    Tensor place, weight, inside;
    for (int d = 0; d < n; ++d) {
      const bool higher = corner >> (n - 1 - d) & 1;
      const int64_t extent = x.size(2 + d);
      const Tensor q = higher ? lower[static_cast<size_t>(d)] + 1.0 : lower[static_cast<size_t>(d)];
      const Tensor in = ge(q, 0.0) & le(q, static_cast<double>(extent - 1));
      const Tensor index = cast(where(in, q, 0.0), kInt64);
      inside = inside.defined() ? inside & in : in;
      place = place.defined() ? place * extent + index : index;
      if (nearest) continue;
      const Tensor& s = share[static_cast<size_t>(d)];
      const Tensor part = higher ? s : 1.0 - s;
      weight = weight.defined() ? weight * part : part;
    }
    const Tensor from = broadcast_to(unsqueeze(place, 1), {x.size(0), x.size(1), place.size(1)});
    const Tensor value = gather(flat, 2, from);
    const Tensor term = where(unsqueeze(inside, 1), nearest ? value : value * unsqueeze(weight, 1), 0.0);
    sum = sum.defined() ? sum + term : term;
  }
  Shape shape{x.size(0), x.size(1)};
  for (int d = 0; d < n; ++d) shape.push_back(grid.size(1 + d));
  return reshape(sum, shape).to(x.dtype());
}

Tensor grid_sample(const Arg& x, const Arg& grid, std::string_view mode, std::string_view padding_mode,
                   bool align_corners) {
  LineScope line(x.line());
  return grid_sample(x, grid, GridSampleOptions{mode, padding_mode, align_corners});
}

}  // namespace weft
