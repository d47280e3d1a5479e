#include "ops/composite/images/resize.h"

#include <algorithm>
#include <cmath>

#include "ops/composite/host_list.h"
#include "ops/composite/images/pool.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/dot.h"

namespace weft {

using namespace internal;

namespace {

// The number of positions of x per position of the result. It follows from the factor, if one was given.
double ratio(int64_t in, int64_t out, std::optional<double> factor) {
  return factor ? 1 / *factor : static_cast<double>(in) / static_cast<double>(out);
}

// The same if the centres of the first and last positions keep their places.
double corner_ratio(int64_t in, int64_t out) {
  return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
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
  // The share of the higher neighbour.
  const Tensor share = host_list<double>(out, Device::cpu(), [&](std::span<double> to) {
    for (int64_t i = 0; i < out; ++i)
      to[static_cast<size_t>(i)] = std::min(place(i) - static_cast<double>(lower(i)), 1.0);
  });
  Shape wide = Shape::filled(x.dim(), 1);
  wide[dim] = out;
  const Tensor w = reshape(share.to(x.dtype()).to(x.device()), wide), a = neighbour(0);
  return a + (neighbour(1) - a) * w;
}

// The weight of a neighbour at this distance: the cubic convolution of Keys (1981) with slope a, or a triangle.
double kernel_weight(double distance, bool cubic, double a) {
  const double d = std::fabs(distance);
  if (!cubic) return std::max(0.0, 1 - d);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
}

// Each position of the result is a weighted sum of `taps` neighbours: position i of neighbour at[i * taps + k].
struct Taps {
  int64_t taps;
  std::vector<int64_t> at;
  std::vector<double> weight;
};

Taps cubic_taps(int64_t in, int64_t out, std::optional<double> factor, bool align_corners) {
  Taps r{4, {}, {}};
  for (int64_t i = 0; i < out; ++i) {
    const double place = align_corners ? static_cast<double>(i) * corner_ratio(in, out)
                                       : (static_cast<double>(i) + 0.5) * ratio(in, out, factor) - 0.5;
    const auto lower = static_cast<int64_t>(std::floor(place));
    for (int64_t k = lower - 1; k < lower + 3; ++k) {
      r.at.push_back(std::clamp<int64_t>(k, 0, in - 1));
      r.weight.push_back(kernel_weight(place - static_cast<double>(k), true, -0.75));
    }
  }
  return r;
}

// As PyTorch and Pillow: the neighbourhood is wider by the ratio of a smaller result, and the weights sum to 1.
Taps antialias_taps(int64_t in, int64_t out, std::optional<double> factor, bool align_corners, bool cubic) {
  const double step = align_corners ? corner_ratio(in, out) : ratio(in, out, factor), wide = std::max(step, 1.0);
  const double reach = (cubic ? 2 : 1) * wide;
  Taps r{std::min(2 * static_cast<int64_t>(std::ceil(reach)) + 1, in), {}, {}};
  for (int64_t i = 0; i < out; ++i) {
    const double center = step * (static_cast<double>(i) + 0.5);
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - reach + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + reach + 0.5), in);
    double total = 0;
    const auto weight = [&](int64_t k) {
      return k < end ? kernel_weight((static_cast<double>(k) - center + 0.5) / wide, cubic, -0.5) : 0;
    };
    for (int64_t k = begin; k < end; ++k) total += weight(k);
    for (int64_t k = begin; k < begin + r.taps; ++k) {
      r.at.push_back(std::min(k, in - 1));
      r.weight.push_back(total != 0 ? weight(k) / total : weight(k));
    }
  }
  return r;
}

constexpr int64_t kFewTaps = 4;

// Few neighbours are looked up one after another; more are a product with the matrix of all weights.
Tensor weighted(const Tensor& x, int dim, int64_t out, const Taps& t) {
  const auto list = [&]<class T>(int64_t n, T, const auto& value) {
    return host_list<T>(n, Device::cpu(), [&](std::span<T> to) {
      for (int64_t i = 0; i < n; ++i) to[static_cast<size_t>(i)] = value(static_cast<size_t>(i));
    });
  };
  const int64_t in = x.size(dim), taps = t.taps;
  if (taps > kFewTaps) {
    std::vector<double> matrix(static_cast<size_t>(in * out));
    for (int64_t i = 0; i < out * taps; ++i)
      matrix[static_cast<size_t>(t.at[static_cast<size_t>(i)] * out + i / taps)] += t.weight[static_cast<size_t>(i)];
    const Tensor w = reshape(list(in * out, 0.0, [&](size_t i) { return matrix[i]; }), {in, out});
    const Autocast off(std::nullopt);
    return movedim(matmul(movedim(x, dim, -1), w.to(x.dtype()).to(x.device())), -1, dim);
  }
  Shape wide = Shape::filled(x.dim(), 1);
  wide[dim] = out;
  Tensor sum;
  for (int64_t k = 0; k < taps; ++k) {
    const auto of = [&](size_t i) { return i * static_cast<size_t>(taps) + static_cast<size_t>(k); };
    const Tensor at = list(out, int64_t{}, [&](size_t i) { return t.at[of(i)]; }).to(x.device());
    const Tensor w = list(out, 0.0, [&](size_t i) { return t.weight[of(i)]; });
    const Tensor term = index_select(x, dim, at) * reshape(w.to(x.dtype()).to(x.device()), wide);
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

}  // namespace

Tensor interpolate(const Arg& arg, const InterpolateOptions& o) {
  FloatingOperand x(arg, "interpolate");
  const int spatial = x.dim() - 2;
  WEFT_CHECK(spatial >= 1 && spatial <= 3, "interpolate: x is ", x.type(), "; need [N, C, 1 to 3 spatial dims]");
  const bool exact = o.mode == "nearest-exact", is_nearest = exact || o.mode == "nearest", area = o.mode == "area";
  const char* const names[] = {"linear", "bilinear", "trilinear"};
  const bool cubic = o.mode == "bicubic" && spatial == 2;
  WEFT_CHECK(is_nearest || area || cubic || o.mode == names[spatial - 1], "interpolate: mode is '", o.mode, "' for ",
             spatial, spatial == 1 ? " spatial dim" : " spatial dims",
             "; need \"nearest\", \"nearest-exact\", \"area\"", spatial == 2 ? ", \"bicubic\"" : "", " or \"",
             names[spatial - 1], "\"");
  WEFT_CHECK(!o.align_corners || (!is_nearest && !area), "interpolate: align_corners with mode '", o.mode,
             "'; need a linear mode or bicubic");
  WEFT_CHECK(!o.antialias || cubic || o.mode == "bilinear", "interpolate: antialias with mode '", o.mode,
             "'; need \"bilinear\" or \"bicubic\"");
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
  const Tensor v = autocast_f32(x);
  Tensor y = is_nearest ? v : widened(v);
  for (int i = 0; i < spatial; ++i) {
    const std::optional<double> f = factor[static_cast<size_t>(i)];
    const int64_t in = y.size(i + 2);
    if (o.antialias) {
      y = weighted(y, i + 2, size[i], antialias_taps(in, size[i], f, o.align_corners, cubic));
    } else if (cubic) {
      y = weighted(y, i + 2, size[i], cubic_taps(in, size[i], f, o.align_corners));
    } else {
      y = is_nearest ? nearest(y, i + 2, size[i], f, exact) : linear(y, i + 2, size[i], f, o.align_corners);
    }
  }
  return y.to(v.dtype());
}

Tensor interpolate(const Arg& x, double scale_factor) {
  LineScope line(x.line());
  WEFT_CHECK(scale_factor != 0,  // as from interpolate(x, {})
             "interpolate: scale_factor is 0, or neither it nor size is given; need one of them, above 0");
  return interpolate(x, InterpolateOptions{.scale_factor = {scale_factor}});
}

}  // namespace weft
