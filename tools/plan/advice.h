// The four cases of scaling fully sharded data parallelism as one sentence, and what changes when the hardware does.
#pragma once
#include "distributed/plan/limits.h"
#include "tools/plan/step_cost.h"

namespace weft::planner {

/// The two limits of fully sharded data parallelism (distributed/plan/limits.h) at the rates that a step reaches.
struct Limits {
  double flops = 0;                     // operations per second that a GPU reaches
  double bandwidth = 0;                 // bytes per second of a rank's link in gathers over all GPUs
  double communication = 0, batch = 0;  // GPUs
  dist::ScaleCase scale_case = dist::ScaleCase::kFsdp;
};
Limits limits_of(const Workload& setup);
std::string advice(const Workload& setup, const Limits& limits);

/// Applies "gpu_flops=8x,network=0.1x,gpus=2x,batch=1000,seq=8192,memory=2x": numbers, or factors with x.
/// network: links between nodes and within them; bandwidth: of the GPU's memory. Throws InvalidArgument, naming the
/// part, for others.
Workload what_if(Workload setup, const std::string& changes);

}  // namespace weft::planner
