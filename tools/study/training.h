// The arithmetic of large training runs, and two walls: the latency of dependent collectives, and the bandwidth that
// tensor parallelism needs. Closed forms only. Times are seconds, rates are per second.
#pragma once
#include "compiler/cost/machine.h"

namespace weft::study {

/// Of a run of `flops` operations on GPUs that each do `gpu_flops` per second.
double run_seconds(double flops, double gpus, double gpu_flops);
/// Failures while `nodes` run for `seconds`.
double expected_failures(double seconds, double nodes, double failures_per_1000_node_days);

/// A model whose size grows with the run: tokens = tokens_per_parameter x parameters, operations = 6 x parameters x
/// tokens. The collectives of a step wait for each other and for the compute between them, so that a step takes its
/// compute and layers x collectives x latency.
struct LatencyWall {
  double layers = 100, collectives = 4, latency = 30e-6;
  double batch_tokens = 4e6;  // more do not train in fewer steps: the critical batch
  double tokens_per_parameter = 20;
  double gpu_flops = 200e12;
  double seconds = 90 * 86400.;  // of the run
};

/// The least seconds of a step.
double least_step(const LatencyWall& w);
/// The operations of the largest run in the time, on so many GPUs; infinitely many: the wall.
double largest_run(const LatencyWall& w, double gpus);
double latency_wall(const LatencyWall& w);

/// The model of a run of so many operations.
struct RunSize {
  double parameters, tokens;
};
RunSize run_size(double flops, double tokens_per_parameter);

/// The forward pass of a transformer block whose products are split over `ranks`, with all-reduces that nothing hides.
struct TpBlock {
  double tokens = 8192, dim = 8192, parameters = 855.6e6;  // a block of Llama 70B
  double bytes_each = 2, all_reduces = 2;
  Machine machine = machine_preset("h100-sxm");
};

struct TpTime {
  double compute, communication;
  double step() const { return compute + communication; }
};
double all_reduce_bytes(const TpBlock& b);
/// Nodes of `ranks` GPUs, as many on each.
int tp_nodes(const TpBlock& b, int ranks);
/// Compute at the rate that 16-bit products reach, or that of reading the weights if that takes longer; all-reduces as
/// the planner prices them (collective_seconds).
TpTime tp_time(const TpBlock& b, int ranks);

}  // namespace weft::study
