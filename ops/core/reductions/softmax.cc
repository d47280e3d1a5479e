#include "ops/core/reductions/softmax.h"

#include "ops/core/core.h"
#include "ops/core/record_parts.h"

namespace weft {
namespace {

using internal::wide_of;

Types infer(const InferCall& c) {
  const TensorType& x = c.in[0];
  WEFT_CHECK(internal::is_computed_float(x.dtype), "softmax: x is ", x, "; need one of f64, f32, bf16, f16");
  const int dim = internal::checked_dim(c);
  WEFT_CHECK(x.shape[dim] > 0, "softmax: dim ", dim, " of ", x.shape, " is empty; need one element or more");
  return {x};
}

std::vector<Tensor> decompose(const Attrs& attrs, std::span<const Tensor> in) {
  const int64_t dim = attrs.i("dim");
  const Tensor x = cast(in[0], wide_of(in[0].dtype()));
  const Tensor e = exp(x - amax(x, dim, true));
  return {cast(e / sum(e, dim, true), in[0].dtype())};
}

// y (g - sum(g y)).
Grads vjp(const VjpCall& c) {
  const DType wide = wide_of(c.in[0].dtype());
  const Tensor y = cast(c.out[0], wide), g = cast(c.grad[0], wide);
  return {cast((g - sum(g * y, c.attrs.i("dim"), true)) * y, c.in[0].dtype())};
}

std::vector<internal::Sample> samples() {
  auto along = [](int64_t dim) { return Attrs{{"dim", dim}}; };
  std::vector<internal::Sample> s;
  for (const Shape& shape : {Shape{17}, Shape{3, 5}, Shape{2, 33, 3}, Shape{1, 4}})
    for (int d = 0; d < shape.size(); ++d) s.push_back({{{shape}}, along(d)});
  s.push_back({{{Shape{2, 5}, kFloat32, -200, 200}}, along(1), "", false});
  s.push_back({{{Shape{0, 3}}}, along(1)});
  s.push_back({{{Shape{3, 0}}}, along(1), "softmax: dim 1 of [3, 0] is empty"});
  s.push_back({{{Shape{3}}}, along(1), "softmax: dim 1 is out of range"});
  s.push_back({{{Shape{3}, kInt32}}, along(0), "softmax: x is"});
  return s;
}

}  // namespace

const OpDef softmax_op = {
    .name = "softmax",
    .doc = "e^(x - max) over its sum along {dim}: positive, adding up to 1.",
    .traits = kWantsF32,
    .flops_per_point = 20,
    .infer = infer,
    .vjp = vjp,
    .dims = internal::dims_along,
    .decompose = decompose,
    .samples = samples,
    .vjp_reads_in = 0,
};

std::span<const OpDef* const> softmax_ops() {
  static const OpDef* const all[] = {&softmax_op};
  return all;
}

}  // namespace weft
