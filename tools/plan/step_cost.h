// The predicted time and memory of one training step on a mesh, from the shapes of a model alone: the sum of its layers
// (layer_cost.h). step_cost_test.cc compares it with captured and partitioned graphs, published_test.cc with published
// runs.
#pragma once
#include <algorithm>

#include "tools/plan/candidate.h"
#include "tools/plan/passes.h"

namespace weft::planner {

/// Bytes of state and gradients for `parameters` parameters: weights at use of `at_use` bytes, gradients in f32, and 12
/// bytes for master weights and two moments (8 if the weights are f32). `shards` ranks share optimiser state if zero >=
/// 1, also gradients if zero >= 2, and everything if zero is 3.
double state_bytes(double parameters, int zero, double shards, double at_use);

/// A step cannot be shorter than its launches on the host.
inline double with_host(double device_seconds, double launches, double host_seconds_each) {
  return std::max(device_seconds, launches * host_seconds_each);
}

struct StepCost {
  double step = 0;     // seconds
  double compute = 0;  // compute of the slowest rank
  double bubble = 0, update = 0, host = 0;
  double update_gather = 0;  // gathering new weights to all ranks with ZeRO-1; part of exposed_data
  double replica_sums = 0;   // the sums of gradients over replicas; part of communication
  double contention = 0;     // compute's loss while collectives use multiprocessors beside it
  double exposed_tp = 0, exposed_cp = 0, exposed_ep = 0, exposed_pp = 0, exposed_data = 0;
  double communication = 0;                               // all collectives of a rank, including hidden collectives
  double state = 0, gathered = 0, kept = 0, working = 0;  // bytes of the largest rank; kept: for backward
  double exposed() const { return exposed_tp + exposed_cp + exposed_ep + exposed_pp + exposed_data; }
  double memory() const { return state + gathered + kept + working; }
  double mfu(const Workload& s) const;
  double tokens_per_gpu_second(const Workload& s) const;
};

/// Throws InvalidArgument, in one clause, for a candidate that the model or the batch does not divide over.
StepCost step_cost(const Workload& setup, const Candidate& candidate);
/// The cost with a simulated bubble: the schedule's table is run action by action (distributed/pipeline/simulate.h).
StepCost simulated_cost(const Workload& setup, const Candidate& candidate);
/// One microbatch of a rank without pp: forward, head, backward, gradients.
Timeline step_timeline(const Workload& setup, const Candidate& candidate);

/// A step of one microbatch by fully sharded data parallelism alone: all compute of a rank, and all its gathers and
/// reductions. The batch need not divide: a rank has its share of the tokens.
struct FsdpSeconds {
  double compute = 0, communication = 0;
};
FsdpSeconds fsdp_seconds(const Workload& setup, int gpus);

}  // namespace weft::planner
