// --ranks processes: the processes of a training run.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "models/train/options.h"

namespace weft::train {

/// The job of the settled options; `dir` is its folder of checkpoints. All ranks are processes with --ranks processes
/// and a mesh; otherwise the job only makes restarts.
std::unique_ptr<dist::Job> make_job(const TrainOptions& settled, const std::string& dir);

/// If this process starts the replicas of the settled run on this host, runs their service and returns their exit code
/// (dist::start_replicas). Returns nothing in all other processes, and in the processes of the replicas.
std::optional<int> run_replicas(const TrainOptions& settled, const Setup& setup);

/// Measures and keeps the rates that --metrics needs, if this process will start the ranks and no quiet run kept them.
/// The ranks would wait for the measurement. A child makes it: this process must not have threads.
void measure_before_ranks(const TrainOptions& settled);
/// The device's rate of products; 0 if it is unknown and other processes would wait for its measurement. `at_once`:
/// disturbed rates are not measured again.
double rate_of_products(Device device, DType dtype, bool at_once);
/// Prints how mfu is counted: the rate of the model's FLOPs over `rate`, the device's rate of products, in FLOP/s. If
/// `rate` is 0, prints how a run gets it.
void announce_mfu(double flops_per_token, double rate);

/// The path of a file in `dir` with a random name, for which no file system has a cached answer.
std::string unseen_path(const std::string& dir);
/// Throws in all processes of the job, naming a rank and its host, unless each process sees a file that the first
/// process has just made in its folder `dir`; the file is then removed. A collective.
void check_shared(const std::string& dir);

/// The value `mine` of the job's first process; without a job, `mine`.
template <class T>
T value_of_first(T mine) {
  dist::Processes* const job = dist::Processes::current();
  return job ? job->from_first(mine) : mine;
}

}  // namespace weft::train
