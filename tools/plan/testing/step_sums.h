// The work of one rank for all layers of one microbatch, for comparison with graphs.
#pragma once
#include "tools/plan/layer_cost.h"

namespace weft::planner {

/// FLOPs of products in forward and backward.
inline double product_flops(const Workload& setup, const Candidate& c) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const Costs costs(setup, c);
  const LayerCosts model(setup, costs);
  double flops = model.head.flops;
  for (const auto& [layer, count] : model.kinds) flops += d(count) * layer.flops;
  return 3 * flops;
}

/// Bytes of a rank's collectives: gathers and scatters over tp, gathers and reductions over the data dimensions (the
/// larger of operand and result), and sums over replicas.
struct CollectiveBytes {
  double tp_gathered = 0, tp_scattered = 0, data_gathered = 0, data_reduced = 0, over_replicas = 0;
};
inline CollectiveBytes collective_bytes(const Workload& setup, const Candidate& c) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const Costs costs(setup, c);
  const LayerCosts model(setup, costs);
  const double layers = d(model.layers()), e = costs.element(), stream = costs.stream(),
               table = d(setup.model.table_parameters()) / c.tp;
  double parameters = 0;
  for (const auto& [layer, count] : model.kinds) parameters += d(count) * layer.dense;
  CollectiveBytes b;
  if (c.tp > 1) {
    b.tp_gathered = (2 * layers + 1 + 4 * layers + 2) * stream;
    b.tp_scattered = (4 * layers + 2) * stream;
  }
  if (c.zero == 3) b.data_gathered = (2 * parameters + 3 * table) * e;  // backward does not read the embedding
  b.data_reduced = (parameters + 2 * table) * kMasterBytes;
  b.over_replicas = costs.replica_bytes(model.head) + costs.replica_bytes(model.embedding);
  for (const auto& [layer, count] : model.kinds) b.over_replicas += d(count) * costs.replica_bytes(layer);
  return b;
}

}  // namespace weft::planner
