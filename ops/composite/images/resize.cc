#include "ops/composite/images/resize.h"

#include <algorithm>
#include <cmath>

#include "ops/composite/host_list.h"
#include "ops/composite/images/pool.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"

namespace weft {

using namespace internal;

namespace {

// The number of positions of x per position of the result. It follows from the factor, if one was given.
double ratio(int64_t in, int64_t out, std::optional<double> factor) {
  return factor ? 1 / *factor : static_cast<double>(in) / static_cast<double>(out);
}

Tensor nearest(const Tensor& x, int dim, int64_t out, std::optional<double> factor, bool exact) {
  const int64_t in = x.size(dim);
  if (out == in && !factor) return x;
  const double step = ratio(in, out, factor);
  const Tensor at = host_list<int64_t>(out, x.device(), [&](std::span<int64_t> to) {
    for (int64_t i = 0; i < out; ++i) {
      const double place = exact ? (static_cast<double>(i) + 0.5) * step : static_cast<double>(i) * step;
      to[static_cast<size_t>(i)] = std::clamp<int64_t>(static_cast<int64_t>(std::floor(place)), 0, in - 1);
    }
  });
  return index_select(x, dim, at);
}

Tensor linear(const Tensor& x, int dim, int64_t out, std::optional<double> factor, bool align_corners) {
  const int64_t in = x.size(dim);
  const auto place = [&](int64_t i) {
    if (!align_corners) return std::max(0.0, (static_cast<double>(i) + 0.5) * ratio(in, out, factor) - 0.5);
    return out > 1 ? static_cast<double>(i) * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  };
  const auto lower = [&](int64_t i) { return std::min<int64_t>(static_cast<int64_t>(place(i)), in - 1); };
  const auto neighbour = [&](int64_t after) {
    return index_select(x, dim, host_list<int64_t>(out, x.device(), [&](std::span<int64_t> to) {
                          for (int64_t i = 0; i < out; ++i)
                            to[static_cast<size_t>(i)] = std::min(lower(i) + after, in - 1);
                        }));
  };
  const Tensor share = host_list<double>(out, Device::cpu(), [&](std::span<double> to) {  // of the higher neighbour
    for (int64_t i = 0; i < out; ++i)
      to[static_cast<size_t>(i)] = std::min(place(i) - static_cast<double>(lower(i)), 1.0);
  });
  Shape wide = Shape::filled(x.dim(), 1);
  wide[dim] = out;
  const Tensor w = reshape(share.to(x.dtype()).to(x.device()), wide), a = neighbour(0);
  return a + (neighbour(1) - a) * w;
}

}  // namespace

Tensor interpolate(const Arg& arg, const InterpolateOptions& o) {
  FloatingOperand x(arg, "interpolate");
  const int spatial = x.dim() - 2;
  WEFT_CHECK(spatial >= 1 && spatial <= 3, "interpolate: x is ", x.type(), "; need [N, C, 1 to 3 spatial dims]");
  const bool exact = o.mode == "nearest-exact", is_nearest = exact || o.mode == "nearest", area = o.mode == "area";
  const char* const names[] = {"linear", "bilinear", "trilinear"};
  WEFT_CHECK(is_nearest || area || o.mode == names[spatial - 1], "interpolate: mode is '", o.mode, "' for ", spatial,
             spatial == 1 ? " spatial dim" : " spatial dims", "; need \"nearest\", \"nearest-exact\", \"area\" or \"",
             names[spatial - 1], "\"");
  WEFT_CHECK(!o.align_corners || (!is_nearest && !area), "interpolate: align_corners with mode '", o.mode,
             "'; need a linear mode");
  WEFT_CHECK(o.size.empty() != o.scale_factor.empty(), "interpolate: got ",
             o.size.empty() ? "neither size nor scale_factor" : "size and scale_factor", "; need one of them");
  const auto factors = static_cast<int>(o.scale_factor.size());
  WEFT_CHECK(o.size.empty() ? factors == 1 || factors == spatial : o.size.size() == 1 || o.size.size() == spatial,
             "interpolate: got ", o.size.empty() ? factors : o.size.size(), " numbers for ", spatial,
             spatial == 1 ? " spatial dim" : " spatial dims", "; need one, or one for each");
  Shape size;
  std::vector<std::optional<double>> factor(static_cast<size_t>(spatial));
  for (int i = 0; i < spatial; ++i) {
    const int64_t n = x.size(i + 2);
    WEFT_CHECK(n >= 1, "interpolate: x ", x.shape(), " is empty in spatial dim ", i, "; need 1 or more");
    if (o.size.empty()) {
      const double f = o.scale_factor[factors == 1 ? 0 : static_cast<size_t>(i)];
      WEFT_CHECK(f > 0 && f * static_cast<double>(n) < 1e15, "interpolate: scale_factor is ", f,
                 "; need a number above 0 that keeps the extent below 1e15");
      factor[static_cast<size_t>(i)] = f;
      size.push_back(static_cast<int64_t>(std::floor(static_cast<double>(n) * f)));
    } else {
      size.push_back(o.size[o.size.size() == 1 ? 0 : i]);
    }
    WEFT_CHECK(size[i] >= 1, "interpolate: the result has ", size[i], " positions in spatial dim ", i,
               "; need 1 or more");
  }
  Shape result = x.shape();
  for (int i = 0; i < spatial; ++i) result[i + 2] = size[i];
  checked_numel(result, "interpolate");
  if (area) return adaptive_pool_nd("interpolate", spatial, x, size, /*max=*/false);
  Tensor y = is_nearest ? x : widened(x);
  for (int i = 0; i < spatial; ++i) {
    const std::optional<double> f = factor[static_cast<size_t>(i)];
    y = is_nearest ? nearest(y, i + 2, size[i], f, exact) : linear(y, i + 2, size[i], f, o.align_corners);
  }
  return y.to(x.dtype());
}

Tensor interpolate(const Arg& x, double scale_factor) {
  LineScope line(x.line());
  WEFT_CHECK(scale_factor != 0,  // as from interpolate(x, {})
             "interpolate: scale_factor is 0, or neither it nor size is given; need one of them, above 0");
  return interpolate(x, InterpolateOptions{.scale_factor = {scale_factor}});
}

}  // namespace weft
