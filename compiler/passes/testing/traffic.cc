#include "compiler/passes/testing/traffic.h"

#include "framework/ir/op_def.h"
#include "ops/core/indexing/view.h"

namespace weft {

Traffic traffic_of(const Graph& g) {
  Traffic t;
  t.nodes = g.size();
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op->is(kStructural) || n.op->view || n.inputs.empty()) continue;
    ++t.launches;
    for (const TensorType& type : n.outputs) t.bytes += static_cast<double>(type.nbytes());
    for (Value v : n.inputs) {
      while (g.node(v).op == &broadcast_op || g.node(v).op == &reshape_op) v = g.node(v).inputs[0];
      t.bytes += static_cast<double>(g.type(v).nbytes());
    }
  }
  return t;
}

}  // namespace weft
