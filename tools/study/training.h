// The arithmetic of large training runs, and two walls: the latency of dependent collectives, and the bandwidth that
// tensor parallelism needs. Closed forms only. Times are seconds, rates are per second.
#pragma once
#include "compiler/cost/machine/machine.h"

namespace weft::study {

/// The seconds of a run of `flops` operations on GPUs with `gpu_flops` operations per second each.
double run_seconds(double flops, double gpus, double gpu_flops);
/// Failures while `nodes` run for `seconds`.
double expected_failures(double seconds, double nodes, double failures_per_1000_node_days);

/// A model whose size grows with the run: tokens = tokens_per_parameter x parameters, operations = 6 x parameters x
/// tokens. The collectives of a step wait for each other and for the compute between them, so that a step takes its
/// compute and layers x collectives x latency.
struct LatencyWall {
  double layers = 100, collectives = 4, latency = 30e-6;
  double batch_tokens = 4e6;  // the critical batch: a larger batch does not reduce the number of steps
  double tokens_per_parameter = 20;
  double gpu_flops = 200e12;
  double seconds = 90 * 86400.;  // length of the run
};

/// The least seconds of a step.
double least_step(const LatencyWall& w);
/// The operations of the largest run in `w.seconds` on `gpus` GPUs; infinity gives the wall.
double largest_run(const LatencyWall& w, double gpus);
double latency_wall(const LatencyWall& w);

/// The model of a run of `flops` operations.
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
/// The number of nodes for `ranks` GPUs; all nodes but the last are full.
int tp_nodes(const TpBlock& b, int ranks);
/// Compute takes the longer of the products at the 16-bit rate and the reads of the weights; all-reduces have the
/// planner's price (collective_seconds).
TpTime tp_time(const TpBlock& b, int ranks);

}  // namespace weft::study
