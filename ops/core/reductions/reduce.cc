// Records of the reductions and of cumsum.
#include "ops/core/reductions/reduce.h"

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {
namespace {

using namespace internal;
using kernels::Rd;

DType sum_dtype(DType t) { return is_floating(t) ? t : kInt64; }

// ---- types ----

Shape kept_shape(const InferCall& c, const Shape& dims) {
  const Shape& in = c.in[0].shape;
  int64_t last = -1;
  for (int64_t d : dims) {
    WEFT_CHECK(d > last && d < in.size(), c.op.name, ": dims ", dims, " of ", in, "; need ascending dims below ",
               in.size());
    last = d;
  }
  Shape kept;
  const uint32_t mask = mask_of(dims);
  for (int i = 0; i < in.size(); ++i)
    if (!(mask >> i & 1)) kept.push_back(in[i]);
  return kept;
}

// The same for a reduction that needs an element.
Shape kept_of_some(const InferCall& c, const Shape& dims) {
  const Shape kept = kept_shape(c, dims);
  for (int64_t d : dims)
    WEFT_CHECK(c.in[0].shape[static_cast<int>(d)] > 0, c.op.name, ": dim ", d, " of ", c.in[0].shape,
               " is empty; need one element or more");
  return kept;
}

Types infer_sum(const InferCall& c) {
  check_computed(c);
  const DType own = sum_dtype(c.in[0].dtype);
  const DType out = c.attrs.has("out_dtype") ? c.attrs.get<DType>("out_dtype") : own;
  WEFT_CHECK(out == own || (out == kFloat32 && is_16bit(own)), c.op.name, ": out_dtype is ", out, " for ",
             c.in[0].dtype, "; need ", own, " or, for 16-bit floats, f32");
  return {TensorType{out, c.in[0].device, kept_shape(c, c.attrs.ints("dims"))}};
}

Types infer_best(const InferCall& c) {
  check_computed(c);
  return {TensorType{c.in[0].dtype, c.in[0].device, kept_of_some(c, c.attrs.ints("dims"))}};
}

Types infer_arg(const InferCall& c) {
  check_computed(c);
  return {TensorType{kInt64, c.in[0].device, kept_of_some(c, {c.attrs.i("dim")})}};
}

Types infer_cumsum(const InferCall& c) {
  check_computed(c);
  checked_dim(c);
  return {TensorType{sum_dtype(c.in[0].dtype), c.in[0].device, c.in[0].shape}};
}

// ---- dim maps ----

DimMap dims_reduced(std::span<const TensorType> in, std::span<const TensorType> out, uint32_t mask,
                    const char* suffix) {
  std::vector<std::string> from, to;
  for (int i = 0; i < in[0].shape.size(); ++i) {
    const bool reduced = mask >> i & 1;
    from.push_back(factor_name(i) + (reduced ? suffix : ""));
    if (!reduced) to.push_back(factor_name(i));
  }
  return DimMap::parse(join_words(from) + " -> " + join_words(to), in, out);
}

template <char kSuffix>
DimMap dims_of(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const char suffix[] = {kSuffix, 0};
  DimMap m = dims_reduced(in, out, mask_of(attrs.ints("dims")), kSuffix == '+' ? "" : suffix);
  // The reduction of one element is that element.
  m.linear = kSuffix == '+' || in[0].shape.numel() == out[0].shape.numel();
  return m;
}

DimMap dims_arg(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return dims_reduced(in, out, 1u << attrs.i("dim"), "?");
}

// ---- kernels ----

template <Rd kOp>
void run_reduce(const KernelCall& c) {
  kernels::reduce(kOp, c.in[0], mask_of(c.attrs.ints("dims")), c.out[0], c.workspace);
}
template <Rd kOp>
int64_t reduce_bytes(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView>) {
  return kernels::reduce_workspace(kOp, in[0].dtype, in[0].shape, mask_of(attrs.ints("dims")));
}
template <Rd kOp>
void run_arg(const KernelCall& c) {
  kernels::reduce(kOp, c.in[0], 1u << c.attrs.i("dim"), c.out[0], c.workspace);
}
template <Rd kOp>
int64_t arg_bytes(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView>) {
  return kernels::reduce_workspace(kOp, in[0].dtype, in[0].shape, 1u << attrs.i("dim"));
}

// ---- derivatives ----

// A reduction's result with its reduced dims restored as extents of 1, broadcast to `shape`.
Tensor spread(const Tensor& y, const Shape& dims, const Shape& shape) {
  Shape ones = shape;
  for (int64_t d : dims) ones[static_cast<int>(d)] = 1;
  return broadcast_to(reshape(y, ones), shape);
}

Grads vjp_sum(const VjpCall& c) {
  return {spread(cast(c.grad[0], c.in[0].dtype()), c.attrs.ints("dims"), c.in[0].shape())};
}

Grads vjp_best(const VjpCall& c) {
  const Shape& dims = c.attrs.ints("dims");
  const Tensor& x = c.in[0];
  const Tensor ties = eq(x, spread(c.out[0], dims, x.shape()));
  const Tensor number = dispatch(reduce_sum_op, {&ties}, {{"dims", dims}});
  // Divided in f32 for 16-bit floats, whose range ends before the number of ties may.
  const DType wide = wide_of(x.dtype());
  const Tensor share = cast(div(cast(c.grad[0], wide), cast(number, wide)), x.dtype());
  return {where(ties, spread(share, dims, x.shape()), 0.0)};
}

// x moved up by `by` positions along the last dim, filled with ones.
Tensor shifted(const Tensor& x, int64_t by) {
  const int64_t n = x.size(-1);
  return pad(slice(x, -1, 0, n - std::min(by, n)), {std::min(by, n), 0}, 1.0);
}

// The product of all elements before each element, by doubling: correct with zeros and for any order of derivative.
Tensor product_before(const Tensor& x) {
  Tensor p = shifted(x, 1);
  for (int64_t by = 1; by < x.size(-1); by *= 2) p = mul(p, shifted(p, by));
  return p;
}

Grads vjp_prod(const VjpCall& c) {
  const Shape &dims = c.attrs.ints("dims"), &shape = c.in[0].shape();
  // The reduced dims become one dim, the last.
  Shape order, kept;
  const uint32_t mask = mask_of(dims);
  for (int i = 0; i < shape.size(); ++i)
    if (!(mask >> i & 1)) order.push_back(i), kept.push_back(shape[i]);
  Shape moved = kept;
  int64_t n = 1;
  for (int64_t d : dims)
    order.push_back(d), n *= shape[static_cast<int>(d)], moved.push_back(shape[static_cast<int>(d)]);
  Shape rows = kept;
  rows.insert(rows.size(), n);
  const Tensor x = reshape(permute(c.in[0], order), rows);
  const Tensor others = mul(product_before(x), flip(product_before(flip(x, -1)), -1));
  const Tensor g = mul(broadcast_to(unsqueeze(c.grad[0], -1), rows), others);
  return {permute(reshape(g, moved), inverse_order(order))};
}

Grads vjp_cumsum(const VjpCall& c) { return {cumsum(c.grad[0], c.attrs.i("dim"), !c.attrs.b("reverse"))}; }

// ---- samples ----

std::vector<Sample> samples_dims(const char* name, bool empty_ok) {
  auto over = [](const Shape& s) { return Attrs{{"dims", s}}; };
  auto one = [&](const Shape& in, const Shape& dims) { return Sample{{{in}}, over(dims), "", true}; };
  std::vector<Sample> s = {one({17}, {0}),
                           one({3, 5}, {1}),
                           one({5, 3}, {0}),
                           one({2, 3, 7}, {0, 2}),
                           one({2, 3, 7}, {0, 1, 2}),
                           one({4, 2, 33, 2}, {1, 2}),
                           one({}, {}),
                           one({3, 5}, {}),
                           one({0, 3}, {1}),
                           one({1, 7, 1}, {0, 2}),
                           {{{Shape{3, 5}, kInt32, -2, 2}}, over({1})}};
  if (empty_ok) s.push_back(one({3, 0}, {1}));
  if (!empty_ok) s.push_back({{{Shape{3, 0}}}, over({1}), str_cat(name, ": dim 1 of [3, 0] is empty")});
  s.push_back({{{Shape{3, 5}}}, over({2}), str_cat(name, ": dims [2] of [3, 5]; need ascending dims below 2")});
  s.push_back({{{Shape{3, 5}}}, over({1, 0}), "need ascending dims"});
  return s;
}

std::vector<Sample> samples_sum() {
  std::vector<Sample> s = samples_dims("reduce_sum", true);
  s.push_back({{{Shape{3, 65}, kBFloat16}}, Attrs{{"dims", Shape{1}}, {"out_dtype", kFloat32}}, "", false});
  s.push_back({{{Shape{3, 5}, kInt32, -2, 2}},
               Attrs{{"dims", Shape{1}}, {"out_dtype", kFloat32}},
               "reduce_sum: out_dtype is f32 for i32"});
  s.push_back({{{Shape{3, 5}, kBool, 0, 1}}, Attrs{{"dims", Shape{0}}}});
  return s;
}
std::vector<Sample> samples_prod() {
  std::vector<Sample> s = samples_dims("reduce_prod", true);
  s.push_back({{{Shape{2, 3}, kFloat32, 0, 0}}, Attrs{{"dims", Shape{1}}}, "", true});  // all zeros
  return s;
}

std::vector<Sample> samples_along(const char* name, bool reverse) {
  auto along = [&](int64_t d) { return reverse ? Attrs{{"dim", d}, {"reverse", d % 2 == 1}} : Attrs{{"dim", d}}; };
  std::vector<Sample> s;
  for (const Shape& shape : {Shape{17}, Shape{3, 5}, Shape{2, 3, 33}, Shape{1, 4}})
    for (int d = 0; d < shape.size(); ++d) s.push_back({{{shape}}, along(d), "", true});
  s.push_back({{{Shape{0, 3}}}, along(1), "", true});
  s.push_back({{{Shape{3, 7}, kInt32, -5, 5}}, along(1)});
  s.push_back({{{Shape{3}}}, along(1), str_cat(name, ": dim")});
  return s;
}
std::vector<Sample> samples_cumsum() { return samples_along("cumsum", true); }
std::vector<Sample> samples_arg(const char* name) {
  std::vector<Sample> s = samples_along(name, false);
  s.back().error = str_cat(name, ": dims [1] of [3]");
  s.push_back({{{Shape{3, 0}}}, {{"dim", int64_t{1}}}, str_cat(name, ": dim 1 of [3, 0] is empty")});
  return s;
}

template <Rd kOp, Reduction kKind, char kSuffix>
constexpr OpDef best_op(const char* name, const char* doc, std::vector<Sample> (*samples)()) {
  return {.name = name,
          .doc = doc,
          .traits = kReduction,
          .reduction = kKind,
          .infer = infer_best,
          .vjp = vjp_best,
          .dims = dims_of<kSuffix>,
          .kernel = run_reduce<kOp>,
          .workspace = reduce_bytes<kOp>,
          .samples = samples,
          .linear = 1};
}

template <Rd kOp>
constexpr OpDef arg_op(const char* name, const char* doc, std::vector<Sample> (*samples)()) {
  return {.name = name,
          .doc = doc,
          .traits = kReduction | kNotDifferentiable,
          .infer = infer_arg,
          .dims = dims_arg,
          .kernel = run_arg<kOp>,
          .workspace = arg_bytes<kOp>,
          .samples = samples};
}

}  // namespace

const OpDef reduce_sum_op = {
    .name = "reduce_sum",
    .doc = "Sum over {dims}, in the fixed order of reduce_order.h; integers give i64.",
    .traits = kReduction | kWantsF32,
    .reduction = Reduction::kSum,
    .infer = infer_sum,
    .vjp = vjp_sum,
    .dims = dims_of<'+'>,
    .kernel = run_reduce<Rd::sum>,
    .workspace = reduce_bytes<Rd::sum>,
    .samples = samples_sum,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = 1,
};
const OpDef reduce_max_op = best_op<Rd::max, Reduction::kMax, '^'>(
    "reduce_max", "Largest value over {dims}; NaN if there is one; ties share the gradient.",
    [] { return samples_dims("reduce_max", false); });
const OpDef reduce_min_op = best_op<Rd::min, Reduction::kMin, '_'>(
    "reduce_min", "Smallest value over {dims}; NaN if there is one; ties share the gradient.",
    [] { return samples_dims("reduce_min", false); });
const OpDef reduce_prod_op = {
    .name = "reduce_prod",
    .doc = "Product over {dims}; integers give i64.",
    .traits = kReduction | kWantsF32,
    .reduction = Reduction::kProd,
    .infer = infer_sum,
    .vjp = vjp_prod,
    .dims = dims_of<'*'>,
    .kernel = run_reduce<Rd::prod>,
    .workspace = reduce_bytes<Rd::prod>,
    .samples = samples_prod,
    .vjp_reads_out = 0,
    .linear = 1,
};
const OpDef argmax_op = arg_op<Rd::argmax>(
    "argmax", "Index of the largest value along {dim}, the first of equal ones; of the first NaN if there is one.",
    [] { return samples_arg("argmax"); });
const OpDef argmin_op = arg_op<Rd::argmin>(
    "argmin", "Index of the smallest value along {dim}, the first of equal ones; of the first NaN if there is one.",
    [] { return samples_arg("argmin"); });
const OpDef cumsum_op = {
    .name = "cumsum",
    .doc = "Running sum along {dim}, from the end if {reverse}; integers give i64.",
    .traits = kWantsF32,
    .infer = infer_cumsum,
    .vjp = vjp_cumsum,
    .dims = dims_along,
    .kernel =
        [](const KernelCall& c) {
          kernels::cumsum(c.in[0], static_cast<int>(c.attrs.i("dim")), c.out[0], c.attrs.b("reverse"));
        },
    .samples = samples_cumsum,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = 1,
};

std::span<const OpDef* const> reduce_ops() {
  static const OpDef* const all[] = {&reduce_sum_op, &reduce_max_op, &reduce_min_op, &reduce_prod_op,
                                     &argmax_op,     &argmin_op,     &cumsum_op};
  return all;
}

}  // namespace weft
