#include "models/nn/transformer/model_flops.h"

#include "framework/ir/op_def.h"

namespace weft::nn {

double training_flops(const Graph& forward) {
  double products = 0;
  for (int32_t id = 0; id < forward.size(); ++id) {
    const Node& n = forward.node(id);
    const bool has_body = n.op->is(kStructural) && !n.op->cost && n.attrs.has("body");
    products += has_body ? training_flops(*n.attrs.get<Ref<Graph>>("body")) / 3 : op_cost(forward, n).products;
  }
  return 3 * products;
}

}  // namespace weft::nn
