// The public functions over the records of view.cc: negative dims, -1 extents, Python's slices.
#include <algorithm>

#include "framework/base/called.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft {

using internal::FirstOperand;
using internal::LineScope;
using internal::tensor_of;

namespace {

Tensor slice_dim(const Tensor& x, int dim, int64_t begin, int64_t end, int64_t step) {
  if (begin == 0 && end == x.shape()[dim] && step == 1) return x;
  Shape from = Shape::filled(x.dim(), 0), to = x.shape(), by = Shape::filled(x.dim(), 1);
  from[dim] = begin;
  to[dim] = end;
  by[dim] = step;
  return dispatch(slice_op, {&x}, {{"begin", from}, {"end", to}, {"step", by}});
}

Tensor triangle(const Arg& x, int64_t diagonal, bool lower, const char* op) {
  const FirstOperand m(x, op);
  WEFT_CHECK(m.dim() >= 2, op, ": got ", m.type(), "; need two dims or more");
  const TensorOptions index{.dtype = kInt32, .device = m.device()};
  const int64_t shift = std::clamp(diagonal, -m.size(-2), m.size(-1));  // beyond these all or nothing is kept
  const Tensor rows = add(arange(m.size(-2), index), shift).unsqueeze(1);
  const Tensor columns = arange(m.size(-1), index).unsqueeze(0);
  const Tensor kept = lower ? le(columns, rows) : ge(columns, rows);
  return m.dtype() == kBool ? where(kept, m, false) : where(kept, m, 0);
}

}  // namespace

Tensor reshape(const Arg& arg, const Shape& shape) {
  FirstOperand x(arg, "reshape");
  Shape to = shape;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < to.size(); ++i) {
    if (to[i] != -1) {
      known = saturating_mul(known, to[i]);
      continue;
    }
    WEFT_CHECK(unknown < 0, "reshape: shape ", shape, " has two extents of -1; need one at most");
    unknown = i;
  }
  if (unknown >= 0) {
    WEFT_CHECK(known > 0 && x.numel() % known == 0, "reshape: ", x.shape(), " has ", x.numel(), " elements; shape ",
               shape, known ? " does not divide them" : " does not determine -1", "; need a shape that fits");
    to[unknown] = x.numel() / known;
  }
  return to == x.shape() ? x : dispatch(reshape_op, {&x}, {{"shape", to}});
}

Tensor view(const Arg& x, const Shape& shape) {
  const internal::Called name("view");
  return reshape(x, shape);
}

Tensor permute(const Arg& arg, const Shape& dims) {
  FirstOperand x(arg, "permute");
  Shape to = dims;
  bool same = to.size() == x.dim();
  for (int i = 0; i < to.size(); ++i) {
    to[i] = normalize_dim(to[i], x.dim(), "permute");
    same = same && to[i] == i;
  }
  return same ? x : dispatch(permute_op, {&x}, {{"dims", to}});
}

Tensor transpose(const Arg& arg, int64_t a, int64_t b) {
  const FirstOperand x(arg, "transpose");
  const int i = normalize_dim(a, x.dim(), "transpose"), j = normalize_dim(b, x.dim(), "transpose");
  if (i == j) return x;
  Shape dims;
  for (int d = 0; d < x.dim(); ++d) dims.push_back(d == i ? j : d == j ? i : d);
  return dispatch(permute_op, {&x}, {{"dims", dims}});
}

Tensor t(const Arg& arg) {
  FirstOperand x(arg, "t");
  WEFT_CHECK(x.dim() <= 2, "t: got ", x.type(), "; need at most two dims");
  return x.dim() < 2 ? x : dispatch(permute_op, {&x}, {{"dims", Shape{1, 0}}});
}

Tensor movedim(const Arg& arg, int64_t from, int64_t to) {
  const FirstOperand x(arg, "movedim");
  const int i = normalize_dim(from, x.dim(), "movedim"), j = normalize_dim(to, x.dim(), "movedim");
  if (i == j) return x;
  Shape dims;
  for (int d = 0; d < x.dim(); ++d)
    if (d != i) dims.push_back(d);
  dims.insert(j, i);
  return dispatch(permute_op, {&x}, {{"dims", dims}});
}

Tensor broadcast_to(const Tensor& x, const Shape& shape, SourceLine line) {
  const internal::Called name("broadcast_to");
  return x.shape() == shape ? x : dispatch(broadcast_op, {&x}, {{"shape", shape}}, line);
}

Tensor expand(const Arg& arg, const Shape& shape) {
  const internal::Called name("expand");
  const FirstOperand x(arg, "expand");
  Shape to = shape;
  const int shift = to.size() - x.dim();
  for (int i = 0; i < to.size(); ++i) {
    if (to[i] != -1) continue;
    WEFT_CHECK(i >= shift, "expand: shape ", shape, " has -1 in a new dim ", i, "; need an extent");
    to[i] = x.shape()[i - shift];
  }
  return broadcast_to(x, to);
}

Tensor squeeze(const Arg& arg, int64_t dim) {
  const FirstOperand x(arg, "squeeze");
  const int d = normalize_dim(dim, x.dim(), "squeeze");
  if (x.dim() == 0 || x.shape()[d] != 1) return x;
  Shape to = x.shape();
  to.erase(d);
  return dispatch(reshape_op, {&x}, {{"shape", to}});
}

Tensor squeeze(const Arg& arg) {
  FirstOperand x(arg, "squeeze");
  Shape to;
  for (int64_t n : x.shape())
    if (n != 1) to.push_back(n);
  return to == x.shape() ? x : dispatch(reshape_op, {&x}, {{"shape", to}});
}

Tensor unsqueeze(const Arg& arg, int64_t dim) {
  const FirstOperand x(arg, "unsqueeze");
  const int d = normalize_dim(dim, x.dim() + 1, "unsqueeze");
  Shape to = x.shape();
  to.insert(d, 1);
  return dispatch(reshape_op, {&x}, {{"shape", to}});
}

Tensor flatten(const Arg& arg, int64_t begin, int64_t end) {
  FirstOperand x(arg, "flatten");
  const int i = normalize_dim(begin, x.dim(), "flatten"), j = normalize_dim(end, x.dim(), "flatten");
  WEFT_CHECK(i <= j, "flatten: dims ", begin, " to ", end, " of ", x.shape(), "; need begin <= end");
  Shape to;
  int64_t together = 1;
  for (int d = 0; d < x.dim(); ++d) {
    if (d >= i && d <= j) together *= x.shape()[d];
    if (d == j) to.push_back(together);
    if (d < i || d > j) to.push_back(x.shape()[d]);
  }
  if (x.dim() == 0) to.push_back(1);
  return to == x.shape() ? x : dispatch(reshape_op, {&x}, {{"shape", to}});
}

Tensor slice(const Arg& arg, int64_t dim, int64_t begin, int64_t end, int64_t step) {
  const FirstOperand x(arg, "slice");
  WEFT_CHECK(x.dim() > 0, "slice: got a scalar; need a dim to cut");
  WEFT_CHECK(step >= 1, "slice: step is ", step, "; need 1 or more");
  const int d = normalize_dim(dim, x.dim(), "slice");
  const int64_t n = x.shape()[d];
  auto clamp = [n](int64_t i) { return std::clamp(i < 0 ? i + n : i, int64_t{0}, n); };
  const int64_t from = clamp(begin), to = std::max(from, clamp(end));
  return slice_dim(x, d, from, to, step);
}

Tensor select(const Arg& arg, int64_t dim, int64_t index) {
  const FirstOperand x(arg, "select");
  WEFT_CHECK_AS(kOutOfRange, x.dim() > 0, "select: got a scalar; need a dim to choose from");
  const int d = normalize_dim(dim, x.dim(), "select");
  const int64_t n = x.shape()[d];
  const bool fits = index >= -n && index < n;
  WEFT_CHECK_AS(kOutOfRange, fits, "select: index ", index, " is out of range for dim ", d, " of ", x.shape(),
                n == 0 ? std::string(": there is nothing to choose from") : str_cat("; need ", -n, " to ", n - 1));
  const int64_t i = index < 0 ? index + n : index;
  Shape to = x.shape();
  to.erase(d);
  return reshape(slice_dim(x, d, i, i + 1, 1), to);
}

Tensor contiguous(const Arg& arg) {
  FirstOperand x(arg, "contiguous");
  // A graph value has no strides: the plan of a captured step decides about memory.
  return is_capturing() || x.is_contiguous() ? x : dispatch(contiguous_op, {&x}, {});
}

Tensor pad(const Arg& arg, const std::vector<int64_t>& pads, double value) {
  const FirstOperand input(arg, "pad");
  internal::check_fits("pad", value, input.dtype());
  WEFT_CHECK(pads.size() % 2 == 0 && static_cast<int>(pads.size()) <= 2 * input.dim(), "pad: ", pads.size(),
             " widths for ", input.shape(), "; need a pair per dim, from the last");
  Tensor x = input;
  Shape lo = Shape::filled(x.dim(), 0), hi = lo;
  for (size_t k = 0; k < pads.size() / 2; ++k) {
    const int d = x.dim() - 1 - static_cast<int>(k);
    const int64_t before = pads[2 * k], after = pads[2 * k + 1], n = x.shape()[d];
    WEFT_CHECK(before >= -n && after >= -n && n + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) >= 0,
               "pad: ", before, " and ", after, " cut more than dim ", d, " of ", input.shape(), " has; need ", -n,
               " or more together");
    x = slice_dim(x, d, std::max<int64_t>(-before, 0), n + std::min<int64_t>(after, 0), 1);
    lo[d] = std::max<int64_t>(before, 0);
    hi[d] = std::max<int64_t>(after, 0);
  }
  const Shape none = Shape::filled(x.dim(), 0);
  if (lo == none && hi == none) return x;
  return dispatch(pad_op, {&x}, {{"lo", lo}, {"hi", hi}, {"value", value}});
}

Tensor concat(const std::vector<Tensor>& xs, int64_t dim, SourceLine line) {
  LineScope here(line);
  const internal::Called name("cat");
  WEFT_CHECK(!xs.empty(), "cat: no tensors; need one or more");
  for (const Tensor& x : xs)
    WEFT_CHECK_AS(kFailedPrecondition, x.defined(), "cat: an operand is an undefined tensor; need one with a value");
  DType dtype = xs[0].dtype();
  for (const Tensor& x : xs) dtype = promote(dtype, x.dtype());
  WEFT_CHECK(xs[0].dim() > 0, "cat: got a scalar; need a dim to join along, or stack");
  const int64_t d = normalize_dim(dim, xs[0].dim(), "cat");
  std::vector<Tensor> same;
  for (const Tensor& x : xs) same.push_back(cast(x, dtype));
  return same.size() == 1 ? same[0] : dispatch(concat_op, internal::pointers(same), {{"dim", d}});
}

Tensor stack(const std::vector<Tensor>& xs, int64_t dim, std::source_location loc) {
  LineScope here(loc);
  const internal::Called name("stack");
  WEFT_CHECK(!xs.empty(), "stack: no tensors; need one or more");
  std::vector<Tensor> rows;
  for (const Tensor& x : xs) {
    WEFT_CHECK(x.shape() == xs[0].shape(), "stack: shapes ", xs[0].shape(), " and ", x.shape(),
               " differ; need equal ones");
    rows.push_back(unsqueeze(x, dim));
  }
  return concat(rows, normalize_dim(dim, xs[0].dim() + 1, "stack"), loc);
}

std::vector<Tensor> split(const Arg& arg, int64_t size, int64_t dim) {
  const FirstOperand x(arg, "split");
  WEFT_CHECK(size > 0, "split: size is ", size, "; need 1 or more");
  const int64_t n = x.dim() == 0 ? 0 : x.shape()[normalize_dim(dim, x.dim(), "split")];
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < n; i = saturating_add(i, size)) sizes.push_back(std::min(size, n - i));
  if (sizes.empty()) sizes.push_back(0);
  return split(arg, sizes, dim);
}

std::vector<Tensor> split(const Arg& arg, const std::vector<int64_t>& sizes, int64_t dim) {
  const FirstOperand x(arg, "split");
  WEFT_CHECK(x.dim() > 0, "split: got a scalar; need a dim to cut");
  const int d = normalize_dim(dim, x.dim(), "split");
  int64_t total = 0;
  bool ok = true;
  for (int64_t n : sizes) total = saturating_add(total, n), ok = ok && n >= 0;
  WEFT_CHECK(ok && total == x.shape()[d], "split: sizes ", sizes, " of dim ", d, " of ", x.shape(), "; need a sum of ",
             x.shape()[d]);
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (int64_t n : sizes) {
    pieces.push_back(slice_dim(x, d, begin, begin + n, 1));
    begin += n;
  }
  return pieces;
}

std::vector<Tensor> chunk(const Arg& arg, int64_t n, int64_t dim) {
  const internal::Called name("chunk");
  const FirstOperand x(arg, "chunk");
  WEFT_CHECK(n > 0, "chunk: ", n, " pieces; need 1 or more");
  const int64_t extent = x.dim() == 0 ? 0 : x.shape()[normalize_dim(dim, x.dim(), "chunk")];
  return split(arg, extent == 0 ? 1 : (extent - 1) / n + 1, dim);
}

std::vector<Tensor> unbind(const Arg& arg, int64_t dim) {
  const FirstOperand x(arg, "unbind");
  WEFT_CHECK(x.dim() > 0, "unbind: got a scalar; need a dim to unbind");
  const int d = normalize_dim(dim, x.dim(), "unbind");
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < x.shape()[d]; ++i) rows.push_back(select(x, d, i));
  return rows;
}

Tensor tril(const Arg& x, int64_t diagonal) { return triangle(x, diagonal, true, "tril"); }
Tensor triu(const Arg& x, int64_t diagonal) { return triangle(x, diagonal, false, "triu"); }

Tensor roll(const Arg& arg, const Shape& shifts, const Shape& dims) {
  LineScope here(arg.line());
  Tensor x = tensor_of(arg, "roll");
  if (dims.empty()) {
    WEFT_CHECK(shifts.size() == 1, "roll: ", shifts.size(), " shifts and no dims; need one shift, or a dim for each");
    return reshape(roll(flatten(x), shifts, 0), x.shape());
  }
  WEFT_CHECK_AS(kOutOfRange, x.dim() > 0, "roll: got a scalar and dims ", dims, "; need no dims");
  WEFT_CHECK(shifts.size() == dims.size(), "roll: shifts ", shifts, " and dims ", dims,
             "; need one shift for each dim");
  for (int k = 0; k < dims.size(); ++k) {
    const int d = normalize_dim(dims[k], x.dim(), "roll");
    const int64_t n = x.shape()[d];
    if (n == 0 || shifts[k] % n == 0) continue;
    const int64_t by = (shifts[k] % n + n) % n;
    x = cat({slice(x, d, n - by, n), slice(x, d, 0, n - by)}, d);
  }
  return x;
}

// One index for each dim: the kernel of index_select copies backwards where an index counts down.
Tensor flip(const Arg& arg, const Shape& dims) {
  LineScope here(arg.line());
  Tensor x = tensor_of(arg, "flip");
  std::vector<bool> seen(static_cast<size_t>(x.dim()) + 1);
  for (int64_t dim : dims) {
    const int d = normalize_dim(dim, x.dim(), "flip");
    WEFT_CHECK(!seen[static_cast<size_t>(d)], "flip: dims ", dims, " name dim ", d, " twice; need each once");
    seen[static_cast<size_t>(d)] = true;
    if (x.dim() == 0 || x.shape()[d] <= 1) continue;
    x = index_select(x, d, arange(x.shape()[d] - 1, -1, -1, {.dtype = kInt64, .device = x.device()}));
  }
  return x;
}

Tensor repeat_interleave(const Arg& arg, int64_t n, int64_t dim) {
  const internal::Called name("repeat_interleave");
  const FirstOperand x(arg, "repeat_interleave");
  WEFT_CHECK(n >= 0, "repeat_interleave: ", n, " times; need 0 or more");
  WEFT_CHECK(x.dim() > 0, "repeat_interleave: got a scalar; need a dim");
  const int d = normalize_dim(dim, x.dim(), "repeat_interleave");
  Shape wide = x.shape(), to = x.shape();
  wide.insert(d + 1, n);
  to[d] = saturating_mul(to[d], n);
  return reshape(broadcast_to(unsqueeze(x, d + 1), wide), to);
}

Tensor repeat_interleave(const Arg& arg, int64_t n) {
  LineScope here(arg.line());
  return repeat_interleave(flatten(arg), n, 0);
}

Tensor Tensor::contiguous(Loc loc) const { return weft::contiguous({*this, loc}); }

}  // namespace weft
