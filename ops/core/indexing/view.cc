// Records of the ops that move elements without arithmetic. They are linear in the elements that they move.
#include "ops/core/indexing/view.h"

#include <numeric>

#include "framework/dispatch/dispatch.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"
#include "ops/kernels/kernels.h"

namespace weft {

using internal::Sample;

namespace {

using internal::factor_name;
using internal::join_words;
using DimWords = std::vector<std::string>;

TensorType with_shape(const TensorType& t, const Shape& shape) { return {t.dtype, t.device, shape}; }

// The copy that a view op makes if its result must have its own memory.
void copy_of_view(const KernelCall& c) {
  StridedView from = c.in[0];
  int64_t offset = 0;
  Shape strides;
  const bool ok = c.op.view(c.attrs, c.in[0], {c.out[0].dtype, {}, c.out[0].shape}, &strides, &offset);
  WEFT_BUG_IF(!ok, c.op.name, ": no view of strides ", c.in[0].strides);
  from.data = static_cast<char*>(from.data) + offset * itemsize(from.dtype);
  from.shape = c.out[0].shape;
  from.strides = strides;
  kernels::cast_copy(from, c.out[0]);
}

Sample sample(const Shape& in, Attrs attrs) { return {{{in}}, std::move(attrs), "", true}; }
Sample failing(const Shape& in, Attrs attrs, std::string error) { return {{{in}}, std::move(attrs), std::move(error)}; }

// ---- reshape ----

Types infer_reshape(const InferCall& c) {
  const Shape& shape = c.attrs.ints("shape");
  WEFT_CHECK(checked_numel(shape, "reshape") == c.in[0].shape.numel(), "reshape: ", c.in[0].shape, " has ",
             c.in[0].shape.numel(), " elements; shape ", shape, " needs ", shape.numel());
  return {with_shape(c.in[0], shape)};
}

bool view_reshape(const Attrs&, const StridedView& in, const TensorType& out, Shape* strides, int64_t* offset) {
  *offset = 0;
  return view_strides(in.shape, in.strides, out.shape, strides);
}

void run_reshape(const KernelCall& c) {
  StridedView out = c.out[0];
  WEFT_BUG_IF(!out.contiguous(), "reshape: result is not contiguous");
  out.shape = c.in[0].shape;
  out.strides = contiguous_strides(out.shape);
  kernels::cast_copy(c.in[0], out);
}

// Splits both shapes into common factors, major first; a run of dims that do not divide each other moves as a whole.
DimMap dims_reshape(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const Shape &from = in[0].shape, &to = out[0].shape;
  const TensorType* types[] = {in.data(), out.data()};
  if (from.numel() == 0) {
    DimWords words[2];
    int at = 0;
    for (int side = 0; side < 2; ++side)
      for (int d = 0; d < types[side]->shape.size(); ++d) words[side].push_back(factor_name(at++) + "?");
    return DimMap::parse(join_words(words[0]) + " -> " + join_words(words[1]), in, out);
  }
  std::vector<DimWords> dims[2] = {std::vector<DimWords>(from.size()), std::vector<DimWords>(to.size())};
  std::vector<std::pair<std::string, int64_t>> sizes;
  int i = 0, j = 0;
  int64_t left = from.empty() ? 1 : from[0], right = to.empty() ? 1 : to[0];
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && left == 1) {
      left = ++i < from.size() ? from[i] : 1;
      continue;
    }
    if (j < to.size() && right == 1) {
      right = ++j < to.size() ? to[j] : 1;
      continue;
    }
    if (const int64_t size = std::gcd(left, right); size > 1) {
      const std::string name = factor_name(static_cast<int>(sizes.size()));
      sizes.push_back({name, size});
      dims[0][i].push_back(name);
      dims[1][j].push_back(name);
      left /= size;
      right /= size;
      continue;
    }
    auto whole = [&](int side, int dim, int64_t size) {
      const std::string name = factor_name(static_cast<int>(sizes.size()));
      sizes.push_back({name, size});
      dims[side][dim].push_back(name + "?");
    };
    int64_t product_left = left, product_right = right;
    whole(0, i, left);
    whole(1, j, right);
    while (product_left != product_right) {
      if (product_left < product_right) {
        product_left *= from[++i];
        if (from[i] > 1) whole(0, i, from[i]);
      } else {
        product_right *= to[++j];
        if (to[j] > 1) whole(1, j, to[j]);
      }
    }
    left = right = 1;
  }
  std::string text;
  for (int side = 0; side < 2; ++side) {
    DimWords words;
    for (const DimWords& d : dims[side])
      words.push_back(d.empty() ? "1" : d.size() == 1 ? d[0] : "(" + join_words(d) + ")");
    text += (side ? " -> " : "") + join_words(words);
  }
  return DimMap::parse(text, in, out, sizes);
}

Grads vjp_reshape(const VjpCall& c) { return {reshape(c.grad[0], c.in[0].shape())}; }

std::vector<Sample> samples_reshape() {
  auto to = [](const Shape& s) { return Attrs{{"shape", s}}; };
  return {sample({6, 4}, to({3, 8})),
          sample({2, 3, 5}, to({30})),
          sample({17}, to({1, 17, 1})),
          sample({}, to({1, 1})),
          sample({1}, to({})),
          sample({0, 3}, to({2, 0})),
          sample({4, 9}, to({6, 6})),
          sample({2, 1, 3}, to({2, 3})),
          failing({2, 3}, to({4}), "reshape: [2, 3] has 6 elements; shape [4] needs 4"),
          failing({2}, to({-2}), "reshape: negative extent")};
}

// ---- permute ----

Types infer_permute(const InferCall& c) {
  const Shape &dims = c.attrs.ints("dims"), &in = c.in[0].shape;
  uint32_t seen = 0;
  for (int64_t d : dims)
    if (d >= 0 && d < in.size()) seen |= 1u << d;
  WEFT_CHECK(dims.size() == in.size() && seen == (1u << in.size()) - 1, "permute: dims ", dims, " of ", in,
             "; need each of the ", in.size(), " dims once");
  Shape shape;
  for (int64_t d : dims) shape.push_back(in[static_cast<int>(d)]);
  return {with_shape(c.in[0], shape)};
}

bool view_permute(const Attrs& attrs, const StridedView& in, const TensorType&, Shape* strides, int64_t* offset) {
  *offset = 0;
  *strides = Shape();
  for (int64_t d : attrs.ints("dims")) strides->push_back(in.strides[static_cast<int>(d)]);
  return true;
}

DimMap dims_permute(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  DimWords from, to;
  for (int i = 0; i < in[0].shape.size(); ++i) from.push_back(factor_name(i));
  for (int64_t d : attrs.ints("dims")) to.push_back(factor_name(static_cast<int>(d)));
  return DimMap::parse(join_words(from) + " -> " + join_words(to), in, out);
}

Grads vjp_permute(const VjpCall& c) { return {permute(c.grad[0], internal::inverse_order(c.attrs.ints("dims")))}; }

std::vector<Sample> samples_permute() {
  auto to = [](const Shape& s) { return Attrs{{"dims", s}}; };
  return {sample({3, 5}, to({1, 0})),
          sample({2, 3, 5, 7}, to({2, 0, 3, 1})),
          sample({}, to({})),
          sample({0, 3}, to({1, 0})),
          sample({33, 1, 2}, to({2, 1, 0})),
          failing({2, 3}, to({0, 0}), "permute: dims [0, 0] of [2, 3]; need each of the 2 dims once"),
          failing({2, 3}, to({0}), "permute: dims [0] of [2, 3]")};
}

// ---- broadcast ----

Types infer_broadcast(const InferCall& c) {
  const Shape &to = c.attrs.ints("shape"), &in = c.in[0].shape;
  const int shift = to.size() - in.size();
  bool ok = shift >= 0;
  for (int i = 0; ok && i < in.size(); ++i) ok = in[i] == 1 || in[i] == to[i + shift];
  WEFT_CHECK(ok, "broadcast: ", in, " does not broadcast to ", to,
             "; need equal extents or 1, dims aligned on the right");
  return {with_shape(c.in[0], to)};
}

bool view_broadcast(const Attrs&, const StridedView& in, const TensorType& out, Shape* strides, int64_t* offset) {
  *offset = 0;
  *strides = Shape::filled(out.shape.size(), 0);
  const int shift = out.shape.size() - in.shape.size();
  for (int i = 0; i < in.shape.size(); ++i)
    if (in.shape[i] == out.shape[i + shift]) (*strides)[i + shift] = in.strides[i];
  return true;
}

Grads vjp_broadcast(const VjpCall& c) {
  const Shape &in = c.in[0].shape(), &out = c.out[0].shape();
  const int shift = out.size() - in.size();
  Shape dims;
  for (int i = 0; i < out.size(); ++i)
    if (i < shift || (in[i - shift] == 1 && out[i] != 1)) dims.push_back(i);
  return {reshape(dims.empty() ? c.grad[0] : sum(c.grad[0], dims), in)};
}

std::vector<Sample> samples_broadcast() {
  auto to = [](const Shape& s) { return Attrs{{"shape", s}}; };
  return {sample({5}, to({3, 5})),
          sample({3, 1}, to({3, 17})),
          sample({}, to({2, 3})),
          sample({2, 1, 3}, to({4, 2, 5, 3})),
          failing({1}, to({}), "broadcast: [1] does not broadcast to []"),
          sample({1, 3}, to({0, 3})),
          sample({3}, to({3})),
          failing({3}, to({2, 4}), "broadcast: [3] does not broadcast to [2, 4]"),
          failing({2, 3}, to({3}), "broadcast: [2, 3] does not broadcast to [3]")};
}

// ---- slice ----

int64_t slice_extent(int64_t begin, int64_t end, int64_t step) {
  return end == begin ? 0 : (end - begin - 1) / step + 1;
}

Types infer_slice(const InferCall& c) {
  const Shape &begin = c.attrs.ints("begin"), &end = c.attrs.ints("end"), &step = c.attrs.ints("step");
  const Shape& in = c.in[0].shape;
  WEFT_CHECK(begin.size() == in.size() && end.size() == in.size() && step.size() == in.size(), "slice: ", begin.size(),
             " begins, ", end.size(), " ends and ", step.size(), " steps for ", in, "; need one per dim");
  Shape shape;
  for (int i = 0; i < in.size(); ++i) {
    WEFT_CHECK(begin[i] >= 0 && begin[i] <= end[i] && end[i] <= in[i] && step[i] >= 1, "slice: [", begin[i], ", ",
               end[i], ") step ", step[i], " of dim ", i, " of ", in, "; need 0 <= begin <= end <= ", in[i],
               " and step >= 1");
    shape.push_back(slice_extent(begin[i], end[i], step[i]));
  }
  return {with_shape(c.in[0], shape)};
}

bool view_slice(const Attrs& attrs, const StridedView& in, const TensorType& out, Shape* strides, int64_t* offset) {
  const Shape &begin = attrs.ints("begin"), &step = attrs.ints("step");
  *offset = 0;
  *strides = in.strides;
  for (int i = 0; i < in.shape.size(); ++i) {
    *offset += begin[i] * in.strides[i];
    if (out.shape[i] > 1) (*strides)[i] *= step[i];  // else the stride is not used
  }
  if (out.shape.numel() == 0) *offset = 0;  // an empty view stays inside its storage
  return true;
}

// Dims of equal extent pass; a sliced dim moves as a whole.
DimMap dims_cut(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const auto [from, to] = internal::words_of_equal(in[0].shape, out[0].shape);
  return DimMap::parse(from + " -> " + to, in, out);
}

Cost cost_of_copy(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {0, 2 * internal::bytes_of(out)};
}

Grads vjp_slice(const VjpCall& c) {
  const Shape &begin = c.attrs.ints("begin"), &step = c.attrs.ints("step");
  const Shape &in = c.in[0].shape(), &out = c.out[0].shape();
  Shape lo = in, hi = in, interior = in;
  bool spread = false;
  for (int i = 0; i < in.size(); ++i) {
    const int64_t covered = out[i] == 0 ? 0 : (out[i] - 1) * step[i] + 1;
    lo[i] = out[i] == 0 ? 0 : begin[i];
    hi[i] = in[i] - lo[i] - covered;
    interior[i] = step[i] - 1;
    spread |= step[i] > 1;
  }
  Attrs attrs{{"lo", lo}, {"hi", hi}, {"value", 0.0}};
  if (spread) attrs = attrs.with("interior", interior);
  return {dispatch(pad_op, {&c.grad[0]}, attrs)};
}

std::vector<Sample> samples_slice() {
  auto cut = [](const Shape& begin, const Shape& end, const Shape& step) {
    return Attrs{{"begin", begin}, {"end", end}, {"step", step}};
  };
  return {sample({7, 5}, cut({1, 0}, {6, 5}, {1, 1})),
          sample({17}, cut({2}, {15}, {3})),
          sample({3, 4, 5}, cut({0, 1, 4}, {3, 4, 5}, {2, 2, 1})),
          sample({6}, cut({0}, {6}, {5})),
          sample({4}, cut({4}, {4}, {2})),
          sample({0, 2}, cut({0, 0}, {0, 1}, {1, 1})),
          sample({}, cut({}, {}, {})),
          failing({4}, cut({2}, {5}, {1}), "slice: [2, 5) step 1 of dim 0 of [4]; need 0 <= begin <= end <= 4"),
          failing({4}, cut({2}, {3}, {0}), "step >= 1"),
          failing({4, 4}, cut({2}, {3}, {1}), "need one per dim")};
}

// ---- pad ----

int64_t spread_extent(int64_t n, int64_t interior) {
  return n == 0 ? 0 : saturating_add(saturating_mul(n - 1, saturating_add(interior, 1)), 1);
}

Shape interior_of(const Attrs& attrs, int rank) {
  return attrs.has("interior") ? attrs.ints("interior") : Shape::filled(rank, 0);
}

Types infer_pad(const InferCall& c) {
  const Shape &lo = c.attrs.ints("lo"), &hi = c.attrs.ints("hi"), &in = c.in[0].shape;
  const Shape interior = interior_of(c.attrs, in.size());
  WEFT_CHECK(lo.size() == in.size() && hi.size() == in.size() && interior.size() == in.size(), "pad: lo ", lo,
             " and hi ", hi, " for ", in, "; need one per dim");
  Shape shape;
  for (int i = 0; i < in.size(); ++i) {
    WEFT_CHECK(lo[i] >= 0 && hi[i] >= 0 && interior[i] >= 0, "pad: lo ", lo, " and hi ", hi, "; need 0 or more");
    shape.push_back(saturating_add(saturating_add(lo[i], hi[i]), spread_extent(in[i], interior[i])));
  }
  return {with_shape(c.in[0], shape)};
}

void run_pad(const KernelCall& c) {
  const Shape &lo = c.attrs.ints("lo"), interior = interior_of(c.attrs, c.in[0].shape.size());
  kernels::fill(c.out[0], c.attrs.f("value"));
  if (c.in[0].numel() == 0) return;
  StridedView inner = c.out[0];
  int64_t offset = 0;
  for (int i = 0; i < inner.shape.size(); ++i) {
    offset += lo[i] * inner.strides[i];
    if (c.in[0].shape[i] > 1) inner.strides[i] *= interior[i] + 1;
  }
  inner.shape = c.in[0].shape;
  inner.data = static_cast<char*>(inner.data) + offset * itemsize(inner.dtype);
  kernels::cast_copy(c.in[0], inner);
}

DimMap dims_pad(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  DimMap m = dims_cut(attrs, in, out);
  m.linear = attrs.f("value") == 0;
  return m;
}

Grads vjp_pad(const VjpCall& c) {
  const Shape &lo = c.attrs.ints("lo"), &in = c.in[0].shape();
  const Shape interior = interior_of(c.attrs, in.size());
  Shape end = lo, step = interior;
  for (int i = 0; i < in.size(); ++i) {
    end[i] = lo[i] + spread_extent(in[i], interior[i]);
    step[i] = saturating_add(interior[i], 1);
  }
  return {dispatch(slice_op, {&c.grad[0]}, {{"begin", lo}, {"end", end}, {"step", step}})};
}

std::vector<Sample> samples_pad() {
  auto by = [](const Shape& lo, const Shape& hi, double value) {
    return Attrs{{"lo", lo}, {"hi", hi}, {"value", value}};
  };
  std::vector<Sample> s = {sample({3, 5}, by({1, 0}, {0, 2}, 0)),
                           sample({17}, by({3}, {4}, 2.5)),
                           sample({0, 2}, by({1, 1}, {1, 0}, 1)),
                           sample({}, by({}, {}, 0)),
                           sample({2, 1, 3}, by({0, 2, 0}, {0, 0, 1}, -1)),
                           failing({3}, by({-1}, {0}, 0), "pad: lo [-1] and hi [0]; need 0 or more"),
                           failing({3, 4}, by({1}, {0}, 0), "need one per dim")};
  s.push_back(sample({5, 3}, by({1, 0}, {2, 1}, 0).with("interior", Shape{2, 1})));
  return s;
}

// ---- concat ----

Types infer_concat(const InferCall& c) {
  WEFT_CHECK(!c.in.empty(), "concat: no tensors; need one or more");
  const int dim = internal::checked_dim(c);
  Shape shape = c.in[0].shape;
  for (size_t i = 1; i < c.in.size(); ++i) {
    const Shape& s = c.in[i].shape;
    bool ok = s.size() == shape.size();
    for (int d = 0; ok && d < s.size(); ++d) ok = d == dim || s[d] == shape[d];
    WEFT_CHECK(ok, "concat: shapes ", c.in[0].shape, " and ", s, " differ outside dim ", dim,
               "; need equal extents in the other dims");
    WEFT_CHECK(c.in[i].dtype == c.in[0].dtype, "concat: operands are ", c.in[0].dtype, " and ", c.in[i].dtype,
               "; need one dtype");
    shape[dim] = saturating_add(shape[dim], s[dim]);
  }
  return {with_shape(c.in[0], shape)};
}

void run_concat(const KernelCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  StridedView piece = c.out[0];
  for (const StridedView& in : c.in) {
    piece.shape[dim] = in.shape[dim];
    if (in.numel() > 0) kernels::cast_copy(in, piece);
    piece.data = static_cast<char*>(piece.data) + in.shape[dim] * piece.strides[dim] * itemsize(piece.dtype);
  }
}

DimMap dims_concat(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const int dim = static_cast<int>(attrs.i("dim")), rank = out[0].shape.size();
  std::string text;
  for (size_t i = 0; i <= in.size(); ++i) {
    DimWords words;
    for (int d = 0; d < rank; ++d)
      words.push_back(d == dim && in.size() > 1 ? factor_name(rank + static_cast<int>(i)) + "?" : factor_name(d));
    text += (i == 0 ? "" : i == in.size() ? " -> " : ", ") + join_words(words);
  }
  return DimMap::parse(text, in, out);
}

Grads vjp_concat(const VjpCall& c) {
  const int64_t dim = c.attrs.i("dim");
  Grads g(c.in.size());
  int64_t begin = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const int64_t n = c.in[i].size(dim);
    if (c.needs(static_cast<int>(i))) g[i] = slice(c.grad[0], dim, begin, begin + n);
    begin += n;
  }
  return g;
}

std::vector<Sample> samples_concat() {
  auto along = [](int64_t d) { return Attrs{{"dim", d}}; };
  return {{{{Shape{3, 5}}, {Shape{2, 5}}}, along(0)},
          {{{Shape{3, 5}}, {Shape{3, 1}}, {Shape{3, 12}}}, along(1)},
          {{{Shape{17}}}, along(0)},
          {{{Shape{0, 2}}, {Shape{3, 2}}}, along(0)},
          {{{Shape{2, 0}}, {Shape{2, 0}}}, along(1)},
          {{{Shape{2, 3}}, {Shape{3, 2}}}, along(0), "concat: shapes [2, 3] and [3, 2] differ outside dim 0"},
          {{{Shape{2}}, {Shape{2}, kInt32}}, along(0), "need one dtype"},
          {{{Shape{2}}, {Shape{2}}}, along(1), "concat: dim 1 is out of range"}};
}

// ---- contiguous ----

bool view_contiguous(const Attrs&, const StridedView& in, const TensorType&, Shape* strides, int64_t* offset) {
  *offset = 0;
  *strides = in.strides;
  return in.contiguous();
}

std::vector<Sample> samples_contiguous() { return {sample({3, 17}, {}), sample({}, {}), sample({0, 2}, {})}; }

}  // namespace

const OpDef reshape_op = internal::moves({
    .name = "reshape",
    .doc = "The same elements in row-major order with {shape}.",
    .traits = kView,
    .placing = Placing::kReshape,
    .infer = infer_reshape,
    .vjp = vjp_reshape,
    .dims = dims_reshape,
    .cost = cost_of_copy,
    .kernel = run_reshape,
    .view = view_reshape,
    .samples = samples_reshape,
});
const OpDef permute_op = internal::moves({
    .name = "permute",
    .doc = "Dim i of the result is dim dims[i] of the operand.",
    .traits = kView,
    .placing = Placing::kPermute,
    .infer = infer_permute,
    .vjp = vjp_permute,
    .dims = dims_permute,
    .kernel = copy_of_view,
    .view = view_permute,
    .samples = samples_permute,
});
const OpDef broadcast_op = internal::moves({
    .name = "broadcast",
    .doc = "NumPy broadcasting to {shape}, dims aligned on the right.",
    .traits = kView,
    .placing = Placing::kBroadcast,
    .infer = infer_broadcast,
    .vjp = vjp_broadcast,
    .dims = internal::dims_pointwise,
    .kernel = copy_of_view,
    .view = view_broadcast,
    .samples = samples_broadcast,
});
const OpDef slice_op = internal::moves({
    .name = "slice",
    .doc = "Elements begin, begin + step, ... below end, in every dim.",
    .traits = kView,
    .placing = Placing::kSlice,
    .infer = infer_slice,
    .vjp = vjp_slice,
    .dims = dims_cut,
    .cost = cost_of_copy,
    .kernel = copy_of_view,
    .view = view_slice,
    .samples = samples_slice,
});
const OpDef pad_op = internal::moves({
    .name = "pad",
    .doc = "The operand with {lo} values before, {hi} after and {interior} between neighbours, in every dim.",
    .traits = kAssembles,
    .infer = infer_pad,
    .vjp = vjp_pad,
    .dims = dims_pad,
    .cost = cost_of_copy,
    .kernel = run_pad,
    .samples = samples_pad,
});
const OpDef concat_op = {
    .name = "concat",
    .doc = "The operands concatenated along {dim}.",
    .traits = kAssembles,
    .num_inputs = -1,
    .flops_per_point = 0,
    .infer = infer_concat,
    .vjp = vjp_concat,
    .dims = dims_concat,
    .cost = cost_of_copy,
    .kernel = run_concat,
    .samples = samples_concat,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = ~0u,
    .jointly = true,
};
const OpDef contiguous_op = internal::moves({
    .name = "contiguous",
    .doc = "The operand in row-major memory.",
    .traits = kView,
    .infer = internal::infer_same,
    .vjp = internal::vjp_same,
    .dims = internal::dims_pointwise,
    .kernel = internal::run_copy,
    .view = view_contiguous,
    .samples = samples_contiguous,
});

std::span<const OpDef* const> view_ops() {
  static const OpDef* const all[] = {&reshape_op, &permute_op, &broadcast_op, &slice_op,
                                     &pad_op,     &concat_op,  &contiguous_op};
  return all;
}

}  // namespace weft
