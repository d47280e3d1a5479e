// The public functions over the records of index.cc, with PyTorch's names and argument order.
#include "framework/autodiff/grad.h"
#include "framework/base/called.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/along.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

void check_index_type(const Tensor& index, const char* op, const char* hint = "") {
  WEFT_CHECK(is_integral(index.dtype()), op, ": index is ", index.type(), "; need integers", hint);
}

// Indices of 8 or 16 bits are widened; i32 and i64 are unchanged.
Tensor as_index(const Tensor& index) { return is_small_integer(index.dtype()) ? cast(index, kInt64) : index; }

// gather and index_select: x and one index along `dim`.
Tensor picked(const OpDef& op, const Arg& arg, int64_t dim, const Arg& index, std::string what = {}) {
  LineScope here(arg.line());
  const Tensor& i = tensor_of(index, op.name);
  check_index_type(i, op.name);
  const Along a(tensor_of(arg, op.name), dim, op.name);
  const Tensor at = one_dim(as_index(i));
  WEFT_CHECK(!a.scalar || &op == &gather_op || at.numel() == 1, op.name, ": ", at.numel(),
             " positions in a scalar; need one");
  Attrs attrs{{"dim", int64_t{a.dim}}};
  if (!what.empty()) attrs = attrs.with("what", std::move(what));
  const Tensor y = dispatch(op, {&a.x, &at}, attrs);
  if (&op == &gather_op) return i.dim() == 0 ? reshape(y, {}) : y;
  return a.result(y);
}

// index_add and index_copy: the ops change rows, so another dim is moved to the front and back.
Tensor rows_changed(const OpDef& op, const Arg& arg, int64_t dim, const Arg& index, const Arg& source) {
  LineScope here(arg.line());
  const Tensor &i = tensor_of(index, op.name), src = one_dim(tensor_of(source, op.name));
  check_index_type(i, op.name);
  const Along a(tensor_of(arg, op.name), dim, op.name);
  const Tensor at = one_dim(as_index(i));
  if (a.dim == 0) return a.result(dispatch(op, {&a.x, &at, &src}));
  const Tensor rows = movedim(a.x, a.dim, 0), sources = movedim(src, a.dim, 0);
  return movedim(dispatch(op, {&rows, &at, &sources}), 0, a.dim);
}

// Sums of bool, as in PyTorch: whether any term is true.
bool is_or(const Arg& x, const Arg& source) {
  return x.is_tensor() && source.is_tensor() && x.tensor().defined() && source.tensor().defined() &&
         x.tensor().dtype() == kBool && source.tensor().dtype() == kBool;
}

std::vector<Tensor> tensors(std::initializer_list<Arg> starts, Device device) {
  std::vector<Tensor> r;
  for (const Arg& a : starts) {
    WEFT_CHECK(a.is_tensor() || a.kind() == Arg::kInt, "dynamic_slice: a start is ", a.number(),
               "; need integers or tensors of integers");
    r.push_back(a.is_tensor() ? a.tensor() : constant(a.integer(), kInt64, device, a.line()));
  }
  return r;
}

// Whether an index, of which `i` has the elements in i64 or i32, may count from the end. A single index in a mod or in
// kernel() does not: their analysis handles reads at positions, and the reads of a mod have their own check.
bool may_be_negative(const Tensor& index, const Tensor& i) {
  if (index.numel() == 0 || index.dtype() == kUInt8) return false;
  const Capture* capture = thread_state.capture;
  if (capture) return !capture->positions_only || index.dim() > 0;
  if (i.is_traced() || i.device().type != DeviceType::kCpu || !i.is_contiguous()) return true;
  const StridedView v = i.view_for_kernel();
  bool any = false;
  for (int64_t k = 0; k < i.numel(); ++k) any |= v.dtype == kInt64 ? v.as<int64_t>()[k] < 0 : v.as<int32_t>()[k] < 0;
  return any;
}

// The flat positions of the true (nonzero) elements.
std::vector<int64_t> true_positions(const Tensor& x, const char* op) {
  require_values(x, op, "where(mask, x, 0), which keeps x's shape");
  const std::vector<bool> values = x.to_vector<bool>();
  std::vector<int64_t> positions;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]) positions.push_back(static_cast<int64_t>(i));
  return positions;
}

}  // namespace

namespace internal {

Tensor look_up(const OpDef& op, const Arg& x, int64_t dim, const Arg& index, std::string what) {
  return picked(op, x, dim, index, std::move(what));
}

Tensor from_front(const Tensor& positions, int64_t n, const char* op) {
  check_index_type(positions, op);
  const Tensor i = cast(positions, kInt64);
  return where(bit_and(lt(i, 0), ge(i, -n)), add(i, n), i);  // others are out of range as they are
}

bool is_whole_error(std::string_view what) { return what.find("; need ") != what.npos; }

void require_values(const Tensor& x, const char* op, const char* need) {
  WEFT_CHECK_AS(kFailedPrecondition, !x.is_traced(), op, ": the shape of the result depends on the values of ",
                x.type(), ", which do not exist yet inside a compiled function; need ", need,
                ", or the call outside compiled functions");
}

Tensor positions_of(const std::vector<int64_t>& values, Device device) {
  const Tensor t = Tensor::from_vector(values, {static_cast<int64_t>(values.size())});
  return device == Device::cpu() ? t : t.to(device);
}

}  // namespace internal

Tensor gather(const Arg& x, int64_t dim, const Arg& index) { return picked(gather_op, x, dim, index); }
Tensor index_select(const Arg& x, int64_t dim, const Arg& index) { return picked(index_select_op, x, dim, index); }

Tensor take_along_dim(const Arg& arg, const Arg& index, int64_t dim) {
  LineScope here(arg.line());
  const Tensor &x = tensor_of(arg, "take_along_dim"), &i = tensor_of(index, "take_along_dim");
  const Called name("take_along_dim");
  WEFT_CHECK(x.dim() == i.dim(), "take_along_dim: x ", x.shape(), " and index ", i.shape(),
             "; need the same number of dims");
  WEFT_CHECK_AS(kOutOfRange, x.dim() > 0, "take_along_dim: got a scalar; need a dim to choose from");
  const int d = normalize_dim(dim, x.dim(), "take_along_dim");
  Shape from = x.shape(), at = i.shape();
  from[d] = at[d] = 1;
  Shape x_shape = broadcast_shapes(from, at, "take_along_dim"), i_shape = x_shape;
  x_shape[d] = x.shape()[d];
  i_shape[d] = i.shape()[d];
  const bool wraps = may_be_negative(i, cast(i, kInt64));
  const Tensor positions = wraps ? internal::from_front(i, x.shape()[d], "take_along_dim") : i;
  return gather(broadcast_to(x, x_shape), d, broadcast_to(positions, i_shape));
}

Tensor Tensor::operator[](const Arg& at) const {
  LineScope here(at.line());
  if (at.kind() == Arg::kInt) return weft::select(*this, 0, at.integer());
  WEFT_CHECK(at.is_tensor(), "operator[]: the index is ", at.number(),
             "; need an integer or a tensor of integers or bool");
  const Tensor& index = tensor_of(at, "operator[]");
  if (index.dtype() == kBool) {
    const int k = index.dim();
    Shape rest{-1}, begin;
    for (int d = 0; d < dim(); ++d) (d < k ? begin : rest).push_back(shape()[d]);
    WEFT_CHECK(begin == index.shape(), "operator[]: the mask has shape ", index.shape(), " and the tensor ", shape(),
               "; need a mask of the tensor's first dims");
    rest[0] = begin.numel();
    return weft::index_select(weft::reshape(*this, rest), 0,
                              positions_of(true_positions(index, "operator[]"), device()));
  }
  check_index_type(index, "operator[]");
  WEFT_CHECK(dim() > 0, "operator[]: the tensor has no dims; need one to index");
  Shape s = index.shape();
  for (int d = 1; d < dim(); ++d) s.push_back(size(d));
  Tensor i = as_index(weft::reshape(index, {-1}));
  if (may_be_negative(index, i)) i = from_front(i, size(0), "operator[]");
  return weft::reshape(weft::index_select(*this, 0, i), s);
}

Tensor part_at(const Arg& x, std::initializer_list<const Arg*> indices) {
  LineScope here((*indices.begin())->line());
  Tensor part = tensor_of(x, "x(i, j)");
  WEFT_CHECK_AS(kOutOfRange, static_cast<int>(indices.size()) <= part.dim(), "x(i, j): x has ", part.dim(),
                part.dim() == 1 ? " dim" : " dims", ", got ", indices.size(),
                indices.size() == 1 ? " index" : " indices", "; need at most one index for each dim");
  for (const Arg* i : indices) {
    WEFT_CHECK(indices.size() == 1 || !i->is_tensor() || !i->tensor().defined() || i->tensor().dim() == 0,
               "x(i, j): an index is ", i->tensor().type(),
               "; need numbers or 0-d tensors; index(x, {i, j}) takes more");
    part = part[*i];
  }
  return part;
}

Tensor scatter_add(const Arg& arg, int64_t dim, const Arg& index, const Arg& source) {
  LineScope here(arg.line());
  if (is_or(arg, source))
    return ne(scatter_add(cast(arg.tensor(), kInt64), dim, index, cast(source.tensor(), kInt64)), 0);
  const Tensor i = one_dim(tensor_of(index, "scatter_add"));
  check_index_type(i, "scatter_add");
  const Along a(tensor_of(arg, "scatter_add"), dim, "scatter_add");
  Tensor src = one_dim(tensor_of(source, "scatter_add"));
  // src may be larger than index: the rest of it is not used.
  if (src.dim() == i.dim())
    for (int k = 0; k < i.dim(); ++k)
      if (src.shape()[k] > i.shape()[k]) src = slice(src, k, 0, i.shape()[k]);
  const Tensor at = as_index(i);
  return a.result(dispatch(scatter_add_op, {&a.x, &at, &src}, {{"dim", int64_t{a.dim}}}));
}

Tensor index_add(const Arg& x, int64_t dim, const Arg& index, const Arg& source, const Arg& alpha) {
  const bool whole = alpha.kind() == Arg::kInt || alpha.kind() == Arg::kBoolean, plain = whole && alpha.integer() == 1;
  LineScope here(x.line());
  if (whole && is_or(x, source))
    return ne(index_add(cast(x.tensor(), kInt64), dim, index, cast(source.tensor(), kInt64), alpha), 0);
  if (plain) return rows_changed(index_add_op, x, dim, index, source);
  return rows_changed(index_add_op, x, dim, index, mul(source, alpha));
}
Tensor index_copy(const Arg& x, int64_t dim, const Arg& index, const Arg& source) {
  return rows_changed(index_copy_op, x, dim, index, source);
}

Tensor embedding(const Arg& indices, const Arg& weight) {
  LineScope here(indices.line());
  const Tensor &i = tensor_of(indices, "embedding"), &w = tensor_of(weight, "embedding");
  check_index_type(i, "embedding", ": the order is embedding(indices, weight)");
  WEFT_CHECK(w.dim() == 2, "embedding: weight is ", w.type(), "; need [rows, width]");
  Shape shape = i.shape();
  shape.push_back(w.size(1));
  const Tensor rows = look_up(index_select_op, w, 0, reshape(i, {-1}), "embedding: an index is not a row");
  return reshape(rows, shape);
}

Tensor one_hot(const Arg& arg, int64_t classes) {
  const FirstOperand x(arg, "one_hot");
  check_index_type(x, "one_hot");
  WEFT_CHECK(classes >= 0, "one_hot: ", classes, " classes; need 0 or more");
  return cast(eq(unsqueeze(as_index(x), -1), arange(classes, {.dtype = as_index(x).dtype(), .device = x.device()})),
              kInt64);
}

Tensor histogram(const Arg& arg, int64_t bins) {
  const FirstOperand x(arg, "histogram");
  const Called name("histogram");
  check_index_type(x, "histogram");
  WEFT_CHECK(bins >= 0, "histogram: ", bins, " bins; need 0 or more");
  const TensorOptions counts{.dtype = kInt64, .device = x.device()};
  return scatter_add(zeros({bins}, counts), 0, reshape(x, {-1}), ones({x.numel()}, counts));
}

Tensor masked_fill(const Arg& arg, const Arg& mask, const Arg& value) {
  const FirstOperand x(arg, "masked_fill");
  const Called name("masked_fill");
  if (is_floating(x.dtype()) && !value.is_tensor()) return where(mask, value, x);
  WEFT_CHECK(is_floating(x.dtype()) || !(value.is_tensor() ? is_floating(tensor_of(value, "masked_fill").dtype())
                                                           : value.kind() == Arg::kFloat),
             "masked_fill: the value is a floating-point number and x ", x.type(),
             "; need an integer, or convert x with to(f32)");
  if (value.is_tensor()) return where(mask, cast(tensor_of(value, "masked_fill"), x.dtype()), x);
  check_fits("masked_fill", value, x.dtype());
  return where(mask, full({}, value, {.dtype = x.dtype(), .device = x.device()}), x);
}

Tensor nonzero(const Arg& arg) {
  const FirstOperand x(arg, "nonzero");
  const std::vector<int64_t> flat = true_positions(x, "nonzero");
  std::vector<int64_t> at(flat.size() * static_cast<size_t>(x.dim()));
  for (size_t i = 0; i < flat.size(); ++i) {
    int64_t rest = flat[i];
    for (int d = x.dim() - 1; d >= 0; rest /= x.shape()[d--])
      at[i * static_cast<size_t>(x.dim()) + static_cast<size_t>(d)] = rest % x.shape()[d];
  }
  return reshape(positions_of(at, x.device()), {static_cast<int64_t>(flat.size()), x.dim()});
}

Tensor masked_select(const Arg& arg, const Arg& mask) {
  LineScope here(arg.line());
  const Tensor &x = tensor_of(arg, "masked_select"), &m = tensor_of(mask, "masked_select");
  WEFT_CHECK(m.dtype() == kBool, "masked_select: the mask is ", m.type(), "; need bool");
  const Shape shape = broadcast_shapes(x.shape(), m.shape(), "masked_select");
  std::vector<int64_t> positions = true_positions(m, "masked_select");
  if (m.shape() != shape) {  // every place of the result where the mask's element is true
    std::vector<bool> kept(static_cast<size_t>(m.numel()));
    for (int64_t p : positions) kept[static_cast<size_t>(p)] = true;
    positions.clear();
    for (int64_t i = 0; i < shape.numel(); ++i) {
      int64_t rest = i, from = 0, stride = 1;
      for (int d = shape.size() - 1, k = m.dim() - 1; k >= 0; rest /= shape[d--], stride *= m.shape()[k--])
        if (m.shape()[k] > 1) from += rest % shape[d] * stride;
      if (kept[static_cast<size_t>(from)]) positions.push_back(i);
    }
  }
  return index_select(flatten(broadcast_to(x, shape)), 0, positions_of(positions, x.device()));
}

Tensor dynamic_update_slice(const Arg& x, const Arg& update, std::initializer_list<Arg> starts) {
  const FirstOperand t(x, "dynamic_update_slice");
  return dynamic_update_slice(x, update, tensors(starts, t.device()));
}
Tensor dynamic_update_slice(const Arg& x, const Arg& update, std::span<const Tensor> starts, SourceLine line) {
  LineScope here(line.line ? line : x.line());
  SmallVec<const Tensor*, 6> in{&tensor_of(x, "dynamic_update_slice"), &tensor_of(update, "dynamic_update_slice")};
  for (const Tensor& s : starts) in.push_back(&s);
  return dispatch(dynamic_update_slice_op, TensorPtrs(in));
}

Tensor dynamic_slice(const Arg& x, std::initializer_list<Arg> starts, const Shape& sizes) {
  const FirstOperand t(x, "dynamic_slice");
  return dynamic_slice(x, tensors(starts, t.device()), sizes);
}
Tensor dynamic_slice(const Arg& x, std::span<const Tensor> starts, const Shape& sizes, SourceLine line) {
  LineScope here(line.line ? line : x.line());
  SmallVec<const Tensor*, 6> in{&tensor_of(x, "dynamic_slice")};
  for (const Tensor& s : starts) in.push_back(&s);
  return dispatch(dynamic_slice_op, TensorPtrs(in), {{"sizes", sizes}});
}

}  // namespace weft
