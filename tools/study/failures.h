// The cost of failures in a training run: closed forms, and a seeded simulation of the same process. Nodes fail
// independently at a constant rate, busy or idle. Times are seconds. There are two ways to continue:
// - restart: all ranks stop and go back to the last checkpoint;
// - drop: all ranks stop for a moment, then train without the failed replica until it returns.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "tools/study/estimate.h"

namespace weft::study {

/// Mean seconds between two failures of a cluster; `failures_per_1000_node_days` is the failure rate of nodes.
double seconds_between_failures(double nodes, double failures_per_1000_node_days);

struct Restart {
  double between = 864;    // mean time between two failures
  double checkpoint = 60;  // time without training for one checkpoint
  double restart = 300;    // from a failure until training continues; a failure during a restart begins a new restart
};

/// The work between two checkpoints that costs least, to first order (Young 1974): sqrt(2 checkpoint between).
double young_interval(const Restart& r);
/// The interval to higher order (Daly 2006), for checkpoints that are not short compared with `between`.
double daly_interval(const Restart& r);
/// The share of time for work that is not lost, to first order in 1 / between: 1 - (checkpoint / interval + (interval /
/// 2 + restart) / between). Outside the range of the approximation it is negative.
double restart_goodput_first_order(const Restart& r, double interval);
/// The goodput without this approximation (Daly 2006, equation 13).
double restart_goodput(const Restart& r, double interval);
/// The mean time that one interval and its checkpoint take, for restart_goodput = interval / mean.
double interval_seconds(const Restart& r, double interval);

struct Drop {
  double between = 864;  // mean time between two failures of any replica
  double replicas = 625;
  double stall = 30;    // all replicas stop, to notice the failure and to continue without the replica
  double rejoin = 180;  // after the stall, until the replica trains again
};

/// The share of samples that are trained, compared with a run without failures, to first order: 1 - stall / between -
/// (rejoin / between) / replicas.
double drop_goodput_first_order(const Drop& d);
/// The goodput without this approximation: exp(-(stall + rejoin / replicas) / between). A failure during a stall or a
/// rejoin begins it anew.
double drop_goodput(const Drop& d);
/// The share of the batch that is trained while one replica is away.
double batch_share(double replicas);

using Random = std::mt19937_64;

/// Estimates interval_seconds(). If `samples` samples would need more than `most_failures` failures, there are fewer
/// samples or none.
TimeEstimate simulate_interval(const Restart& r, double interval, int64_t samples, double most_failures,
                               Random& random);
/// Estimates drop_goodput(). One sample is the time of `failures` failures.
TimeEstimate simulate_drop(const Drop& d, int64_t samples, double failures, double most_failures, Random& random);

/// A point of one run: `work` seconds are done at `time`. Between two points, work changes linearly.
struct RunPoint {
  double time = 0, work = 0;
};
/// A failure of one run: its time and its replica.
struct FailureEvent {
  double time = 0;
  int64_t replica = 0;
};
std::vector<FailureEvent> sample_failures(double between, int64_t replicas, double from, double to, Random& random);
std::vector<RunPoint> restart_run(const Restart& r, double interval, const std::vector<FailureEvent>& failures,
                                  double end);
/// A replica with a failure before 0 may still be away at 0.
std::vector<RunPoint> drop_run(const Drop& d, const std::vector<FailureEvent>& failures, double end);

}  // namespace weft::study
