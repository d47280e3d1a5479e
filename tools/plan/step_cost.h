// The predicted time and memory of one training step on a mesh, from the shapes of a model alone. All times come from
// compiler/cost, as the partitioner's do (roofline, waves of products, collectives); only the list of a layer's ops is
// written here. step_cost_test.cc compares it with captured and partitioned graphs, published_test.cc with published
// runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/cost/machine.h"
#include "tools/plan/attention_rate.h"
#include "tools/plan/passes.h"
#include "tools/plan/pipeline_cost.h"
#include "tools/plan/shape.h"

namespace weft::planner {

/// What all candidates share.
struct Workload {
  ModelShape model;
  Machine machine;  // as the run sees it (with_tf32)
  int gpus = 1;
  int64_t batch = 1;  // sequences of a step
  int64_t sequence = 1;
  DType activations = kBFloat16;  // and of the weights at use
  DType products = kBFloat16;     // of the operands of layers' products
  bool async_tp = true;           // products overlap with the tp collectives beside them
  AttentionKernel attention = AttentionKernel::kWeft;
  double host_seconds = 0;  // of the host for each launch; 0: the step is replayed as one graph
  double peak_flops() const { return machine.products_of(products); }
  /// How many ranks share the device of one: all, if they are threads of one CPU.
  double sharing() const { return machine.shares_cores ? gpus : 1; }
  double tokens() const { return static_cast<double>(batch) * static_cast<double>(sequence); }
  /// Bytes that a rank may use: some of a GPU's memory belongs to driver, libraries and the allocator's gaps; threads
  /// of one CPU share all of it.
  double usable_memory() const { return (machine.shares_cores ? 1 : 0.94) * machine.memory / sharing(); }
};

/// A mesh with its options. Ranks fill nodes in the order tp, cp, ep, fsdp, dp, pp.
struct Candidate {
  int dp = 1, fsdp = 1, tp = 1, cp = 1, ep = 1, pp = 1;
  int zero = 0;                   // 0, 1; 3 with fsdp
  std::string schedule = "1f1b";  // with pp
  int stages_per_rank = 1;        // with pp
  int64_t microbatches = 1;
  bool full_recompute = false;  // backward computes each layer's forward again; else cheap values alone
  bool gather_once = true;      // with pp and zero 3: once for all microbatches
  int data() const { return dp * fsdp * ep; }
  int ranks() const { return data() * tp * cp * pp; }
  std::string mesh() const;  // "pp8,fsdp8,tp8"; "" of one rank
  std::string text() const;  // "pp8,fsdp8,tp8  1f1b, 16 microbatches, full recompute"
};

/// Bytes at rest and of gradients for each of `parameters`: weights at use of `at_use` bytes, gradients in f32, 12 more
/// for master weights and two moments (8 if the weights are f32). `shards`: ranks that the state is spread over, from
/// zero 1 the optimiser's, from 2 gradients, in 3 all.
double state_bytes(double parameters, int zero, double shards, double at_use);

/// Nodes that a group of ranks spans, whose members are `stride` ranks apart.
int nodes_spanned(int ranks, int stride, int node);

/// A step cannot be shorter than its launches on the host.
inline double with_host(double device_seconds, double launches, double host_seconds_each) {
  return std::max(device_seconds, launches * host_seconds_each);
}

struct StepCost {
  double step = 0;     // seconds
  double compute = 0;  // of the slowest rank
  double bubble = 0, update = 0, host = 0;
  double update_gather = 0;  // of new weights to all ranks with ZeRO-1; part of exposed_data
  double contention = 0;     // that compute loses while collectives use multiprocessors beside it
  double exposed_tp = 0, exposed_cp = 0, exposed_ep = 0, exposed_pp = 0, exposed_data = 0;
  double communication = 0;                               // all collectives of a rank, hidden ones too
  double state = 0, gathered = 0, kept = 0, working = 0;  // bytes of the largest rank; kept: for backward
  double exposed() const { return exposed_tp + exposed_cp + exposed_ep + exposed_pp + exposed_data; }
  double memory() const { return state + gathered + kept + working; }
  double mfu(const Workload& s) const;
  double tokens_per_gpu_second(const Workload& s) const;
};

/// Throws InvalidArgument, in one clause, for a candidate that the model or the batch does not divide over.
StepCost step_cost(const Workload& setup, const Candidate& candidate);
/// The same; the bubble is that of the schedule's table, action by action (distributed/pipeline/simulate.h).
StepCost simulated_cost(const Workload& setup, const Candidate& candidate);
/// One microbatch of a rank without pp: forward, head, backward, gradients.
Timeline step_timeline(const Workload& setup, const Candidate& candidate);

/// The work of one rank for all layers of one microbatch, for comparison with graphs: FLOPs of products in forward and
/// backward.
double product_flops(const Workload& setup, const Candidate& candidate);
/// Bytes of a rank's collectives of one microbatch: gathers and scatters over tp, gathers and reductions over the data
/// dimensions (the larger of operand and result).
struct CollectiveBytes {
  double tp_gathered = 0, tp_scattered = 0, data_gathered = 0, data_reduced = 0;
};
CollectiveBytes collective_bytes(const Workload& setup, const Candidate& candidate);

}  // namespace weft::planner
