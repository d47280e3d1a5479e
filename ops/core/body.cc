#include "ops/core/body.h"

#include "framework/autodiff/grad.h"

namespace weft::internal {

SmallVec<const Tensor*, 8> pointers(std::span<const Tensor> in) {
  SmallVec<const Tensor*, 8> all;
  for (const Tensor& t : in) all.push_back(&t);
  return all;
}

Shape plus_one(Shape dims) {
  for (int64_t& d : dims) ++d;
  return dims;
}

Body capture_expanded(const TensorFn& fn, std::span<const TensorType> inputs) {
  Body body = capture_body(fn, inputs);
  bool any = false;
  for (int32_t id = 0; id < body.graph->size(); ++id) any |= body.graph->node(id).op->is(kReadsTape);
  if (!any) return body;
  const auto constant = [](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
    if (n.op != &grad_op || !n.no_grad) return {};
    const OriginScope at(n, n.backward);
    const NoGrad constants;
    std::vector<Tensor> grads = dispatch_multi(grad_op, pointers(in), n.attrs);
    for (Tensor& t : grads) t = t.detach();
    return grads;
  };
  body.graph = expand_grad(*recapture(*body.graph, constant));
  return body;
}

}  // namespace weft::internal
