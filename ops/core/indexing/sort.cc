// Records and functions of order: sort and topk.
#include "framework/autodiff/grad.h"
#include "framework/base/called.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/along.h"
#include "ops/core/indexing/index.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {

using internal::Sample;

namespace {

int check(const InferCall& c) {
  const int dim = internal::checked_dim(c);
  internal::check_computed(c);
  return dim;
}

Types infer_sort(const InferCall& c) {
  check(c);
  return {c.in[0], TensorType{kInt64, c.in[0].device, c.in[0].shape}};
}

Types infer_topk(const InferCall& c) {
  const int dim = check(c);
  const int64_t k = c.attrs.i("k");
  WEFT_CHECK(k >= 0 && k <= c.in[0].shape[dim], "topk: k is ", k, " of dim ", dim, " of ", c.in[0].shape,
             "; need 0 to ", c.in[0].shape[dim]);
  Shape shape = c.in[0].shape;
  shape[dim] = k;
  return {TensorType{c.in[0].dtype, c.in[0].device, shape}, TensorType{kInt64, c.in[0].device, shape}};
}

DimMap dims_sort(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<std::string> from, to;
  for (int d = 0; d < in[0].shape.size(); ++d) {
    const bool whole = d == attrs.i("dim"), same = in[0].shape[d] == out[0].shape[d];
    from.push_back(internal::factor_name(2 * d) + (whole ? "?" : ""));
    to.push_back(internal::factor_name(same ? 2 * d : 2 * d + 1) + (whole ? "?" : ""));
  }
  const std::string result = internal::join_words(to);
  return DimMap::parse(internal::join_words(from) + " -> " + result + ", " + result, in, out);
}

Cost cost_sort(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const double n = static_cast<double>(in[0].shape.numel());
  double levels = 1;
  for (int64_t m = in[0].shape[static_cast<int>(attrs.i("dim"))]; m > 2; m = (m + 1) / 2) ++levels;
  return {n * levels, static_cast<double>(in[0].nbytes() + out[0].nbytes() + out[1].nbytes())};
}

Grads vjp_sort(const VjpCall& c) {
  if (!c.grad[0].defined()) return {Tensor()};
  return {scatter_add(internal::full_of(c.in[0].type(), 0), c.attrs.i("dim"), c.out[1], c.grad[0])};
}

std::vector<Sample> samples_sort() {
  std::vector<Sample> s;
  for (bool descending : {false, true}) {
    auto along = [&](int64_t d) { return Attrs{{"dim", d}, {"descending", descending}}; };
    s.push_back({{{Shape{17}}}, along(0)});
    s.push_back({{{Shape{3, 33}}}, along(1), "", false});  // too dense for difference quotients
    s.push_back({{{Shape{7, 2, 3}}}, along(0)});
    s.push_back({{{Shape{0, 3}}}, along(0)});
    s.push_back({{{Shape{4, 40}, kInt32, -3, 3}}, along(1)});  // many equal values: stability
  }
  s.push_back({{{Shape{3}}}, {{"dim", int64_t{1}}, {"descending", false}}, "sort: dim 1 is out of range"});
  return s;
}

std::vector<Sample> samples_topk() {
  std::vector<Sample> s;
  for (bool largest : {true, false}) {
    auto best = [&](int64_t k, int64_t d) { return Attrs{{"k", k}, {"dim", d}, {"largest", largest}}; };
    s.push_back({{{Shape{17}}}, best(3, 0)});
    s.push_back({{{Shape{5, 8}}}, best(2, 1)});
    s.push_back({{{Shape{7, 2, 3}}}, best(7, 0)});
    s.push_back({{{Shape{2, 3}}}, best(0, 1)});
    s.push_back({{{Shape{4, 40}, kInt32, -3, 3}}, best(9, 1)});
  }
  s.push_back({{{Shape{3, 4}}},
               {{"k", int64_t{5}}, {"dim", int64_t{1}}, {"largest", true}},
               "topk: k is 5 of dim 1 of [3, 4]; need 0 to 4"});
  return s;
}

}  // namespace

const OpDef sort_op = {
    .name = "sort",
    .doc = "Values sorted along {dim}, stable, and their indices; NaN is greater than all numbers.",
    .traits = kIndexing,
    .num_outputs = 2,
    .infer = infer_sort,
    .vjp = vjp_sort,
    .dims = dims_sort,
    .cost = cost_sort,
    .kernel =
        [](const KernelCall& c) {
          kernels::sort(c.in[0], static_cast<int>(c.attrs.i("dim")), c.attrs.b("descending"), c.out[0], c.out[1]);
        },
    .samples = samples_sort,
    .vjp_reads_in = 0,
    .vjp_reads_out = 2,
};
const OpDef topk_op = {
    .name = "topk",
    .doc = "The {k} largest (or smallest) values along {dim}, best first, and their indices.",
    .traits = kIndexing,
    .num_outputs = 2,
    .infer = infer_topk,
    .vjp = vjp_sort,
    .dims = dims_sort,
    .cost = cost_sort,
    .kernel =
        [](const KernelCall& c) {
          kernels::topk(c.in[0], c.attrs.i("k"), static_cast<int>(c.attrs.i("dim")), c.attrs.b("largest"), c.out[0],
                        c.out[1]);
        },
    .samples = samples_topk,
    .vjp_reads_in = 0,
    .vjp_reads_out = 2,
};

Sorted sort(const Arg& arg, int64_t dim, bool descending) {
  const internal::FirstOperand given(arg, "sort");
  const internal::Along a(given, dim, "sort");
  const Tensor* in[] = {&a.x};
  std::vector<Tensor> r =
      dispatch_multi(sort_op, in, {{"dim", int64_t{a.dim}}, {"descending", descending}}, arg.line());
  return {a.result(r[0]), a.result(r[1])};
}

Tensor argsort(const Arg& x, int64_t dim, bool descending) {
  const internal::Called name("argsort");
  return sort(x, dim, descending).indices;
}

TopK topk(const Arg& arg, int64_t k, int64_t dim, bool largest) {
  const internal::FirstOperand given(arg, "topk");
  const internal::Along a(given, dim, "topk");
  const Tensor* in[] = {&a.x};
  std::vector<Tensor> r =
      dispatch_multi(topk_op, in, {{"k", k}, {"dim", int64_t{a.dim}}, {"largest", largest}}, arg.line());
  return {a.result(r[0]), a.result(r[1])};
}

}  // namespace weft
