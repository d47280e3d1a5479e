// The four cases of scaling fully sharded data parallelism as one sentence.
#pragma once
#include "tools/plan/limits.h"
#include "tools/plan/search.h"

namespace weft::planner {

/// The two limits of fully sharded data parallelism, in GPUs.
struct Limits {
  double communication = 0;  // most GPUs whose compute takes as long as their gathers and reductions (fsdp_seconds())
  double closed_form = 0;    // the same without latency, attention and f32 gradients (tools/plan/limits.h)
  double batch = 0;          // sequences of a step
  ScaleCase scale_case = ScaleCase::kFsdp;
};
inline constexpr int kMostGpus = 1 << 20;  // the limit of communication is searched up to this number
Limits limits_of(const Workload& setup);
/// `best`: the fastest plan, which is compared with fully sharded data parallelism alone.
std::string advice(const Workload& setup, const Limits& limits, const PricedCandidate& best);

}  // namespace weft::planner
