#include "ops/composite/scatter.h"

#include "framework/autodiff/grad.h"
#include "framework/base/called.h"
#include "framework/dispatch/dispatch.h"
#include "ops/composite/indexing.h"
#include "ops/composite/precision.h"
#include "ops/core/indexing/along.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

// x, index and src with one dim at least, and src cut to index's shape.
struct Scatter : Along {
  Tensor index, src;

  Scatter(const Arg& x_arg, int64_t d, const Arg& index_arg, const Arg& src_arg, const char* op)
      : Along(tensor_of(x_arg, op), d, op), index(tensor_of(index_arg, op)), src(source_for(x, src_arg, op)) {
    WEFT_CHECK(is_integral(index.dtype()), op, ": index is ", index.type(), "; need integers");
    index = one_dim(cast(index, kInt64));
    src = src_arg.is_tensor() ? one_dim(src) : broadcast_to(src, index.shape());
    bool fits = index.dim() == x.dim() && src.dim() == x.dim();
    for (int k = 0; fits && k < x.dim(); ++k)
      fits = index.shape()[k] <= src.shape()[k] && (k == dim || index.shape()[k] <= x.shape()[k]);
    WEFT_CHECK(fits, op, ": index ", index.shape(), " and src ", src.shape(), " do not fit x ", x.shape(),
               " along dim ", dim,
               "; need equal numbers of dims, src as large as index, and index not larger than x outside dim ", dim);
    for (int k = 0; k < x.dim(); ++k) src = slice(src, k, 0, index.shape()[k]);
    if (x.dim() > 1) index = in_range(index, x.shape()[dim], op);  // a vector's are checked where they are used
  }

  /// The positions of index's elements in the flattened x, 1-d.
  Tensor places() const {
    const Shape strides = contiguous_strides(x.shape());
    Tensor at = index * strides[dim];
    for (int k = 0; k < x.dim(); ++k) {
      if (k == dim || index.shape()[k] == 1) continue;
      Shape along = Shape::filled(x.dim(), 1);
      along[k] = index.shape()[k];
      at = at + reshape(arange(index.shape()[k], {.dtype = kInt64, .device = x.device()}) * strides[k], along);
    }
    return flatten(at);
  }
};

Tensor count_of(const Scatter& s) {
  return scatter_add(zeros(s.x.shape(), {.dtype = kInt64, .device = s.x.device()}), s.dim, s.index, ones_like(s.index));
}

// x, 1-d, with its elements at these positions replaced (added to) for `op`.
Tensor changed(const OpDef& change, const Tensor& x, const Tensor& to, const Tensor& from, const char* op) {
  return dispatch(change, {&x, &to, &from}, {{"what", str_cat(op, ": an index is not a position")}});
}

// The greatest (smallest) value for each element: sorted, they are written in order, and the last stays.
Tensor best(const Tensor& x, const Tensor& src, const Tensor& places, bool smallest) {
  const Tensor flat = flatten(src);
  // Negated floats, so that NaN is last for the smallest too.
  const bool negated = smallest && is_floating(x.dtype());
  const Tensor order = argsort(negated ? -flat : flat, 0, smallest && !negated);
  return reshape(index_copy(flatten(x), 0, index_select(places, 0, order), index_select(flat, 0, order)), x.shape());
}

Tensor reduce_best(const Scatter& s, bool smallest, bool include_self) {
  const Tensor touched = count_of(s) > 0;
  const Tensor places = s.places();
  auto value = [=](std::span<const Tensor> in) {
    const Tensor m = best(in[0], in[1], places, smallest);
    if (!include_self) return std::vector<Tensor>{m};
    return std::vector<Tensor>{where(touched, smallest ? minimum(in[0], m) : maximum(in[0], m), in[0])};
  };
  if (!is_floating(s.x.dtype())) return value(std::vector<Tensor>{s.x, s.src})[0];
  auto backward = [=, index = s.index, dim = s.dim](std::span<const Tensor> in, std::span<const Tensor> out,
                                                    std::span<const Tensor> g) {
    const Tensor of_src = in[1] == gather(out[0], dim, index);
    const Tensor of_x = include_self ? in[0] == out[0] : !touched;
    const Tensor shares = scatter_add(cast(of_x, kFloat32), dim, index, cast(of_src, kFloat32));
    const Tensor part = cast(widened(g[0]) / maximum(shares, 1.0), g[0].dtype());
    return std::vector<Tensor>{where(of_x, part, 0.0), where(of_src, gather(part, dim, index), 0.0)};
  };
  return custom_grad(value, backward)({s.x, s.src})[0];
}

// The products of the values for each element, in log2(n) steps: in each step, a value of a sorted list is multiplied
// by an earlier value for the same element.
Tensor reduce_product(const Scatter& s, bool include_self) {
  const Sorted places = sort(s.places());
  Tensor v = widened(index_select(flatten(s.src), 0, places.indices));
  const int64_t n = v.numel();
  for (int64_t by = 1; by < n; by *= 2) {
    const Tensor same = slice(places.values, 0, by, n) == slice(places.values, 0, 0, n - by);
    const Tensor after = slice(v, 0, by, n);
    v = cat({slice(v, 0, 0, by), where(same, after * slice(v, 0, 0, n - by), after)});
  }
  const Tensor next = slice(places.values, 0, 1, n) != slice(places.values, 0, 0, std::max<int64_t>(n - 1, 0));
  const Tensor last = cat({next, ones({std::min<int64_t>(n, 1)}, {.dtype = kBool, .device = v.device()})});
  const Tensor none = zeros({s.x.numel()}, {.dtype = v.dtype(), .device = v.device()});
  const Tensor products = reshape(scatter_add(none, 0, places.values, where(last, v, 0)), s.x.shape());
  const Tensor x = widened(s.x);
  return cast(where(count_of(s) > 0, include_self ? x * products : products, x), s.x.dtype());
}

}  // namespace

Tensor scatter(const Arg& x, int64_t dim, const Arg& index, const Arg& src) {
  LineScope here(x.line());
  const Scatter s(x, dim, index, src, "scatter");
  const Tensor to = s.x.dim() == 1 ? s.index : s.places();
  return s.result(reshape(changed(index_copy_op, flatten(s.x), to, flatten(s.src), "scatter"), s.x.shape()));
}

Tensor scatter_reduce(const Arg& x, int64_t dim, const Arg& index, const Arg& src, std::string_view reduce,
                      bool include_self) {
  LineScope here(x.line());
  WEFT_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
             "scatter_reduce: reduce is '", reduce, R"('; need "sum", "prod", "mean", "amax" or "amin")");
  const Called name("scatter_reduce");
  Scatter s(x, dim, index, src, "scatter_reduce");
  if (s.x.dtype() == kBool) {  // whether any value is true, or all are
    WEFT_CHECK(reduce != "mean", "scatter_reduce: x is ", s.x.type(), "; need numbers for the mean");
    s.x = cast(s.x, kInt32), s.src = cast(s.src, kInt32);
    return s.result(ne(reduce_best(s, reduce == "amin" || reduce == "prod", include_self), 0));
  }
  if (reduce == "prod") return s.result(reduce_product(s, include_self));
  if (reduce == "amax" || reduce == "amin") return s.result(reduce_best(s, reduce == "amin", include_self));
  const Tensor count = count_of(s);
  const Tensor start = include_self ? s.x : where(count > 0, zeros_like(s.x), s.x);
  const bool mean = reduce == "mean";
  // A mean of integers is divided in i64: sum and count may be beyond narrower ones.
  const auto wide = [&](const Tensor& t) { return mean && !is_floating(t.dtype()) ? cast(t, kInt64) : widened(t); };
  Tensor y = scatter_add(wide(start), s.dim, s.index, wide(s.src));
  if (mean) {
    const Tensor n = cast(maximum(include_self ? count + 1 : count, 1), y.dtype());
    y = is_floating(y.dtype()) ? y / n : floor_divide(y, n);
  }
  return s.result(cast(y, s.x.dtype()));
}

Tensor index_fill(const Arg& arg, int64_t dim, const Arg& index, const Arg& value) {
  LineScope here(arg.line());
  const Tensor &given = tensor_of(arg, "index_fill"), &i = tensor_of(index, "index_fill");
  const Tensor v = source_for(given, value, "index_fill");
  WEFT_CHECK(v.dim() == 0, "index_fill: the value is ", v.type(), "; need a number or a 0-d tensor");
  WEFT_CHECK(i.dim() <= 1 && is_integral(i.dtype()), "index_fill: index is ", i.type(), "; need integers in one dim");
  const Along a(given, dim, "index_fill");
  Shape shape = a.x.shape();
  shape[a.dim] = i.numel();
  const int64_t n = a.x.shape()[a.dim];
  const Tensor at = in_range(from_front(one_dim(i), n, "index_fill"), n, "index_fill");
  return a.result(index_copy(a.x, a.dim, at, broadcast_to(v, shape)));
}

Tensor fill_diagonal(const Arg& arg, const Arg& value, bool wrap) {
  const FirstOperand x(arg, "fill_diagonal");
  const Called name("fill_diagonal");
  bool equal = x.dim() >= 2;
  for (int d = 1; x.dim() > 2 && d < x.dim(); ++d) equal &= x.shape()[d] == x.shape()[0];
  WEFT_CHECK(equal, "fill_diagonal: x is ", x.type(), "; need two dims, or more of equal extents");
  int64_t step = 0, least = x.shape()[0];
  for (int64_t stride : contiguous_strides(x.shape())) step += stride;
  for (int64_t n : x.shape()) least = std::min(least, n);
  const Tensor at = reshape(arange(x.numel(), {.dtype = kInt64, .device = x.device()}), x.shape());
  const Tensor on = eq(remainder(at, std::max<int64_t>(step, 1)), 0);
  return masked_fill(x, wrap && x.dim() == 2 ? on : on & lt(at, step * least), value);
}

Tensor masked_scatter(const Arg& arg, const Arg& mask, const Arg& source) {
  const FirstOperand x(arg, "masked_scatter");
  const Tensor &m = tensor_of(mask, "masked_scatter"), &src = tensor_of(source, "masked_scatter");
  WEFT_CHECK(m.dtype() == kBool && src.dtype() == x.dtype(), "masked_scatter: x, mask and source are ", x.dtype(), ", ",
             m.dtype(), " and ", src.dtype(), "; need a mask of bool and one dtype for x and source");
  const Shape shape = broadcast_shapes(x.shape(), m.shape(), "masked_scatter");
  const Tensor on = broadcast_to(m, shape), flat = flatten(on);
  // Element 0 of the padded source is for the places where the mask is false.
  const Tensor at = where(flat, cumsum(cast(flat, kInt64), 0), 0);
  const Tensor from = look_up(index_select_op, pad(flatten(src), {1, 0}), 0, at,
                              str_cat("masked_scatter: source has ", src.numel(),
                                      " elements, fewer than the mask has true ones; need one for each"));
  return where(on, reshape(from, shape), broadcast_to(x, shape));
}

Tensor take_along_dim(const Arg& x, const Arg& index) {
  LineScope here(x.line());
  return take_along_dim(flatten(tensor_of(x, "take_along_dim")), flatten(tensor_of(index, "take_along_dim")), 0);
}

Tensor take(const Arg& arg, const Arg& index) {
  LineScope here(arg.line());
  const Tensor &x = tensor_of(arg, "take"), &i = tensor_of(index, "take");
  const Tensor at = flatten(from_front(i, x.numel(), "take"));
  return reshape(look_up(index_select_op, flatten(x), 0, at, "take: an index is not a position"), i.shape());
}

Tensor put(const Arg& arg, const Arg& index, const Arg& source, bool accumulate) {
  LineScope here(arg.line());
  const Tensor &x = tensor_of(arg, "put"), &i = tensor_of(index, "put");
  const Tensor src = source_for(x, source, "put");
  WEFT_CHECK(src.numel() == i.numel(), "put: index has shape ", i.shape(), " and source ", src.shape(),
             "; need equal numbers of elements");
  const bool any = accumulate && x.dtype() == kBool;  // sums of bool
  const Tensor to = flatten(from_front(i, x.numel(), "put")), from = flatten(src), flat = flatten(x);
  if (any) return reshape(ne(changed(index_add_op, cast(flat, kInt64), to, cast(from, kInt64), "put"), 0), x.shape());
  return reshape(changed(accumulate ? index_add_op : index_copy_op, flat, to, from, "put"), x.shape());
}

}  // namespace weft
