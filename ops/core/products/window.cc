#include "ops/core/products/window.h"

#include <algorithm>
#include <vector>

#include "framework/base/saturate.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {
namespace {

using namespace internal;

std::vector<Window> cuts_in(const Attrs& attrs) {
  const Shape &dims = attrs.ints("dims"), &size = attrs.ints("size"), &stride = attrs.ints("stride"),
              &dilation = attrs.ints("dilation");
  std::vector<Window> cuts;
  for (int i = 0; i < dims.size(); ++i) cuts.push_back({dims[i], size[i], stride[i], dilation[i]});
  return cuts;
}

Attrs attrs_of(std::span<const Window> cuts) {
  Shape dims, size, stride, dilation;
  for (const Window& w : cuts) {
    dims.push_back(w.dim);
    size.push_back(w.size);
    stride.push_back(w.stride);
    dilation.push_back(w.dilation);
  }
  return {{"dims", dims}, {"size", size}, {"stride", stride}, {"dilation", dilation}};
}

// The elements from the first to the last of a window.
int64_t reach(const Window& w) { return saturating_add(saturating_mul(w.size - 1, w.dilation), 1); }

// The shape of the windows of a tensor of this shape.
Shape windowed(const InferCall& c, const Shape& in) {
  for (const char* name : {"size", "stride", "dilation"})
    WEFT_CHECK(c.attrs.ints(name).size() == c.attrs.ints("dims").size(), c.op.name, ": ", c.attrs.ints("dims").size(),
               " dims and ", c.attrs.ints(name).size(), " entries of ", name, "; need one for each dim");
  Shape out = in;
  int64_t last = -1;
  const std::vector<Window> cuts = cuts_in(c.attrs);
  WEFT_CHECK(in.size() + cuts.size() <= kMaxDims, c.op.name, ": ", in.size(), " dims and ", cuts.size(),
             " windows; need at most ", kMaxDims, " together");
  for (const Window& w : cuts) {
    WEFT_CHECK(w.dim > last && w.dim < in.size(), c.op.name, ": dims ", c.attrs.ints("dims"), " of ", in,
               "; need ascending dims");
    WEFT_CHECK(w.size >= 1 && w.stride >= 1 && w.dilation >= 1, c.op.name, ": size ", w.size, ", stride ", w.stride,
               ", dilation ", w.dilation, "; need 1 or more");
    const int64_t extent = in[static_cast<int>(w.dim)];
    WEFT_CHECK(reach(w) <= extent, c.op.name, ": a window of ", w.size, " elements",
               w.dilation > 1 ? str_cat(" with dilation ", w.dilation) : std::string(), " does not fit into dim ",
               w.dim, " of ", in, "; need ", reach(w), " or more");
    out[static_cast<int>(w.dim)] = (extent - reach(w)) / w.stride + 1;
    out.push_back(w.size);
    last = w.dim;
  }
  return out;
}

Types infer_window(const InferCall& c) {
  return {TensorType{c.in[0].dtype, c.in[0].device, windowed(c, c.in[0].shape)}};
}

Types infer_window_sum(const InferCall& c) {
  const Shape& shape = c.attrs.ints("shape");
  for (int64_t n : shape) WEFT_CHECK(n >= 0, "window_sum: shape ", shape, "; need no negative extents");
  WEFT_CHECK(c.in[0].dtype != kBool, "window_sum: does not support bool; convert with to(i64) first");
  WEFT_CHECK(itemsize(c.in[0].dtype) > 1 || !is_floating(c.in[0].dtype), "window_sum: does not support ", c.in[0].dtype,
             "; convert with to(f32) first");
  const Shape need = windowed(c, shape);
  WEFT_CHECK(c.in[0].shape == need, "window_sum: got ", c.in[0].shape, "; the windows of ", shape, " are ", need);
  return {TensorType{c.in[0].dtype, c.in[0].device, shape}};
}

bool view_window(const Attrs& attrs, const StridedView& in, const TensorType&, Shape* strides, int64_t* offset) {
  *offset = 0;
  *strides = in.strides;
  for (const Window& w : cuts_in(attrs)) {
    // A stride that does not fit belongs to one window, or to one element of each: it is not used.
    const int64_t s = in.strides[static_cast<int>(w.dim)];
    (*strides)[static_cast<int>(w.dim)] = saturating_mul(s, w.stride);
    strides->push_back(saturating_mul(s, w.dilation));
  }
  return true;
}

void run_window(const KernelCall& c) {
  int64_t offset = 0;
  StridedView from = c.in[0];
  view_window(c.attrs, c.in[0], {}, &from.strides, &offset);
  from.shape = c.out[0].shape;
  kernels::cast_copy(from, c.out[0]);
}

// A windowed dim is needed as a whole, and so is each window. `whole` has the dims of the tensor, `cut` of its windows.
DimMap dims_of(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out, bool sum) {
  const TensorType &whole = sum ? out[0] : in[0], &cut = sum ? in[0] : out[0];
  std::vector<std::string> from, to;
  const std::vector<Window> cuts = cuts_in(attrs);
  for (int d = 0; d < cut.shape.size(); ++d) {
    bool plain = d < whole.shape.size();
    for (const Window& w : cuts) plain &= w.dim != d;
    if (d < whole.shape.size()) from.push_back(factor_name(2 * d) + (plain ? "" : "?"));
    to.push_back(plain ? factor_name(2 * d) : factor_name(2 * d + 1) + "?");
  }
  return DimMap::parse(sum ? join_words(to) + " -> " + join_words(from) : join_words(from) + " -> " + join_words(to),
                       in, out);
}
DimMap dims_window(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_of(attrs, in, out, false);
}
DimMap dims_window_sum(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_of(attrs, in, out, true);
}

Cost cost_window(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {0, bytes_of(in) + bytes_of(out)};
}
Cost cost_window_sum(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {static_cast<double>(in[0].shape.numel()), bytes_of(in) + bytes_of(out)};
}

Grads vjp_window(const VjpCall& c) {
  return {dispatch(window_sum_op, {&c.grad[0]}, c.attrs.with("shape", c.in[0].shape()))};
}
Grads vjp_window_sum(const VjpCall& c) { return {windows(c.grad[0], cuts_in(c.attrs))}; }

// ---- the sum ----

// The windowed dims: a plane is all their elements at one position of the other dims.
struct Planes {
  std::vector<Window> cuts;
  // For each cut, the number of windows, the distance in the operand between windows and between elements of one, and
  // the stride of the dim in the sum.
  std::vector<int64_t> count, window_stride, element_stride, sum_stride;

  /// Adds the elements at `in`, of the cuts from `level` on, to the plane.
  template <class Acc, class T>
  void add(size_t level, const T* in, Acc* sum) const {
    const Window& w = cuts[level];
    // A distance that does not fit belongs to one window: it is not used.
    const int64_t step = window_stride[level], to = saturating_mul(sum_stride[level], w.stride);
    for (int64_t j = 0; j < w.size; ++j) {
      const T* from = in + j * element_stride[level];
      Acc* at = sum + j * w.dilation * sum_stride[level];
      if (level + 1 == cuts.size()) {
        for (int64_t i = 0; i < count[level]; ++i) at[i * to] += static_cast<Acc>(from[i * step]);
      } else {
        for (int64_t i = 0; i < count[level]; ++i) add(level + 1, from + i * step, at + i * to);
      }
    }
  }
};

template <class T, class Acc>
void sum_planes(const KernelCall& c) {
  const StridedView &in = c.in[0], &out = c.out[0];
  Planes p;
  p.cuts = cuts_in(c.attrs);
  Shape outer, outer_in, outer_out, plane, plane_out;
  const int rank = out.shape.size();
  for (int d = 0, next = 0; d < rank; ++d) {
    if (next < static_cast<int>(p.cuts.size()) && p.cuts[static_cast<size_t>(next)].dim == d) {
      p.count.push_back(in.shape[d]);
      p.window_stride.push_back(in.strides[d]);
      p.element_stride.push_back(in.strides[rank + next]);
      plane.push_back(out.shape[d]);
      plane_out.push_back(out.strides[d]);
      ++next;
    } else {
      outer.push_back(out.shape[d]);
      outer_in.push_back(in.strides[d]);
      outer_out.push_back(out.strides[d]);
    }
  }
  for (int64_t s : contiguous_strides(plane)) p.sum_stride.push_back(s);
  const int64_t size = plane.numel(), planes = outer.numel();
  if (size == 0 || planes == 0) return;
  const int64_t together = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, size));
  parallel_chunks(planes, together, [&](int64_t begin, int64_t end) {
    std::vector<Acc> sum(static_cast<size_t>(size));
    for (int64_t i = begin; i < end; ++i) {
      int64_t from = 0, to = 0, rest = i;
      for (int d = outer.size() - 1; d >= 0; --d) {
        from += rest % outer[d] * outer_in[d];
        to += rest % outer[d] * outer_out[d];
        rest /= outer[d];
      }
      std::fill(sum.begin(), sum.end(), Acc(0));
      p.add(0, in.as<T>() + from, sum.data());
      kernels::cast_copy({sum.data(), DTypeOf<Acc>::value, plane, contiguous_strides(plane)},
                         {out.as<T>() + to, out.dtype, plane, plane_out});
    }
  });
}

void run_window_sum(const KernelCall& c) {
  if (c.attrs.ints("dims").empty()) return kernels::cast_copy(c.in[0], c.out[0]);
  if (!is_floating(c.out[0].dtype)) return with_integer(c.in[0].dtype, [&]<class T>(T) { sum_planes<T, T>(c); });
  with_float(c.out[0].dtype,
             [&]<class T>(T) { sum_planes<T, std::conditional_t<std::is_same_v<T, double>, double, float>>(c); });
}

// Decomposes one windowed dim at a time into a sum over the elements of a window: each term has one element of all
// windows at its positions in the result.
std::vector<Tensor> decompose_window_sum(const Attrs& attrs, std::span<const Tensor> in) {
  const std::vector<Window> cuts = cuts_in(attrs);
  const Shape& shape = attrs.ints("shape");
  const DType dtype = in[0].dtype();
  Tensor x = is_16bit(dtype) ? cast(in[0], kFloat32) : in[0];
  for (size_t k = cuts.size(); k-- > 0;) {
    const Window& w = cuts[k];
    const int64_t last = x.dim() - 1, extent = shape[static_cast<int>(w.dim)], windows = x.size(w.dim);
    Tensor sum;
    for (int64_t j = 0; j < w.size; ++j) {
      const Tensor part = select(x, last, j);
      Shape lo = Shape::filled(part.dim(), 0), hi = lo, interior = lo;
      const int d = static_cast<int>(w.dim);
      lo[d] = j * w.dilation;
      interior[d] = w.stride - 1;
      hi[d] = extent - lo[d] - ((windows - 1) * w.stride + 1);
      const Tensor spread = dispatch(pad_op, {&part}, {{"lo", lo}, {"hi", hi}, {"interior", interior}, {"value", 0.0}});
      sum = sum.defined() ? sum + spread : spread;
    }
    x = sum;
  }
  return {cast(x, dtype)};
}

// ---- samples ----

Sample cut(const Shape& in, std::vector<Window> cuts, std::string error = "") {
  return {{{in}}, attrs_of(cuts), std::move(error), true};
}
std::vector<Sample> samples_window() {
  return {cut({7}, {{0, 3}}),
          cut({2, 9}, {{1, 3, 2}}),
          cut({2, 3, 9}, {{2, 2, 1, 3}}),
          cut({2, 6, 33}, {{1, 3, 1, 2}, {2, 4, 3}}),
          cut({4, 8}, {{0, 2, 2}, {1, 4, 4}}),
          cut({5}, {{0, 5}}),
          cut({0, 4}, {{1, 2}}),
          cut({3}, {}),
          cut({7}, {{0, 8}}, "window: a window of 8 elements does not fit into dim 0 of [7]; need 8 or more"),
          cut({7}, {{0, 4, 1, 3}}, "need 10 or more"),
          cut({7}, {{0, 2, 0}}, "window: size 2, stride 0, dilation 1; need 1 or more"),
          cut({7, 3}, {{1, 2}, {0, 2}}, "need ascending dims"),
          cut({7}, {{0, int64_t{1} << 62, 1, int64_t{1} << 62}}, "does not fit into dim 0")};
}

std::vector<Sample> samples_window_sum() {
  auto sum = [](const Shape& in, const Shape& shape, std::vector<Window> cuts, std::string error = "") {
    return Sample{{{in}}, attrs_of(cuts).with("shape", shape), std::move(error), true};
  };
  return {sum({5, 3}, {7}, {{0, 3}}),
          sum({2, 4, 3}, {2, 9}, {{1, 3, 2}}),
          sum({2, 4, 3}, {2, 10}, {{1, 3, 2}}),  // the last element is in no window
          sum({2, 2, 10, 3, 4}, {2, 6, 33}, {{1, 3, 1, 2}, {2, 4, 3}}),
          sum({0, 3, 2}, {0, 4}, {{1, 2}}),
          sum({3}, {3}, {}),
          sum({5, 3}, {8}, {{0, 3}}, "window_sum: got [5, 3]; the windows of [8] are [6, 3]"),
          sum({5, 3}, {-7}, {{0, 3}}, "need no negative extents")};
}

}  // namespace

Tensor windows(const Arg& x, std::span<const Window> cuts) {
  const FirstOperand t(x, "windows");
  return dispatch(window_op, {&t}, attrs_of(cuts));
}

Tensor window_sum(const Arg& x, const Shape& shape, std::span<const Window> cuts) {
  const FirstOperand t(x, "window_sum");
  return dispatch(window_sum_op, {&t}, attrs_of(cuts).with("shape", shape));
}

const OpDef window_op = moves({
    .name = "window",
    .doc = "Overlapping windows of {dims} as further dims: window i has elements i * stride + j * dilation.",
    .traits = kView,
    .placing = Placing::kWindow,
    .infer = infer_window,
    .vjp = vjp_window,
    .dims = dims_window,
    .cost = cost_window,
    .kernel = run_window,
    .view = view_window,
    .samples = samples_window,
});
const OpDef window_sum_op = {
    .name = "window_sum",
    .doc = "The sum over all windows: the tensor of {shape} whose windows have the operand as gradient.",
    .infer = infer_window_sum,
    .vjp = vjp_window_sum,
    .dims = dims_window_sum,
    .cost = cost_window_sum,
    .kernel = run_window_sum,
    .decompose = decompose_window_sum,
    .samples = samples_window_sum,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = 1,
};

std::span<const OpDef* const> window_ops() {
  static const OpDef* const all[] = {&window_op, &window_sum_op};
  return all;
}

}  // namespace weft
