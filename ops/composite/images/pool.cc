#include "ops/composite/images/pool.h"

#include <limits>
#include <vector>

#include "framework/autodiff/grad.h"
#include "framework/base/saturate.h"
#include "framework/dispatch/dispatch.h"
#include "ops/composite/host_list.h"
#include "ops/composite/indexing.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/products/window.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using internal::FirstOperand;
using internal::FloatingOperand;
using internal::Window;

namespace {

void check_dims(const char* op, const Tensor& x, int spatial) {
  const std::string dims = str_cat(spatial, spatial == 1 ? " spatial dim]" : " spatial dims]");
  WEFT_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2, op, ": input is ", x.type(), "; need [N, C, ", dims,
             " or [C, ", dims);
}

// The geometry of a pool: windows of the padded input.
struct Pool {
  int spatial, first;  // the first spatial dim
  Shape kernel, stride, padding, dilation;
  Shape beyond;  // places after the padding that ceil_mode adds

  Pool(const char* op, int dims, const Tensor& x, const Sizes& k, const Sizes& s, const Sizes& p, const Sizes& d,
       bool ceil_mode)
      : spatial(dims), first(x.dim() - dims) {
    check_dims(op, x, dims);
    kernel = k.of(dims, op, "kernel_size");
    stride = s.of(dims, op, "stride");
    padding = p.of(dims, op, "padding");
    dilation = d.of(dims, op, "dilation");
    for (int i = 0; i < dims; ++i) {
      if (stride[i] == 0) stride[i] = kernel[i];
      WEFT_CHECK(kernel[i] >= 1 && stride[i] >= 1 && dilation[i] >= 1, op, ": kernel_size ", kernel, ", stride ",
                 stride, ", dilation ", dilation, "; need 1 or more");
      WEFT_CHECK(padding[i] >= 0 && padding[i] <= kernel[i] / 2, op, ": padding is ", padding,
                 "; need 0 to half of kernel_size ", kernel);
      const int64_t n = saturating_add(x.size(first + i), 2 * padding[i]);
      const int64_t reach = saturating_add(saturating_mul(kernel[i] - 1, dilation[i]), 1);
      WEFT_CHECK(n >= reach, op, ": a window of ", reach, " elements does not fit into spatial dim ", i, " of input ",
                 x.shape(), " with padding ", padding, "; need ", n, " or fewer");
      int64_t windows = (n - reach) / stride[i] + 1;
      // There is one more window if it begins before the padding at the end.
      const bool more =
          ceil_mode && (n - reach) % stride[i] != 0 && windows * stride[i] < x.size(first + i) + padding[i];
      beyond.push_back(more ? windows * stride[i] + reach - n : 0);
    }
  }

  std::vector<Window> cuts() const {
    std::vector<Window> w;
    for (int i = 0; i < spatial; ++i) w.push_back({first + i, kernel[i], stride[i], dilation[i]});
    return w;
  }
  bool is_padded() const {
    for (int i = 0; i < spatial; ++i)
      if (padding[i] > 0 || beyond[i] > 0) return true;
    return false;
  }
  // x with `value` around it: in the padding, or also beyond.
  Tensor padded(const Tensor& x, double value, bool further) const {
    if (!is_padded()) return x;
    std::vector<int64_t> pads;
    for (int i = spatial - 1; i >= 0; --i) {
      pads.push_back(padding[i]);
      pads.push_back(padding[i] + (further ? beyond[i] : 0));
    }
    return pad(x, pads, value);
  }
  Tensor padded_beyond(const Tensor& x) const {
    std::vector<int64_t> pads;
    for (int i = spatial - 1; i >= 0; --i) {
      pads.push_back(0);
      pads.push_back(beyond[i]);
    }
    return pad(x, pads, 0);
  }
};

// The dims of the elements of a window: the last ones.
Shape last_dims(const Tensor& windows, int n) {
  Shape dims;
  for (int i = 0; i < n; ++i) dims.push_back(windows.dim() - n + i);
  return dims;
}

// The position of each element of a window, as a tensor that broadcasts over windows.
Tensor positions(const Shape& kernel, Device device) {
  return reshape(arange(kernel.numel(), {.dtype = kInt32, .device = device}), kernel);
}

// Element k of each window, for each k: strided slices of x. Kernels fuse slices, but not reductions over windows,
// whose layout has too many dims. So for small windows these are faster.
std::vector<Tensor> elements(const Tensor& x, const std::vector<Window>& cuts) {
  std::vector<Tensor> all{x};
  for (const Window& cut : cuts) {
    std::vector<Tensor> next;
    const int64_t span = x.size(cut.dim) - (cut.size - 1) * cut.dilation;  // where windows can begin
    for (const Tensor& t : all)
      for (int64_t j = 0; j < cut.size; ++j)
        next.push_back(slice(t, cut.dim, j * cut.dilation, j * cut.dilation + span, cut.stride));
    all = std::move(next);
  }
  return all;
}

constexpr int64_t kFewElements = 16;

// The largest element of each window of x. Its gradient goes to the first of equal elements.
Tensor window_max(const Tensor& x, const std::vector<Window>& cuts) {
  const int n = static_cast<int>(cuts.size());
  Shape kernel;
  for (const Window& cut : cuts) kernel.push_back(cut.size);
  const bool few = kernel.numel() <= kFewElements;
  const CustomGrad fn = custom_grad(
      [=](std::span<const Tensor> in) {
        if (few) {
          const std::vector<Tensor> w = elements(in[0], cuts);
          Tensor y = w[0];
          for (size_t k = 1; k < w.size(); ++k) y = maximum(y, w[k]);
          return std::vector<Tensor>{y};
        }
        const Tensor w = windows(in[0], cuts);
        return std::vector<Tensor>{amax(w, last_dims(w, n))};
      },
      [=](std::span<const Tensor> in, std::span<const Tensor> out, std::span<const Tensor> grad_out) {
        Shape wide = out[0].shape();
        if (few) {
          std::vector<Tensor> g;
          Tensor found;
          for (const Tensor& w : elements(in[0], cuts)) {
            const Tensor here = logical_or(eq(w, out[0]), isnan(w));
            g.push_back(where(found.defined() ? logical_and(here, logical_not(found)) : here, grad_out[0], 0.0));
            found = found.defined() ? logical_or(found, here) : here;
          }
          for (int64_t size : kernel) wide.push_back(size);
          return std::vector<Tensor>{window_sum(reshape(stack(g, -1), wide), in[0].shape(), cuts)};
        }
        const Tensor w = windows(in[0], cuts);
        const Shape dims = last_dims(w, n);
        for (int i = 0; i < n; ++i) wide.push_back(1);
        const Tensor at = positions(kernel, w.device()), y = reshape(out[0], wide);
        const Tensor first =
            amin(where(logical_or(eq(w, y), isnan(w)), at, static_cast<int>(kernel.numel())), dims, true);
        const Tensor g = where(eq(first, at), reshape(grad_out[0], wide), 0.0);
        return std::vector<Tensor>{window_sum(g, in[0].shape(), cuts)};
      });
  return fn(x);
}

// The flat position of each element in the last `spatial` dims of x, with extents of 1 before them.
Tensor flat_positions(const Tensor& x, int spatial) {
  Shape shape = x.shape();
  int64_t count = 1;
  for (int d = 0; d < x.dim(); ++d) d < x.dim() - spatial ? shape[d] = 1 : count *= shape[d];
  return reshape(arange(count, {.dtype = kInt64, .device = x.device()}), shape);
}

// The least of `at` in each window among the places of y, the largest element of the window of x; `nowhere` is greater.
Tensor window_place(const Tensor& x, const Tensor& y, const Tensor& at, int64_t nowhere,
                    const std::vector<Window>& cuts) {
  int64_t count = 1;
  Shape wide = y.shape();
  for (const Window& cut : cuts) count *= cut.size, wide.push_back(1);
  const auto places = [&](const Tensor& v, const Tensor& most, const Tensor& p) {
    return where(logical_or(eq(v, most), isnan(v)), p, nowhere);
  };
  if (count > kFewElements) {
    const Tensor w = windows(x.detach(), cuts);
    return amin(places(w, reshape(y.detach(), wide), windows(at, cuts)), last_dims(w, static_cast<int>(cuts.size())));
  }
  const std::vector<Tensor> v = elements(x.detach(), cuts), p = elements(at, cuts);
  Tensor first = places(v[0], y.detach(), p[0]);
  for (size_t k = 1; k < v.size(); ++k) first = minimum(first, places(v[k], y.detach(), p[k]));
  return first;
}

// The sum of the elements of each window of x.
Tensor window_total(const Tensor& x, const std::vector<Window>& cuts) {
  const int n = static_cast<int>(cuts.size());
  int64_t count = 1;
  for (const Window& cut : cuts) count *= cut.size;
  if (count > kFewElements) {
    const Tensor w = windows(x, cuts);
    return sum(w, last_dims(w, n));
  }
  const CustomGrad fn = custom_grad(
      [=](std::span<const Tensor> in) {
        const std::vector<Tensor> w = elements(in[0], cuts);
        Tensor y = w[0];
        for (size_t k = 1; k < w.size(); ++k) y = y + w[k];
        return std::vector<Tensor>{y};
      },
      [=](std::span<const Tensor> in, std::span<const Tensor> out, std::span<const Tensor> grad_out) {
        Shape one = out[0].shape(), wide = one;
        for (const Window& cut : cuts) {
          one.push_back(1);
          wide.push_back(cut.size);
        }
        return std::vector<Tensor>{window_sum(broadcast_to(reshape(grad_out[0], one), wide), in[0].shape(), cuts)};
      });
  return fn(x);
}

}  // namespace

namespace internal {

Tensor max_pool_nd(const char* op, int spatial, const Arg& arg, const Sizes& kernel_size, const Sizes& stride,
                   const Sizes& padding, const Sizes& dilation, bool ceil_mode, Tensor* at) {
  const FloatingOperand x(arg, op);
  const Pool p(op, spatial, x, kernel_size, stride, padding, dilation, ceil_mode);
  const Tensor padded = p.padded(x, -std::numeric_limits<double>::infinity(), true);
  const Tensor y = window_max(padded, p.cuts());
  if (at) {
    const Tensor places = flat_positions(x, spatial);
    const int64_t nowhere = places.numel();
    *at = window_place(padded, y, p.padded(places, static_cast<double>(nowhere), true), nowhere, p.cuts());
  }
  return y;
}

Tensor max_unpool_nd(const char* op, int spatial, const Arg& arg, const Arg& indices, const Sizes& kernel_size,
                     const Sizes& stride, const Sizes& padding, const Shape& output_size) {
  const FloatingOperand x(arg, op);
  check_dims(op, x, spatial);
  const Tensor& i = tensor_of(indices, op);
  WEFT_CHECK(is_integral(i.dtype()) && i.shape() == x.shape(), op, ": indices are ", i.type(), " for x ", x.type(),
             "; need integers of x's shape");
  WEFT_CHECK(output_size.empty() || output_size.size() == spatial || output_size.size() == spatial + 2, op,
             ": output_size is ", output_size, "; need ", spatial, " extents");
  const Shape kernel = kernel_size.of(spatial, op, "kernel_size"), pads = padding.of(spatial, op, "padding");
  Shape step = stride.of(spatial, op, "stride"), shape = x.shape();
  const int first = x.dim() - spatial;
  for (int d = 0; d < spatial; ++d) {
    if (step[d] == 0) step[d] = kernel[d];
    const int64_t least = saturating_add(saturating_mul(x.size(first + d) - 1, step[d]), kernel[d] - 2 * pads[d]);
    shape[first + d] = output_size.empty() ? least : output_size[output_size.size() - spatial + d];
    WEFT_CHECK(shape[first + d] > least - step[d] && shape[first + d] < saturating_add(least, step[d]), op,
               ": output_size is ", shape[first + d], " in spatial dim ", d, "; need more than ", least - step[d],
               " and less than ", saturating_add(least, step[d]));
  }
  const int64_t plane = Shape(std::span<const int64_t>(shape).subspan(static_cast<size_t>(first))).numel();
  const Tensor at = in_range(flatten(i, first), plane, op);
  // The positions in all planes, one after another.
  Shape planes = at.shape();
  planes[first] = 1;
  const Tensor begin = arange(planes.numel(), {.dtype = kInt64, .device = x.device()}) * plane;
  const Tensor to = flatten(at + reshape(begin, planes));
  const Tensor none = zeros({shape.numel()}, {.dtype = x.dtype(), .device = x.device()});
  return reshape(index_copy(none, 0, to, flatten(x)), shape);
}

Tensor avg_pool_nd(const char* op, int spatial, const Arg& arg, const Sizes& kernel_size, const Sizes& stride,
                   const Sizes& padding, bool ceil_mode, bool count_include_pad,
                   std::optional<int64_t> divisor_override) {
  const FloatingOperand x(arg, op);
  WEFT_CHECK(divisor_override != 0, op, ": divisor_override is 0; need another number");
  const Pool p(op, spatial, x, kernel_size, stride, padding, 1, ceil_mode);
  const Tensor total = window_total(p.padded(widened(x), 0, true), p.cuts());
  if (divisor_override) return (total / static_cast<double>(*divisor_override)).to(x.dtype());
  bool beyond = false;
  for (int64_t n : p.beyond) beyond |= n > 0;
  if (!p.is_padded() || (count_include_pad && !beyond))
    return (total * (1 / static_cast<double>(p.kernel.numel()))).to(x.dtype());
  // The number of elements of each window that count.
  Shape one = Shape::filled(x.dim(), 1);
  for (int i = 0; i < spatial; ++i) one[p.first + i] = x.size(p.first + i);
  const Tensor ones = full(one, 1.0, {.dtype = total.dtype(), .device = x.device()});
  const Tensor inside = count_include_pad ? p.padded_beyond(p.padded(ones, 1, false)) : p.padded(ones, 0, true);
  return (total / window_total(inside, p.cuts())).to(x.dtype());
}

Tensor adaptive_pool_nd(const char* op, int spatial, const Arg& arg, const Sizes& output_size, bool max, Tensor* at) {
  FloatingOperand x(arg, op);
  check_dims(op, x, spatial);
  const Shape out = output_size.of(spatial, op, "output_size");
  const int first = x.dim() - spatial;
  Shape result = x.shape();
  bool even = true;
  for (int i = 0; i < spatial; ++i) {
    const int64_t n = x.size(first + i);
    WEFT_CHECK(out[i] >= 1, op, ": output_size is ", out, "; need 1 or more");
    WEFT_CHECK(n >= 1, op, ": input ", x.shape(), " is empty in spatial dim ", i, "; need 1 or more");
    even &= n % out[i] == 0;
    result[first + i] = out[i];
  }
  checked_numel(result, op);
  if (at) *at = flat_positions(x, spatial);
  const int64_t nowhere = at ? at->numel() : 0;
  if (even) {
    std::vector<Window> cuts;
    for (int i = 0; i < spatial; ++i) {
      const int64_t size = x.size(first + i) / out[i];
      cuts.push_back({first + i, size, size, 1});
    }
    if (max) {
      const Tensor y = window_max(x, cuts);
      if (at) *at = window_place(x, y, *at, nowhere, cuts);
      return y;
    }
    const Tensor w = windows(widened(x), cuts);
    return mean(w, last_dims(w, spatial)).to(x.dtype());
  }
  // Pools one dim at a time. Parts of a dim have at most two sizes, so each part is reduced by itself, and equal
  // neighbours once.
  Tensor y = max ? x : widened(x);
  for (int i = 0; i < spatial; ++i) {
    constexpr int64_t kMostParts = int64_t{1} << 31;  // each is visited
    WEFT_CHECK_AS(kResourceExhausted, out[i] <= kMostParts, op, ": output_size is ", out, "; need at most ",
                  kMostParts);
    const int64_t n = y.size(first + i);
    const auto begin = [&](int64_t k) { return k * n / out[i]; };
    const auto end = [&](int64_t k) { return ((k + 1) * n + out[i] - 1) / out[i]; };
    const auto repeats = [&](int64_t k) { return k > 0 && begin(k) == begin(k - 1) && end(k) == end(k - 1); };
    std::vector<Tensor> parts, places;
    for (int64_t k = 0; k < out[i]; ++k) {
      if (repeats(k)) continue;
      const Tensor part = slice(y, first + i, begin(k), end(k));
      const std::vector<Window> cut{{first + i, end(k) - begin(k)}};
      parts.push_back(max ? window_max(part, cut) : mean(part, first + i, true));
      if (at) places.push_back(window_place(part, parts.back(), slice(*at, first + i, begin(k), end(k)), nowhere, cut));
    }
    const bool all = static_cast<int64_t>(parts.size()) == out[i];
    const auto joined = [&](const std::vector<Tensor>& some) {
      const Tensor whole = cat(some, first + i);
      if (all) return whole;
      return index_select(whole, first + i, host_list<int64_t>(out[i], y.device(), [&](std::span<int64_t> to) {
                            for (int64_t k = 0, part = 0; k < out[i]; ++k)
                              to[static_cast<size_t>(k)] = k == 0 || repeats(k) ? part : ++part;
                          }));
    };
    if (at) *at = joined(places);
    y = joined(parts);
  }
  return y.to(x.dtype());
}

}  // namespace internal

#define WEFT_POOL(n)                                                                                                   \
  Tensor max_pool##n##d(const Arg& x, const Sizes& kernel_size, const Sizes& stride, const Sizes& padding,             \
                        const Sizes& dilation, bool ceil_mode) {                                                       \
    return internal::max_pool_nd("max_pool" #n "d", n, x, kernel_size, stride, padding, dilation, ceil_mode);          \
  }                                                                                                                    \
  ValuesIndices max_pool##n##d_with_indices(const Arg& x, const Sizes& kernel_size, const Sizes& stride,               \
                                            const Sizes& padding, const Sizes& dilation, bool ceil_mode) {             \
    ValuesIndices r;                                                                                                   \
    r.values =                                                                                                         \
        internal::max_pool_nd("max_pool" #n "d", n, x, kernel_size, stride, padding, dilation, ceil_mode, &r.indices); \
    return r;                                                                                                          \
  }                                                                                                                    \
  Tensor max_unpool##n##d(const Arg& x, const Arg& indices, const Sizes& kernel_size, const Sizes& stride,             \
                          const Sizes& padding, const Shape& output_size) {                                            \
    return internal::max_unpool_nd("max_unpool" #n "d", n, x, indices, kernel_size, stride, padding, output_size);     \
  }                                                                                                                    \
  Tensor adaptive_avg_pool##n##d(const Arg& x, const Sizes& output_size) {                                             \
    return internal::adaptive_pool_nd("adaptive_avg_pool" #n "d", n, x, output_size, false);                           \
  }                                                                                                                    \
  Tensor adaptive_max_pool##n##d(const Arg& x, const Sizes& output_size) {                                             \
    return internal::adaptive_pool_nd("adaptive_max_pool" #n "d", n, x, output_size, true);                            \
  }                                                                                                                    \
  ValuesIndices adaptive_max_pool##n##d_with_indices(const Arg& x, const Sizes& output_size) {                         \
    ValuesIndices r;                                                                                                   \
    r.values = internal::adaptive_pool_nd("adaptive_max_pool" #n "d", n, x, output_size, true, &r.indices);            \
    return r;                                                                                                          \
  }
WEFT_POOL(1)
WEFT_POOL(2)
WEFT_POOL(3)
#undef WEFT_POOL

Tensor avg_pool1d(const Arg& x, const Sizes& kernel_size, const Sizes& stride, const Sizes& padding, bool ceil_mode,
                  bool count_include_pad) {
  return internal::avg_pool_nd("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad);
}
#define WEFT_POOL(n)                                                                                                  \
  Tensor avg_pool##n##d(const Arg& x, const Sizes& kernel_size, const Sizes& stride, const Sizes& padding,            \
                        bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {            \
    return internal::avg_pool_nd("avg_pool" #n "d", n, x, kernel_size, stride, padding, ceil_mode, count_include_pad, \
                                 divisor_override);                                                                   \
  }
WEFT_POOL(2)
WEFT_POOL(3)
#undef WEFT_POOL

namespace {

// The windows of unfold and fold, whose input [N, C, H, W] is padded.
struct WindowColumns {
  Shape kernel, dilation, padding, stride;
  WindowColumns(const char* op, const Sizes& k, const Sizes& d, const Sizes& p, const Sizes& s)
      : kernel(k.of(2, op, "kernel_size")),
        dilation(d.of(2, op, "dilation")),
        padding(p.of(2, op, "padding")),
        stride(s.of(2, op, "stride")) {
    for (int i = 0; i < 2; ++i)
      WEFT_CHECK(kernel[i] >= 1 && dilation[i] >= 1 && stride[i] >= 1 && padding[i] >= 0, op, ": kernel_size ", kernel,
                 ", dilation ", dilation, ", padding ", padding, ", stride ", stride,
                 "; need padding of 0 or more, the others 1 or more");
  }
  std::vector<Window> cuts() const {
    return {{2, kernel[0], stride[0], dilation[0]}, {3, kernel[1], stride[1], dilation[1]}};
  }
};

}  // namespace

Tensor unfold(const Arg& arg, const Sizes& kernel_size, const Sizes& dilation, const Sizes& padding,
              const Sizes& stride) {
  const FirstOperand x(arg, "unfold");
  WEFT_CHECK(x.dim() == 4, "unfold: input is ", x.type(), "; need [N, C, H, W]");
  const WindowColumns c("unfold", kernel_size, dilation, padding, stride);
  const Tensor padded = pad(x, {c.padding[1], c.padding[1], c.padding[0], c.padding[0]});
  const Tensor w = windows(padded, c.cuts());  // [N, C, h, w, kh, kw]
  return reshape(permute(w, {0, 1, 4, 5, 2, 3}), {x.size(0), x.size(1) * c.kernel.numel(), w.size(2) * w.size(3)});
}

Tensor fold(const Arg& arg, const Sizes& output_size, const Sizes& kernel_size, const Sizes& dilation,
            const Sizes& padding, const Sizes& stride) {
  const FirstOperand x(arg, "fold");
  const WindowColumns c("fold", kernel_size, dilation, padding, stride);
  const Shape out = output_size.of(2, "fold", "output_size");
  Shape count;
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = saturating_add(saturating_mul(c.kernel[i] - 1, c.dilation[i]), 1);
    const int64_t n = saturating_add(out[i], saturating_mul(2, c.padding[i]));
    WEFT_CHECK(out[i] >= 1 && n >= reach, "fold: a kernel of ", reach, " elements does not fit into output_size ", out,
               " with padding ", c.padding, "; need a smaller kernel or more padding");
    count.push_back((n - reach) / c.stride[i] + 1);
  }
  WEFT_CHECK(x.dim() == 3 && x.size(1) % c.kernel.numel() == 0 && x.size(2) == count.numel(), "fold: input is ",
             x.type(), "; need [N, C * ", c.kernel.numel(), ", ", count.numel(), "]");
  const int64_t channels = x.size(1) / c.kernel.numel();
  const Tensor w =
      permute(reshape(x, {x.size(0), channels, c.kernel[0], c.kernel[1], count[0], count[1]}), {0, 1, 4, 5, 2, 3});
  const Tensor whole =
      window_sum(w, {x.size(0), channels, out[0] + 2 * c.padding[0], out[1] + 2 * c.padding[1]}, c.cuts());
  return slice(slice(whole, 2, c.padding[0], c.padding[0] + out[0]), 3, c.padding[1], c.padding[1] + out[1]);
}

}  // namespace weft
