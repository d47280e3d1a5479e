#include "distributed/stages/recomputed.h"

#include "framework/ir/rewrite.h"

namespace weft::dist {

Recomputed::Recomputed(const Graph& g, const StageCut& cut) : input(static_cast<size_t>(g.size())), weight(input) {
  const std::vector<std::vector<int32_t>> readers = users(g);
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    const auto i = static_cast<size_t>(id);
    const StageOf& own = cut.nodes[i];
    if (own.region != StageOf::kStage || !own.may_recompute) continue;
    for (int32_t user : readers[i]) {
      const auto u = static_cast<size_t>(user);
      const StageOf& reader = cut.nodes[u];
      if (reader.region != StageOf::kStage || reader.stage != own.stage) continue;
      input[i] = input[i] || input[u] || (reader.backward && !reader.weight);
      weight[i] = weight[i] || weight[u] || (reader.backward && reader.weight);
    }
  }
}

}  // namespace weft::dist
