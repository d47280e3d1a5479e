#include "tools/study/training.h"

#include <algorithm>
#include <cmath>

#include "compiler/cost/collective_seconds.h"
#include "tools/plan/limits.h"
#include "tools/study/failures.h"

namespace weft::study {

double run_seconds(double flops, double gpus, double gpu_flops) { return flops / (gpus * gpu_flops); }

double expected_failures(double seconds, double nodes, double failures_per_1000_node_days) {
  return seconds / seconds_between_failures(nodes, failures_per_1000_node_days);
}

double least_step(const LatencyWall& w) { return planner::latency_floor(w.layers, w.collectives, w.latency); }

double largest_run(const LatencyWall& w, double gpus) {
  // flops / rate + a sqrt(flops) = seconds, since the number of steps grows with the square root of the operations.
  const double rate = gpus * w.gpu_flops, a = std::sqrt(w.tokens_per_parameter / 6) / w.batch_tokens * least_step(w),
               root = 2 * w.seconds / (a + std::sqrt(a * a + 4 * w.seconds / rate));
  return root * root;
}

double latency_wall(const LatencyWall& w) {
  const double tokens = w.batch_tokens * w.seconds / least_step(w);
  return 6 * tokens * tokens / w.tokens_per_parameter;
}

RunSize run_size(double flops, double tokens_per_parameter) {
  const double parameters = std::sqrt(flops / (6 * tokens_per_parameter));
  return {parameters, tokens_per_parameter * parameters};
}

double all_reduce_bytes(const TpBlock& b) { return b.tokens * b.dim * b.bytes_each; }

int tp_nodes(const TpBlock& b, int ranks) {
  const int node = b.machine.links.node;
  return (ranks + node - 1) / node;
}

TpTime tp_time(const TpBlock& b, int ranks) {
  const double products = 2 * b.parameters * b.tokens / (b.machine.products_of(kBFloat16) * b.machine.reached),
               weights = b.parameters * b.bytes_each / b.machine.bytes;  // each is read once
  return {std::max(products, weights) / ranks,
          b.all_reduces *
              collective_seconds(Collective::kAllReduce, all_reduce_bytes(b), ranks, tp_nodes(b, ranks), b.machine)};
}

}  // namespace weft::study
