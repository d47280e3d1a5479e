// The four cases of scaling fully sharded data parallelism as one sentence, and what changes when the hardware does.
#pragma once
#include "distributed/plan/limits.h"
#include "tools/plan/step_cost.h"

namespace weft::planner {

/// The two limits of fully sharded data parallelism (distributed/plan/limits.h) at the rates that a step reaches. All
/// experts are gathered, but compute has only the chosen ones to hide it with.
struct Limits {
  double flops = 0;                     // operations per second that a GPU reaches
  double bandwidth = 0;                 // bytes per second of a rank's link in gathers over all GPUs
  double communication = 0, batch = 0;  // GPUs
  dist::ScaleCase scale_case = dist::ScaleCase::kFsdp;
};
Limits limits_of(const Workload& setup);
std::string advice(const Workload& setup, const Limits& limits);

/// Applies "gpu_flops=8x,network=0.1x,gpus=2x,batch=1000,seq=8192,memory=2x": numbers, or factors with x.
/// network: links between nodes and within them; bandwidth: of the GPU's memory. A change of seq keeps the tokens of a
/// step, unless batch is given too; the order of the changes does not matter. With `fit_batch`, other gpus get a batch
/// near the old one that suits them (batch_for), unless batch is given. Throws InvalidArgument, naming the part, for
/// others.
Workload what_if(Workload setup, const std::string& changes, bool fit_batch = false);

}  // namespace weft::planner
