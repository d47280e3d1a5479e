#include "compiler/cost/node_seconds.h"

#include "ops/core/products/dot.h"

namespace weft {

ProductShape product_shape(const Graph& g, const Node& n) {
  if (n.op->is(kAttention)) return {.head = static_cast<double>(g.type(n.inputs[0]).shape.back())};
  if (!n.op->is(kProduct)) return {};
  const Shape& out = n.outputs[0].shape;
  if (n.op == &grouped_dot_op) {
    const int rank = out.size();
    if (rank < 2) return {};
    double count = 1;
    for (int d = 0; d + 2 < rank; ++d) count *= static_cast<double>(out[d]);
    return {count, static_cast<double>(out[rank - 2]), static_cast<double>(out[rank - 1])};
  }
  const int batch = n.attrs.ints("a_batch").size(),
            rows = g.type(n.inputs[0]).shape.size() - batch - n.attrs.ints("a_contract").size();
  ProductShape s{1, 1, 1};
  for (int d = 0; d < out.size(); ++d)
    (d < batch ? s.count : d < batch + rows ? s.m : s.n) *= static_cast<double>(out[d]);
  return s;
}

double node_seconds(const Machine& machine, const Graph& g, const Node& n) {
  return roofline_seconds(machine, op_cost(g, n), product_shape(g, n));
}

}  // namespace weft
