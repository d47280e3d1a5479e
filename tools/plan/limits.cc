#include "tools/plan/limits.h"

#include <algorithm>

namespace weft::planner {

double fsdp_comm_limit(double tokens, double link_bandwidth, double flops) { return tokens * link_bandwidth / flops; }

double fsdp_batch_limit(double tokens, double sequence) { return tokens / sequence; }

ScaleCase scale_case(double gpus, double comm_limit, double batch_limit) {
  const bool batch = gpus > batch_limit, comm = gpus > comm_limit;
  return batch ? comm ? ScaleCase::kBoth : ScaleCase::kBatch : comm ? ScaleCase::kComm : ScaleCase::kFsdp;
}

double dispatch_bytes(double tokens, double k, double dim, double ep) { return tokens * k * dim * 2 * (ep - 1) / ep; }

double expert_skew(const double* shares, int ranks) { return *std::max_element(shares, shares + ranks) * ranks; }

double latency_floor(double layers, double collectives_each, double latency) {
  return layers * collectives_each * latency;
}

}  // namespace weft::planner
