// What failures cost a training run: closed forms, and a simulation of the same process from a seed. Nodes fail
// independently at a constant rate, at work or not. Times are seconds. Two ways to go on:
// - restart: all ranks stop and go back to the last checkpoint;
// - drop: all ranks stop for a moment, then train without the failed replica until it comes back.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "tools/study/estimate.h"

namespace weft::study {

/// Between two failures of a cluster; `failures_per_1000_node_days`: how often nodes fail.
double seconds_between_failures(double nodes, double failures_per_1000_node_days);

struct Restart {
  double between = 864;    // two failures
  double checkpoint = 60;  // the stop of the training for one
  double restart = 300;    // from a failure until training goes on; a failure in it starts it anew
};

/// The work between two checkpoints that costs least, to first order (Young 1974): sqrt(2 checkpoint between).
double young_interval(const Restart& r);
/// The same to higher order (Daly 2006), for checkpoints that are not short beside `between`.
double daly_interval(const Restart& r);
/// The share of the time that is work which stays done: 1 - (checkpoint / interval + (interval / 2 + restart) /
/// between). To first order in 1 / between; far from it, it is negative.
double restart_goodput_first_order(const Restart& r, double interval);
/// The same without that approximation (Daly 2006, equation 13).
double restart_goodput(const Restart& r, double interval);
/// The mean time that one interval and its checkpoint take, for restart_goodput = interval / mean.
double interval_seconds(const Restart& r, double interval);

struct Drop {
  double between = 864;  // two failures of all replicas together
  double replicas = 625;
  double stall = 30;    // of all replicas: to notice the failure, and to go on without it
  double rejoin = 180;  // after the stall, until the replica trains again
};

/// The share of the samples that are trained, beside a run without failures: 1 - stall / between - (rejoin / between) /
/// replicas, to first order.
double drop_goodput_first_order(const Drop& d);
/// Without that approximation: exp(-(stall + rejoin / replicas) / between). A failure during a stall or a rejoin starts
/// it anew.
double drop_goodput(const Drop& d);
/// The share of the batch that is trained while one replica is away.
double batch_share(double replicas);

using Random = std::mt19937_64;

/// Of interval_seconds(). If `samples` would need more failures than `most_failures`, there are fewer or none.
Estimate simulate_interval(const Restart& r, double interval, int64_t samples, double most_failures, Random& random);
/// Of drop_goodput(). One sample is the time of `failures` failures.
Estimate simulate_drop(const Drop& d, int64_t samples, double failures, double most_failures, Random& random);

/// One run: `work` seconds are done at `time`. Between two points both change linearly.
struct RunPoint {
  double time = 0, work = 0;
};
/// Failures of one run, by time, and the replica of each.
struct Failure {
  double time = 0;
  int64_t replica = 0;
};
std::vector<Failure> sample_failures(double between, int64_t replicas, double from, double to, Random& random);
std::vector<RunPoint> restart_run(const Restart& r, double interval, const std::vector<Failure>& failures, double end);
/// Failures before 0 are those of replicas that may still be away at 0.
std::vector<RunPoint> drop_run(const Drop& d, const std::vector<Failure>& failures, double end);

}  // namespace weft::study
