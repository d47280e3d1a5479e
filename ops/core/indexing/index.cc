// Records of gather, scatter and sorting.
#include "ops/core/indexing/index.h"

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {
namespace {

using namespace internal;
using Words = std::vector<std::string>;

int dim_of(const Attrs& attrs) { return static_cast<int>(attrs.i("dim")); }

Shape replaced(const Shape& s, int dim, int64_t extent) {
  Shape r = s;
  r[dim] = extent;
  return r;
}

// The index must have x's rank and must not be larger than x outside dim.
void check_elementwise_index(const InferCall& c) {
  const int dim = checked_dim(c);
  const TensorType &x = c.in[0], &index = c.in[1];
  check_index(c, index);
  bool ok = index.shape.size() == x.shape.size();
  for (int d = 0; ok && d < x.shape.size(); ++d) ok = d == dim || index.shape[d] <= x.shape[d];
  WEFT_CHECK(ok, c.op.name, ": index ", index.shape, " does not fit ", x.shape, " along dim ", dim,
             "; need the same number of dims, none longer outside dim ", dim);
}

// Sums need a dtype that supports addition.
void check_sum(const InferCall& c) {
  WEFT_CHECK(c.in[0].dtype != kBool, c.op.name, ": does not support bool; convert with to(f32) first");
  check_computed(c);
}

// ---- gather, scatter_add ----

Types infer_gather(const InferCall& c) {
  check_elementwise_index(c);
  return {TensorType{c.in[0].dtype, c.in[0].device, c.in[1].shape}};
}

Types infer_scatter_add(const InferCall& c) {
  check_sum(c);
  check_elementwise_index(c);
  WEFT_CHECK(c.in[2].shape == c.in[1].shape, "scatter_add: index ", c.in[1].shape, " and src ", c.in[2].shape,
             " differ; need equal shapes");
  WEFT_CHECK(c.in[2].dtype == c.in[0].dtype, "scatter_add: x and src are ", c.in[0].dtype, " and ", c.in[2].dtype,
             "; need one dtype");
  return {c.in[0]};
}

// The words of x, of index, and of the indexed side (src or result), whose dims pass if extents are equal.
DimMap dims_indexed(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out, bool scatter) {
  Words x, index;
  for (int d = 0; d < in[0].shape.size(); ++d) {
    const bool same = d != dim_of(attrs) && in[0].shape[d] == in[1].shape[d];
    const bool free = !scatter && d == dim_of(attrs);  // each index is looked up independently
    x.push_back(factor_name(2 * d) + (same ? "" : "?"));
    index.push_back(same ? factor_name(2 * d) : factor_name(2 * d + 1) + (free ? "" : "?"));
  }
  const std::string a = join_words(x), b = join_words(index);
  return DimMap::parse(scatter ? a + ", " + b + ", " + b + " -> " + a : a + ", " + b + " -> " + b, in, out);
}

DimMap dims_gather(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_indexed(attrs, in, out, false);
}
DimMap dims_scatter(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_indexed(attrs, in, out, true);
}

Cost cost_gather(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {0, 2 * bytes_of(out) + bytes_of(in.subspan(1, 1))};
}
Cost cost_scatter(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {static_cast<double>(in[2].shape.numel()),
          2 * bytes_of(out) + bytes_of(in.subspan(1, 1)) + 3 * bytes_of(in.subspan(2, 1))};
}

Grads vjp_gather(const VjpCall& c) {
  return {scatter_add(full_of(c.in[0].type(), 0), dim_of(c.attrs), c.in[1], c.grad[0]), Tensor()};
}

Grads vjp_scatter_add(const VjpCall& c) {
  return {c.grad[0], Tensor(), c.needs(2) ? gather(c.grad[0], dim_of(c.attrs), c.in[1]) : Tensor()};
}

// Runs an op with indices. Its error begins with the attribute `what` of the node, if there is one (see look_up).
template <class F>
void with_what(const KernelCall& c, const F& run) {
  try {
    run();
  } catch (const Error& e) {
    if (!c.attrs.has("what")) throw;
    const auto what = c.attrs.get<std::string>("what");
    if (is_whole_error(what)) fail(Code::kInvalidArgument, what);
    throw Error(e.code(), str_cat(what, ": ", e.what()));
  }
}

SampleInput index_in(const Shape& shape, double below, DType dtype = kInt64) { return {shape, dtype, 0, below - 1}; }

std::vector<Sample> samples_gather() {
  auto along = [](int64_t d) { return Attrs{{"dim", d}}; };
  return {
      {{{Shape{17}}, index_in({9}, 17)}, along(0)},
      {{{Shape{3, 5}}, index_in({3, 2}, 5)}, along(1)},
      {{{Shape{5, 3}}, index_in({7, 2}, 5, kInt32)}, along(0)},
      {{{Shape{2, 4, 33}}, index_in({2, 3, 33}, 4)}, along(1)},
      {{{Shape{3, 5}}, index_in({0, 5}, 3)}, along(0)},
      {{{Shape{3, 5}, kInt32, -9, 9}, index_in({3, 1}, 5)}, along(1)},
      {{{Shape{3, 5}}, {Shape{3, 2}}}, along(1), "gather: index is f32[3, 2]; need i64 or i32"},
      {{{Shape{3, 5}}, index_in({4, 2}, 5)}, along(1), "gather: index [4, 2] does not fit [3, 5] along dim 1"},
      {{{Shape{3, 5}}, index_in({3}, 5)}, along(1), "need the same number of dims"},
      {{{Shape{3, 5}}, index_in({3, 2}, 5)}, along(2), "gather: dim 2 is out of range"},
      {{{Shape{3, 5}}, {Shape{3, 2}, kInt64, 5, 5}}, along(1), "5"},
      {{{Shape{3}}, {Shape{2}, kInt64, 3, 3}},
       along(0).with("what", std::string("f: not a class")),
       "f: not a class: gather: index 3 at position 0 is out of range"},
      {{{Shape{3}}, {Shape{1}, kInt64, 3, 3}},
       along(0).with("what", std::string("f: bad; need good")),
       "f: bad; need good"},
  };
}

std::vector<Sample> samples_scatter_add() {
  auto along = [](int64_t d) { return Attrs{{"dim", d}}; };
  return {
      {{{Shape{17}}, index_in({9}, 17), {Shape{9}}}, along(0)},
      {{{Shape{3, 5}}, index_in({3, 8}, 5), {Shape{3, 8}}}, along(1)},
      {{{Shape{5, 3}}, index_in({7, 2}, 5, kInt32), {Shape{7, 2}}}, along(0)},
      {{{Shape{2, 4, 33}}, index_in({2, 3, 33}, 4), {Shape{2, 3, 33}}}, along(1)},
      {{{Shape{3, 5}}, index_in({0, 5}, 3), {Shape{0, 5}}}, along(0)},
      {{{Shape{5}, kInt64, -9, 9}, index_in({40}, 5), {Shape{40}, kInt64, -9, 9}}, along(0)},
      {{{Shape{3, 5}}, index_in({3, 2}, 5), {Shape{3, 3}}},
       along(1),
       "scatter_add: index [3, 2] and src [3, 3] differ"},
      {{{Shape{3, 5}}, index_in({3, 2}, 5), {Shape{3, 2}, kInt32}}, along(1), "need one dtype"},
      {{{Shape{3, 5}}, index_in({3, 2}, 5, kFloat32), {Shape{3, 2}}}, along(1), "scatter_add: index is f32"},
      {{{Shape{3}}, {Shape{2}, kInt64, -1, -1}, {Shape{2}}}, along(0), "-1"},
      {{{Shape{3}, kBool}, index_in({2}, 3), {Shape{2}, kBool}}, along(0), "scatter_add: does not support bool"},
  };
}

// ---- index_select, index_add, index_copy ----

Types infer_index_select(const InferCall& c) {
  const int dim = checked_dim(c);
  check_index(c, c.in[1]);
  WEFT_CHECK(c.in[1].shape.size() == 1, "index_select: index is ", c.in[1], "; need one dim");
  return {TensorType{c.in[0].dtype, c.in[0].device, replaced(c.in[0].shape, dim, c.in[1].shape[0])}};
}

DimMap dims_index_select(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  Words x, y;
  for (int d = 0; d < in[0].shape.size(); ++d) {
    const bool chosen = d == dim_of(attrs);
    x.push_back(factor_name(d + 1) + (chosen ? "?" : ""));
    y.push_back(chosen ? factor_name(0) : factor_name(d + 1));
  }
  return DimMap::parse(join_words(x) + ", " + factor_name(0) + " -> " + join_words(y), in, out);
}

Grads vjp_index_select(const VjpCall& c) {
  return {index_add(full_of(c.in[0].type(), 0), dim_of(c.attrs), c.in[1], c.grad[0]), Tensor()};
}

Types infer_rows(const InferCall& c) {
  const TensorType &x = c.in[0], &index = c.in[1], &src = c.in[2];
  check_index(c, index);
  WEFT_CHECK(x.shape.size() >= 1 && index.shape.size() == 1, c.op.name, ": x ", x.shape, " and index ", index.shape,
             "; need rows and a list of them");
  WEFT_CHECK(src.shape == replaced(x.shape, 0, index.shape[0]), c.op.name, ": src ", src.shape, " does not fit x ",
             x.shape, " and index ", index.shape, "; need ", replaced(x.shape, 0, index.shape[0]));
  WEFT_CHECK(src.dtype == x.dtype, c.op.name, ": x and src are ", x.dtype, " and ", src.dtype, "; need one dtype");
  return {x};
}
Types infer_index_add(const InferCall& c) {
  check_sum(c);
  return infer_rows(c);
}

DimMap dims_index_add(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  Words x{"a?"}, src{"b?"};
  for (int d = 1; d < in[0].shape.size(); ++d) {
    x.push_back(factor_name(d + 1));
    src.push_back(factor_name(d + 1));
  }
  return DimMap::parse(join_words(x) + ", b?, " + join_words(src) + " -> " + join_words(x), in, out);
}

Grads vjp_index_add(const VjpCall& c) {
  return {c.grad[0], Tensor(), c.needs(2) ? index_select(c.grad[0], 0, c.in[1]) : Tensor()};
}

// If a row is written twice, only the last write has a gradient: its number stays where the numbers of the writes are
// written in the same order.
Grads vjp_index_copy(const VjpCall& c) {
  Tensor of_src;
  if (c.needs(2)) {
    const int64_t writes = c.in[1].size(0);
    const TensorOptions numbers{.dtype = kInt64, .device = c.in[1].device()};
    const Tensor own = arange(writes, numbers);
    const Tensor of_row = index_copy(zeros({c.in[0].size(0)}, numbers), 0, c.in[1], own);
    const Tensor last = eq(index_select(of_row, 0, c.in[1]), own);
    Shape column = Shape::filled(c.in[2].dim(), 1);
    column[0] = writes;
    of_src = where(reshape(last, column), index_select(c.grad[0], 0, c.in[1]), 0.0);
  }
  return {c.needs(0) ? index_copy(c.grad[0], 0, c.in[1], full_of(c.in[2].type(), 0)) : Tensor(), Tensor(), of_src};
}

// x is updated in place.
Cost cost_index_copy(const Attrs&, std::span<const TensorType> in, std::span<const TensorType>) {
  return {0, bytes_of(in.subspan(1, 1)) + 2 * bytes_of(in.subspan(2, 1))};
}

std::vector<Sample> samples_index_copy() {
  auto rows = [](double first, double by) { return SampleInput{Shape{1}, kInt64, first, by}; };
  return {
      {{{Shape{17}}, rows(5, 5), {Shape{1}}}, {}},
      {{{Shape{7, 33}}, rows(6, 6), {Shape{1, 33}}}, {}},
      {{{Shape{3, 5, 2}}, {Shape{1}, kInt32, 0, 2}, {Shape{1, 5, 2}}}, {}},
      {{{Shape{3, 5}}, index_in({0}, 3), {Shape{0, 5}}}, {}},
      {{{Shape{4, 3}, kInt64, -9, 9}, rows(0, 3), {Shape{1, 3}, kInt64, -9, 9}}, {}},
      {{{Shape{3, 5}}, index_in({2}, 3), {Shape{2, 4}}}, {}, "index_copy: src [2, 4] does not fit x [3, 5]"},
      {{{Shape{3, 5}}, index_in({2}, 3), {Shape{2, 5}, kInt32}}, {}, "need one dtype"},
      {{{Shape{3}}, {Shape{2}, kInt64, 3, 3}, {Shape{2}}}, {}, "3"},
  };
}

std::vector<Sample> samples_index_select() {
  auto along = [](int64_t d) { return Attrs{{"dim", d}}; };
  return {
      {{{Shape{17}}, index_in({5}, 17)}, along(0)},
      {{{Shape{7, 33}}, index_in({9}, 7)}, along(0)},
      {{{Shape{3, 5, 2}}, index_in({4}, 5, kInt32)}, along(1)},
      {{{Shape{3, 5}}, index_in({0}, 3)}, along(0)},
      {{{Shape{4, 3}, kInt32, -9, 9}, index_in({2}, 3)}, along(1)},
      {{{Shape{3, 5}}, index_in({2, 2}, 3)}, along(0), "index_select: index is i64[2, 2]; need one dim"},
      {{{Shape{3, 5}}, {Shape{2}}}, along(0), "need i64 or i32"},
      {{{Shape{3, 5}}, {Shape{2}, kInt64, 3, 3}}, along(0), "3"},
  };
}

std::vector<Sample> samples_index_add() {
  return {
      {{{Shape{17}}, index_in({5}, 17), {Shape{5}}}, {}},
      {{{Shape{7, 33}}, index_in({19}, 7), {Shape{19, 33}}}, {}},
      {{{Shape{3, 5, 2}}, index_in({4}, 3, kInt32), {Shape{4, 5, 2}}}, {}},
      {{{Shape{3, 5}}, index_in({0}, 3), {Shape{0, 5}}}, {}},
      {{{Shape{4, 3}, kInt64, -9, 9}, index_in({2}, 4), {Shape{2, 3}, kInt64, -9, 9}}, {}},
      {{{Shape{3, 5}}, index_in({2}, 3), {Shape{2, 4}}}, {}, "index_add: src [2, 4] does not fit x [3, 5]"},
      {{{Shape{3, 5}}, index_in({2}, 3), {Shape{2, 5}, kInt32}}, {}, "need one dtype"},
      {{{Shape{3}}, {Shape{2}, kInt64, -1, -1}, {Shape{2}}}, {}, "-1"},
  };
}

// ---- dynamic slices ----

void check_starts(const InferCall& c, size_t first) {
  const int rank = c.in[0].shape.size();
  WEFT_CHECK(static_cast<int>(c.in.size() - first) == rank, c.op.name, ": ", c.in.size() - first, " starts for ",
             c.in[0].shape, "; need one per dim");
  for (size_t i = first; i < c.in.size(); ++i)
    WEFT_CHECK(is_index(c.in[i].dtype) && c.in[i].shape.empty(), c.op.name, ": start ", i - first, " is ", c.in[i],
               "; need an integer scalar");
}

void check_block(const char* op, const Shape& block, const Shape& x) {
  bool ok = block.size() == x.size();
  for (int d = 0; ok && d < x.size(); ++d) ok = block[d] >= 0 && block[d] <= x[d];
  WEFT_CHECK(ok, op, ": a block ", block, " does not fit in ", x, "; need the same number of dims, none longer");
}

Types infer_dynamic_update_slice(const InferCall& c) {
  WEFT_CHECK(c.in.size() >= 2, "dynamic_update_slice: got ", c.in.size(), " operands; need x, update and starts");
  check_block("dynamic_update_slice", c.in[1].shape, c.in[0].shape);
  WEFT_CHECK(c.in[1].dtype == c.in[0].dtype, "dynamic_update_slice: x and update are ", c.in[0].dtype, " and ",
             c.in[1].dtype, "; need one dtype");
  check_starts(c, 2);
  return {c.in[0]};
}

Types infer_dynamic_slice(const InferCall& c) {
  WEFT_CHECK(!c.in.empty(), "dynamic_slice: no operands; need x and starts");
  check_block("dynamic_slice", c.attrs.ints("sizes"), c.in[0].shape);
  check_starts(c, 1);
  return {TensorType{c.in[0].dtype, c.in[0].device, c.attrs.ints("sizes")}};
}

// The block of x with this shape at the starts; checks the bounds.
StridedView block_of(const char* op, StridedView x, const Shape& shape, std::span<const StridedView> starts) {
  int64_t offset = 0;
  for (int d = 0; d < x.shape.size(); ++d) {
    const int64_t at = starts[d].dtype == kInt64 ? *starts[d].as<int64_t>() : *starts[d].as<int32_t>();
    WEFT_CHECK_AS(kOutOfRange, at >= 0 && at <= x.shape[d] - shape[d], op, ": start ", at, " of dim ", d,
                  " puts a block ", shape, " outside ", x.shape, "; need 0 to ", x.shape[d] - shape[d]);
    offset += at * x.strides[d];
  }
  if (shape.numel() > 0) x.data = static_cast<char*>(x.data) + offset * itemsize(x.dtype);
  x.shape = shape;
  return x;
}

void run_dynamic_update_slice(const KernelCall& c) {
  const StridedView &x = c.in[0], &update = c.in[1], &out = c.out[0];
  const StridedView block = block_of(c.op.name, out, update.shape, c.in.subspan(2));
  if (out.data != x.data || !(out.strides == x.strides)) kernels::cast_copy(x, out);
  kernels::cast_copy(update, block);
}

void run_dynamic_slice(const KernelCall& c) {
  kernels::cast_copy(block_of(c.op.name, c.in[0], c.out[0].shape, c.in.subspan(1)), c.out[0]);
}

std::string no_words(size_t n) {
  std::string s;
  for (size_t i = 0; i < n; ++i) s += ", ";
  return s;
}

DimMap dims_dynamic_update_slice(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const auto [x, block] = words_of_equal(in[0].shape, in[1].shape);
  return DimMap::parse(x + ", " + block + no_words(in.size() - 2) + " -> " + x, in, out);
}

DimMap dims_dynamic_slice(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const auto [x, block] = words_of_equal(in[0].shape, attrs.ints("sizes"));
  return DimMap::parse(x + no_words(in.size() - 1) + " -> " + block, in, out);
}

// The starts, and the block read and written: x is updated in place, as caches are.
Cost cost_dynamic_update_slice(const Attrs&, std::span<const TensorType> in, std::span<const TensorType>) {
  return {0, bytes_of(in.subspan(2)) + 2 * bytes_of(in.subspan(1, 1))};
}
Cost cost_dynamic_slice(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {0, bytes_of(in.subspan(1)) + 2 * bytes_of(out)};
}

Grads vjp_dynamic_update_slice(const VjpCall& c) {
  Grads g(c.in.size());
  const auto starts = c.in.subspan(2);
  if (c.needs(0)) g[0] = dynamic_update_slice(c.grad[0], full_of(c.in[1].type(), 0), starts);
  if (c.needs(1)) g[1] = dynamic_slice(c.grad[0], starts, c.in[1].shape());
  return g;
}

Grads vjp_dynamic_slice(const VjpCall& c) {
  Grads g(c.in.size());
  g[0] = dynamic_update_slice(full_of(c.in[0].type(), 0), c.grad[0], c.in.subspan(1));
  return g;
}

std::vector<Sample> samples_dynamic_update_slice() {
  auto at = [](double v) { return SampleInput{Shape{}, kInt64, v, v}; };
  return {
      {{{Shape{17}}, {Shape{5}}, index_in({}, 12)}, {}},
      {{{Shape{4, 7}}, {Shape{2, 7}}, at(1), at(0)}, {}},
      {{{Shape{2, 3, 9}}, {Shape{2, 1, 4}}, at(0), at(2), index_in({}, 6, kInt32)}, {}},
      {{{Shape{3, 3}}, {Shape{0, 3}}, at(3), at(0)}, {}},
      {{{Shape{}}, {Shape{}}}, {}},
      {{{Shape{4}, kInt64, -9, 9}, {Shape{2}, kInt64, -9, 9}, at(2)}, {}},
      {{{Shape{4}}, {Shape{5}}, at(0)}, {}, "dynamic_update_slice: a block [5] does not fit in [4]"},
      {{{Shape{4, 4}}, {Shape{2, 2}}, at(0)}, {}, "dynamic_update_slice: 1 starts for [4, 4]; need one per dim"},
      {{{Shape{4}}, {Shape{2}}, {Shape{}}}, {}, "need an integer scalar"},
      {{{Shape{4}}, {Shape{2}}, at(3)},
       {},
       "dynamic_update_slice: start 3 of dim 0 puts a block [2] outside [4]; need 0 to 2"},
  };
}

std::vector<Sample> samples_dynamic_slice() {
  auto at = [](double v) { return SampleInput{Shape{}, kInt64, v, v}; };
  auto sizes = [](const Shape& s) { return Attrs{{"sizes", s}}; };
  return {
      {{{Shape{17}}, index_in({}, 12)}, sizes({5})},
      {{{Shape{4, 7}}, at(1), at(0)}, sizes({2, 7})},
      {{{Shape{2, 3, 9}}, at(0), at(2), index_in({}, 6, kInt32)}, sizes({2, 1, 4})},
      {{{Shape{3, 3}}, at(3), at(0)}, sizes({0, 3})},
      {{{Shape{}}}, sizes({})},
      {{{Shape{4}}, at(0)}, sizes({5}), "dynamic_slice: a block [5] does not fit in [4]"},
      {{{Shape{4}}, at(-1)}, sizes({2}), "dynamic_slice: start -1 of dim 0"},
  };
}

}  // namespace

const OpDef gather_op = {
    .name = "gather",
    .doc = "x's elements along {dim} at the indices.",
    .traits = kIndexing | kPicks | kMayThrow,
    .num_inputs = 2,
    .flops_per_point = 0,
    .infer = infer_gather,
    .vjp = vjp_gather,
    .dims = dims_gather,
    .cost = cost_gather,
    .kernel =
        [](const KernelCall& c) {
          with_what(c, [&] { kernels::gather(c.in[0], c.in[1], dim_of(c.attrs), c.out[0]); });
        },
    .samples = samples_gather,
    .vjp_reads_in = 2,
    .vjp_reads_out = 0,
    .linear = 1,
};
const OpDef scatter_add_op = {
    .name = "scatter_add",
    .doc = "x with src added along {dim} at the indices, in order of position.",
    .traits = kIndexing | kAddsAtIndex | kInPlace | kMayThrow,
    .num_inputs = 3,
    .infer = infer_scatter_add,
    .vjp = vjp_scatter_add,
    .dims = dims_scatter,
    .cost = cost_scatter,
    .kernel =
        [](const KernelCall& c) {
          with_what(c, [&] { kernels::scatter_add(c.in[0], c.in[1], c.in[2], dim_of(c.attrs), c.out[0]); });
        },
    .samples = samples_scatter_add,
    .vjp_reads_in = 2,
    .vjp_reads_out = 0,
    .linear = 5,
    .jointly = true,
};
const OpDef index_select_op = {
    .name = "index_select",
    .doc = "x's slices along {dim} in the order of the indices.",
    .traits = kIndexing | kPicks | kMayThrow,
    .num_inputs = 2,
    .flops_per_point = 0,
    .infer = infer_index_select,
    .vjp = vjp_index_select,
    .dims = dims_index_select,
    .cost = cost_gather,
    .kernel =
        [](const KernelCall& c) {
          with_what(c, [&] { kernels::index_select(c.in[0], c.in[1], dim_of(c.attrs), c.out[0]); });
        },
    .samples = samples_index_select,
    .vjp_reads_in = 2,
    .vjp_reads_out = 0,
    .linear = 1,
};
const OpDef index_add_op = {
    .name = "index_add",
    .doc = "x with the rows of src added to its rows at the indices, in order.",
    .traits = kIndexing | kAddsAtIndex | kInPlace | kMayThrow,
    .num_inputs = 3,
    .infer = infer_index_add,
    .vjp = vjp_index_add,
    .dims = dims_index_add,
    .cost = cost_scatter,
    .kernel =
        [](const KernelCall& c) { with_what(c, [&] { kernels::index_add(c.in[0], c.in[1], c.in[2], c.out[0]); }); },
    .samples = samples_index_add,
    .vjp_reads_in = 2,
    .vjp_reads_out = 0,
    .linear = 5,
    .jointly = true,
};
const OpDef index_copy_op = {
    .name = "index_copy",
    .doc = "x with its rows at the indices replaced by src's rows, in order.",
    .traits = kIndexing | kInPlace | kMayThrow,
    .num_inputs = 3,
    .flops_per_point = 0,
    .infer = infer_rows,
    .vjp = vjp_index_copy,
    .dims = dims_index_add,
    .cost = cost_index_copy,
    .kernel =
        [](const KernelCall& c) { with_what(c, [&] { kernels::index_copy(c.in[0], c.in[1], c.in[2], c.out[0]); }); },
    .samples = samples_index_copy,
    .vjp_reads_in = 2,
    .vjp_reads_out = 0,
    .linear = 5,
    .jointly = true,
};
const OpDef dynamic_update_slice_op = {
    .name = "dynamic_update_slice",
    .doc = "x with the block at the starts replaced by update.",
    .traits = kIndexing | kInPlace | kMayThrow,
    .num_inputs = -1,
    .flops_per_point = 0,
    .infer = infer_dynamic_update_slice,
    .vjp = vjp_dynamic_update_slice,
    .dims = dims_dynamic_update_slice,
    .cost = cost_dynamic_update_slice,
    .kernel = run_dynamic_update_slice,
    .samples = samples_dynamic_update_slice,
    .vjp_reads_in = ~3u,
    .vjp_reads_out = 0,
    .linear = 3,
    .jointly = true,
};
const OpDef dynamic_slice_op = {
    .name = "dynamic_slice",
    .doc = "The block of {sizes} at the starts.",
    .traits = kIndexing | kMayThrow,
    .num_inputs = -1,
    .flops_per_point = 0,
    .infer = infer_dynamic_slice,
    .vjp = vjp_dynamic_slice,
    .dims = dims_dynamic_slice,
    .cost = cost_dynamic_slice,
    .kernel = run_dynamic_slice,
    .samples = samples_dynamic_slice,
    .vjp_reads_in = ~1u,
    .vjp_reads_out = 0,
    .linear = 1,
};

std::span<const OpDef* const> index_ops() {
  static const OpDef* const all[] = {&gather_op,        &scatter_add_op, &index_select_op,
                                     &index_add_op,     &index_copy_op,  &dynamic_update_slice_op,
                                     &dynamic_slice_op, &sort_op,        &topk_op};
  return all;
}

}  // namespace weft
