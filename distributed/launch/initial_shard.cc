#include "distributed/launch/initial_shard.h"

#include <map>

#include "distributed/propagate/emit.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/state.h"
#include "framework/ir/rewrite.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/creation.h"

namespace weft::dist {

Tensor initial_shard(const Mesh& mesh, const Spec& spec, const Graph& init, int rank) {
  NoGrad guard;
  Decision placed = decide(mesh, init, {});
  placed.outputs[0] = spec;
  const LocalGraph local = emit(mesh, init, placed, {}, rank);
  WEFT_BUG_IF(!local.collectives.empty(), "an initialiser needs a ", local.collectives[0].kind);
  // No rank runs this graph, so its coordinates are constants.
  std::map<int32_t, int64_t> coordinates;
  for (int32_t id = 0; id < local.graph->size(); ++id)
    if (const Node& n = local.graph->node(id); n.op == &rank_coordinate_op)
      coordinates[id] = mesh.coordinate(rank, n.attrs.get<std::string>("axes"));
  const Ref<Graph> graph =
      replace_results(*local.graph, coordinates, [](Rewriter& to, const Node& n, int64_t coordinate) {
        Node constant{.op = &constant_op, .outputs = n.outputs, .line = n.line};
        constant.attrs = Attrs{{"value", coordinate}, {"dtype", kInt64}};
        return Value{to.graph().add(std::move(constant)), 0};
      });
  return interpret(*graph, {})[0].contiguous();
}

}  // namespace weft::dist
