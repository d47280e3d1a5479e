// The studies of //tools:simulate: each makes a text, JSON and charts from its options.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/study/diloco.h"
#include "tools/study/failures.h"
#include "tools/study/report.h"
#include "tools/study/training.h"

namespace weft::study {

struct Seeded {
  uint64_t seed = 1;
  int64_t samples = 20000;
};

struct FailureOptions {
  double nodes = 10000, failures = 10;  // nodes; failures in 1000 node-days
  double checkpoint = 60, restart = 300, stall = 30, rejoin = 180;
  double interval = 0;  // seconds of work between checkpoints; 0: Daly's
  double nodes_per_replica = 16;
  double days = 1;  // length of the drawn run
};
/// Goodput with restarts and with dropped replicas: for these nodes, over nodes, over the interval, and one run.
StudyReport failure_study(const FailureOptions& o, const Seeded& s);

struct StudyRunOptions {
  double flops = 1e24, gpus = 4000, gpu_flops = 200e12, gpus_per_node = 8;
};
/// Days, GPU-hours and failures of one training run.
StudyReport run_study(const StudyRunOptions& run, const FailureOptions& o, const Seeded& s);

struct DilocoOptions {
  double parameters = 1e9, replicas = 8;
  double inner_steps = 100;                                  // H
  double fragments = 10, overlap_steps = 5, outer_bits = 4;  // for streaming
  double bandwidth = 125e6, latency = 0.05;
  double step_seconds = 1, jitter = 0;
  double steps = 10000;
};
/// Bytes, bursts and utilisation of data parallelism, DiLoCo and streaming DiLoCo, and utilisation over bandwidth.
StudyReport diloco_study(const DilocoOptions& o, const Seeded& s);

struct FaultOptions {
  double seeds = 1000;       // schedules of faults
  int64_t limit_ms = 90000;  // virtual time in which the replicas of a schedule must end
  // The drill: replicas that fail again and again. Seconds:
  double replicas = 4, minutes = 10, between = 15, step = 0.005;
  double stall = 0.041;                  // that the replicas of a new view need for its groups
  double again = 1;                      // from the death of a replica until its next process joins
  double heal = 0.027;                   // that a replica needs for the state of the others, which wait
  double checkpoint = 0.1, restart = 2;  // to restart all instead: training stops for a checkpoint, and for a restart
};
/// The protocol of replicas that may die, in virtual time: schedules of faults by seed, and the goodput of a drill.
StudyReport fault_study(const FaultOptions& o, const Seeded& s);

/// The largest training run over GPU counts.
StudyReport latency_wall_study(const LatencyWall& w);

/// Time of a block over the ranks of tensor parallelism.
StudyReport tp_wall_study(const TpBlock& b);

/// "14.4 min", "3.33 h", "14.5 d"; shorter times as in seconds_text.
std::string time_text(double seconds);

}  // namespace weft::study
