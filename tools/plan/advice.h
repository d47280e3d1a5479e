// The four cases of scaling fully sharded data parallelism as one sentence, and what changes when the hardware does.
#pragma once
#include "distributed/plan/limits.h"
#include "tools/plan/search.h"

namespace weft::planner {

/// The two limits of fully sharded data parallelism, in GPUs.
struct Limits {
  double communication = 0;  // the most whose compute takes as long as their gathers and reductions (fsdp_seconds())
  double closed_form = 0;    // the same without latency, attention and f32 gradients (distributed/plan/limits.h)
  double batch = 0;          // sequences of a step
  dist::ScaleCase scale_case = dist::ScaleCase::kFsdp;
};
inline constexpr int kMostGpus = 1 << 20;  // the limit of communication is searched up to this number
Limits limits_of(const Workload& setup);
/// `best`: the fastest plan, beside which fully sharded data parallelism alone is priced.
std::string advice(const Workload& setup, const Limits& limits, const Planned& best);

/// Applies "gpu_flops=8x,network=0.1x,gpus=2x,batch=1000,seq=8192,memory=2x": numbers, or factors with x.
/// network: links between nodes and within them; bandwidth: of the GPU's memory. A change of seq keeps the tokens of a
/// step, unless batch is given too; the order of the changes does not matter. With `fit_batch`, other gpus get a batch
/// near the old one that suits them (batch_for), unless batch is given. Throws InvalidArgument, naming the part, for
/// others.
Workload what_if(Workload setup, const std::string& changes, bool fit_batch = false);

}  // namespace weft::planner
