// Records of the order-free sums.
#include "ops/core/products/exact.h"

#include "ops/core/indexing/index.h"
#include "ops/core/indexing/moe.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/dot_product.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/sums/exact.h"

namespace weft {
namespace {

using namespace internal;
using kernels::kExactWidth;

// The approximate cost of splitting a term into digits.
constexpr double kFlopsPerTerm = 20;

TensorType with_digits(const TensorType& t) {
  Shape shape = t.shape;
  shape.push_back(kExactWidth);
  return {kInt64, t.device, shape};
}
TensorType without_digits(const TensorType& t, DType dtype) {
  Shape shape = t.shape;
  shape.erase(shape.size() - 1);
  return {dtype, t.device, shape};
}

// The result type of the plain op, with digits.
template <const OpDef& kPlain>
Types infer_like(const InferCall& c) {
  check_float(c, c.in[0].dtype);
  return {with_digits(kPlain.infer({c.op, c.attrs, c.in})[0])};
}

// The plain op's dim map; digits stay together.
DimMap with_digits(DimMap m) {
  m.out[0].push_back({static_cast<int>(m.factors.size())});
  m.factors.push_back({"digits", FactorKind::kWhole, kExactWidth});
  return m;
}
template <const OpDef& kPlain>
DimMap dims_like(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const TensorType plain = without_digits(out[0], in[0].dtype);
  return with_digits(kPlain.dims(attrs, in, {&plain, 1}));
}

// Terms are the points of the iteration space without digits.
template <const OpDef& kOp>
Cost cost_of(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {kOp.dims(attrs, in, out).points() / kExactWidth * kFlopsPerTerm, bytes_of(in) + bytes_of(out)};
}
Cost cost_grouped(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {static_cast<double>(in[0].shape.numel()) * static_cast<double>(in[1].shape.back()) * kFlopsPerTerm,
          bytes_of(in) + bytes_of(out)};
}
Cost cost_indexed(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {static_cast<double>(in[1].shape.numel()) * kFlopsPerTerm, bytes_of(in) + 2 * bytes_of(out)};
}

// ---- exact_sum ----

std::vector<Sample> samples_sum() {
  std::vector<Sample> s;
  for (const Sample& plain : reduce_sum_op.samples()) {
    if (!plain.error.empty() || plain.in[0].dtype != kFloat32) continue;
    s.push_back(plain);
    s.back().grad = false;
  }
  s.push_back({{{Shape{3, 5}}}, {{"dims", Shape{2}}}, "exact_sum: dims [2] of [3, 5]; need ascending dims below 2"});
  s.push_back({{{Shape{3, 5}, kInt32}}, {{"dims", Shape{1}}}, "exact_sum: does not support i32"});
  return s;
}

// ---- exact_dot, exact_grouped_dot ----

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t dot_bytes(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView>) {
  return align(DotProduct(attrs, in).bytes()) + kernels::exact_copy_bytes(in[0]) + kernels::exact_copy_bytes(in[1]);
}

void run_dot(const KernelCall& c) {
  const DotProduct p(c.attrs, c.in);
  const auto [a, b] = p.operands(c.in[0], c.in[1], c.workspace);
  StridedView y = c.out[0];
  y.shape = Shape{p.batch(), p.m(), p.n(), kExactWidth};
  y.strides = contiguous_strides(y.shape);
  kernels::exact_gemm(a, b, y, static_cast<char*>(c.workspace) + align(p.bytes()));
}

int64_t both_bytes(const Attrs&, std::span<const StridedView> in, std::span<const StridedView>) {
  return kernels::exact_copy_bytes(in[0]) + kernels::exact_copy_bytes(in[1]);
}

void run_grouped(const KernelCall& c) {
  const bool rows = c.attrs.get<std::string>("mode") == "rows";
  kernels::exact_grouped_gemm(rows ? kernels::GroupedMode::rows : kernels::GroupedMode::contraction, c.in[0], c.in[1],
                              c.in[2], c.out[0], c.workspace);
}

std::vector<Sample> samples_product(const OpDef& plain) {
  std::vector<Sample> s;
  for (Sample p : plain.samples()) {
    bool floats = true;
    for (size_t i = 0; i < 2; ++i) floats = floats && is_floating(p.in[i].dtype);
    if (!floats || p.attrs.has("out_dtype") || !p.error.empty()) continue;
    p.grad = false;
    s.push_back(p);
  }
  return s;
}
std::vector<Sample> samples_dot() {
  std::vector<Sample> s = samples_product(dot_op);
  Sample bad = s[0];
  bad.in[0].dtype = kInt32;
  bad.error = "exact_dot: does not support i32";
  s.push_back(bad);
  return s;
}
std::vector<Sample> samples_grouped() {
  std::vector<Sample> s = samples_product(grouped_dot_op);
  Sample bad = s[0];
  bad.in[2].lo = bad.in[2].hi = 10;
  bad.error = "exact_grouped_dot: offsets";
  s.push_back(bad);
  return s;
}

// ---- exact_index_add, exact_scatter_add ----

Types infer_index_add(const InferCall& c) {
  check_index(c, c.in[0]);
  check_float(c, c.in[1].dtype);
  const TensorType &index = c.in[0], &src = c.in[1];
  const int64_t rows = c.attrs.i("rows");
  WEFT_CHECK(index.shape.size() == 1 && src.shape.size() >= 1 && src.shape[0] == index.shape[0] && rows >= 0,
             "exact_index_add: index ", index.shape, " and src ", src.shape, " for ", rows,
             " rows; need one index for each row of src");
  Shape shape = src.shape;
  shape[0] = rows;
  return {with_digits({src.dtype, src.device, shape})};
}

DimMap dims_index_add(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<std::string> src{"s"}, to{"r?"};
  for (int d = 1; d < in[1].shape.size(); ++d) {
    src.push_back(str_cat("d", d));
    to.push_back(str_cat("d", d));
  }
  to.push_back("digits?");
  return DimMap::parse("s, " + join_words(src) + " -> " + join_words(to), in, out);
}

std::vector<Sample> samples_index_add() {
  auto index = [](const Shape& shape, double below, DType t = kInt64) { return SampleInput{shape, t, 0, below - 1}; };
  auto rows = [](int64_t n) { return Attrs{{"rows", n}}; };
  return {
      {{index({5}, 17), {Shape{5}}}, rows(17), "", false},
      {{index({19}, 7), {Shape{19, 33}}}, rows(7), "", false},
      {{index({4}, 3, kInt32), {Shape{4, 5, 2}}}, rows(3), "", false},
      {{index({0}, 3), {Shape{0, 5}}}, rows(3), "", false},
      {{index({2}, 3), {Shape{3, 5}}}, rows(3), "exact_index_add: index [2] and src [3, 5] for 3 rows"},
      {{{Shape{2}, kInt64, 3, 3}, {Shape{2}}}, rows(3), "exact_index_add: index 3 at position 0"},
      {{{Shape{2}}, {Shape{2}}}, rows(3), "need i64 or i32"},
  };
}

Types infer_scatter_add(const InferCall& c) {
  check_index(c, c.in[0]);
  check_float(c, c.in[1].dtype);
  const TensorType &index = c.in[0], &src = c.in[1];
  const int64_t dim = c.attrs.i("dim"), rows = c.attrs.i("rows");
  WEFT_CHECK(index.shape == src.shape && dim >= 0 && dim < index.shape.size() && rows >= 0, "exact_scatter_add: index ",
             index.shape, " and src ", src.shape, " along dim ", dim, " of ", rows,
             "; need equal shapes with this dim");
  Shape shape = src.shape;
  shape[static_cast<int>(dim)] = rows;
  return {with_digits({src.dtype, src.device, shape})};
}

DimMap dims_scatter_add(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<std::string> src, to;
  for (int d = 0; d < in[0].shape.size(); ++d) {
    const bool along = d == attrs.i("dim");
    src.push_back(along ? "s" : str_cat("d", d));
    to.push_back(along ? "r?" : str_cat("d", d));
  }
  to.push_back("digits?");
  const std::string words = join_words(src);
  return DimMap::parse(words + ", " + words + " -> " + join_words(to), in, out);
}

std::vector<Sample> samples_scatter_add() {
  auto index = [](const Shape& shape, double below, DType t = kInt64) { return SampleInput{shape, t, 0, below - 1}; };
  auto to = [](int64_t dim, int64_t rows) { return Attrs{{"dim", dim}, {"rows", rows}}; };
  return {
      {{index({9}, 17), {Shape{9}}}, to(0, 17), "", false},
      {{index({3, 8}, 5), {Shape{3, 8}}}, to(1, 5), "", false},
      {{index({7, 2}, 5, kInt32), {Shape{7, 2}}}, to(0, 5), "", false},
      {{index({2, 3, 33}, 4), {Shape{2, 3, 33}}}, to(1, 4), "", false},
      {{index({0, 5}, 3), {Shape{0, 5}}}, to(0, 3), "", false},
      {{index({3, 2}, 5), {Shape{3, 3}}}, to(1, 5), "exact_scatter_add: index [3, 2] and src [3, 3]"},
      {{{Shape{2}, kInt64, 5, 5}, {Shape{2}}}, to(0, 5), "exact_scatter_add: index 5"},
  };
}

int64_t src_bytes(const Attrs&, std::span<const StridedView> in, std::span<const StridedView>) {
  return kernels::exact_copy_bytes(in[1]);
}

// ---- exact_row_dots ----

std::vector<Sample> samples_row_dots() {
  std::vector<Sample> s;
  for (Sample p : row_dots_op.samples()) {
    if (!p.error.empty()) continue;
    p.grad = false;
    s.push_back(p);
  }
  Sample bad = s[0];
  bad.in[0].dtype = kInt32;
  bad.error = "exact_row_dots: does not support i32";
  s.push_back(bad);
  return s;
}

// ---- exact_finish ----

Types infer_finish(const InferCall& c) {
  const TensorType& x = c.in[0];
  WEFT_CHECK(x.dtype == kInt64 && !x.shape.empty() && x.shape.back() == kExactWidth, "exact_finish: x is ", x,
             "; need i64[..., ", kExactWidth, "]");
  const DType t = c.attrs.get<DType>("dtype");
  WEFT_CHECK(is_computed_float(t), "exact_finish: dtype is ", t, "; need one of f64, f32, bf16, f16");
  return {without_digits(x, t)};
}

DimMap dims_finish(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<std::string> words;
  for (int d = 0; d < out[0].shape.size(); ++d) words.push_back(factor_name(d));
  const std::string kept = join_words(words);
  return DimMap::parse(kept + " digits? -> " + kept, in, out);
}

int64_t finish_bytes(const Attrs&, std::span<const StridedView> in, std::span<const StridedView>) {
  return in[0].contiguous() ? 0 : kernels::exact_copy_bytes(in[0]);
}

void run_finish(const KernelCall& c) {
  StridedView x = c.in[0];
  if (!x.contiguous()) {
    x = {c.workspace, kInt64, x.shape, contiguous_strides(x.shape)};
    kernels::cast_copy(c.in[0], x);
  }
  kernels::exact_finish(x, c.out[0]);
}

std::vector<Sample> samples_finish() {
  auto to = [](DType t) { return Attrs{{"dtype", t}}; };
  const SampleInput three{Shape{3, 5, kExactWidth}, kInt64, -1000, 1000}, none{Shape{0, kExactWidth}, kInt64, 0, 0};
  return {
      {{{Shape{kExactWidth}, kInt64, 0, 0}}, to(kFloat32)},
      {{three}, to(kFloat32)},
      {{three}, to(kBFloat16)},
      {{{Shape{7, kExactWidth}, kInt64, -2e9, 2e9}}, to(kFloat64)},
      {{none}, to(kFloat16)},
      {{{Shape{3, 5}, kInt64, 0, 0}}, to(kFloat32), "exact_finish: x is i64[3, 5]; need i64[..., 8]"},
      {{three}, to(kInt32), "exact_finish: dtype is i32"},
  };
}

}  // namespace

const OpDef exact_sum_op = {
    .name = "exact_sum",
    .doc = "Order-free sum over {dims}: the digits of ops/kernels/sums/exact.h.",
    .traits = kNotDifferentiable,
    .infer = infer_like<reduce_sum_op>,
    .dims = dims_like<reduce_sum_op>,
    .cost = cost_of<exact_sum_op>,
    .kernel =
        [](const KernelCall& c) { kernels::exact_sum(c.in[0], mask_of(c.attrs.ints("dims")), c.out[0], c.workspace); },
    .workspace = [](const Attrs&, std::span<const StridedView> in,
                    std::span<const StridedView>) { return kernels::exact_copy_bytes(in[0]); },
    .samples = samples_sum,
};
const OpDef exact_dot_op = {
    .name = "exact_dot",
    .doc = "dot as order-free sums of its exact products.",
    .traits = kNotDifferentiable,
    .num_inputs = 2,
    .infer = infer_like<dot_op>,
    .dims = dims_like<dot_op>,
    .cost = cost_of<exact_dot_op>,
    .kernel = run_dot,
    .workspace = dot_bytes,
    .samples = samples_dot,
};
const OpDef exact_grouped_dot_op = {
    .name = "exact_grouped_dot",
    .doc = "grouped_dot as order-free sums of its exact products.",
    .traits = kNotDifferentiable | kMayThrow,
    .num_inputs = 3,
    .infer = infer_like<grouped_dot_op>,
    .dims = dims_like<grouped_dot_op>,
    .cost = cost_grouped,
    .kernel = run_grouped,
    .workspace = both_bytes,
    .samples = samples_grouped,
};
const OpDef exact_index_add_op = {
    .name = "exact_index_add",
    .doc = "Order-free sums of the rows of src with equal index.",
    .traits = kIndexing | kNotDifferentiable | kMayThrow,
    .num_inputs = 2,
    .infer = infer_index_add,
    .dims = dims_index_add,
    .cost = cost_indexed,
    .kernel = [](const KernelCall& c) { kernels::exact_index_add(c.in[0], c.in[1], c.out[0], c.workspace); },
    .workspace = src_bytes,
    .samples = samples_index_add,
};
const OpDef exact_scatter_add_op = {
    .name = "exact_scatter_add",
    .doc = "Order-free sums of src along {dim} at the indices, below {rows}.",
    .traits = kIndexing | kNotDifferentiable | kMayThrow,
    .num_inputs = 2,
    .infer = infer_scatter_add,
    .dims = dims_scatter_add,
    .cost = cost_indexed,
    .kernel =
        [](const KernelCall& c) {
          kernels::exact_scatter_add(c.in[0], c.in[1], static_cast<int>(c.attrs.i("dim")), c.out[0], c.workspace);
        },
    .workspace = src_bytes,
    .samples = samples_scatter_add,
};
const OpDef exact_row_dots_op = {
    .name = "exact_row_dots",
    .doc = "row_dots as order-free sums of its exact products.",
    .traits = kIndexing | kNotDifferentiable | kMayThrow,
    .num_inputs = 5,
    .infer = infer_like<row_dots_op>,
    .dims = dims_like<row_dots_op>,
    .cost = cost_indexed,
    .kernel = [](const KernelCall& c) { kernels::exact_row_dots(c.in[0], c.in[1], c.in[4], c.out[0], c.workspace); },
    .workspace = both_bytes,
    .samples = samples_row_dots,
};
const OpDef exact_finish_op = {
    .name = "exact_finish",
    .doc = "The value of an order-free sum, rounded once to {dtype}.",
    .traits = kNotDifferentiable,
    .flops_per_point = 10,
    .infer = infer_finish,
    .dims = dims_finish,
    .kernel = run_finish,
    .workspace = finish_bytes,
    .samples = samples_finish,
};

std::span<const OpDef* const> exact_ops() {
  static const OpDef* const all[] = {&exact_sum_op,       &exact_dot_op,         &exact_grouped_dot_op,
                                     &exact_index_add_op, &exact_scatter_add_op, &exact_row_dots_op,
                                     &exact_finish_op};
  return all;
}

}  // namespace weft
