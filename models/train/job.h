// --ranks processes: the processes of a training run.
#pragma once
#include "distributed/launch/processes.h"
#include "models/train/options.h"

namespace weft::train {

/// Makes this process one of a job with a process for each rank, if the settled options ask for one. If nothing has
/// started such processes, this one does so and returns their exit code; otherwise it joins them and returns nothing.
/// From then on only the first process writes to standard output.
std::optional<int> join_or_launch(const TrainOptions& settled);

/// What the first process of the job gives; without a job, `mine`.
template <class T>
T word_of_first(T mine) {
  dist::Processes* const job = dist::Processes::current();
  return job ? job->from_first(mine) : mine;
}

}  // namespace weft::train
