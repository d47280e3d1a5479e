// --ranks processes: the processes of a training run.
#pragma once
#include <memory>
#include <optional>

#include "distributed/launch/membership.h"
#include "distributed/launch/processes.h"
#include "models/train/options.h"

namespace weft::train {

/// How this process takes part in a run.
struct Part {
  std::optional<int> code;                       // it has started the processes of the run, which ended with this code
  std::unique_ptr<dist::Membership> membership;  // it is one of them; null: it is the only one
};

/// Makes this process one of a job with a process for each rank, if the settled options ask for one. If nothing has
/// started such processes, this one does so, on this host; otherwise it joins them. From then on only the first process
/// writes to standard output.
Part join_or_launch(const TrainOptions& settled);

/// What the first process of the job gives; without a job, `mine`.
template <class T>
T word_of_first(T mine) {
  dist::Processes* const job = dist::Processes::current();
  return job ? job->from_first(mine) : mine;
}

}  // namespace weft::train
