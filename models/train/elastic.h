// The run of a trainer as one of several replicas (distributed/replica/replica_run.h).
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/job.h"
#include "distributed/replica/replica_member.h"
#include "models/train/checkpoint_saver.h"
#include "models/train/options.h"

namespace weft::train {

/// The flags and the data that decide on the result of a run, by name. `flags`: run_flags().
std::vector<std::pair<std::string, std::string>> run_facts(const TrainOptions& options,
                                                           const std::map<std::string, std::string>& flags);

/// The options of the replica setup.replica with `state`. `flags` are equal in all replicas.
dist::ReplicaOptions replica_options(const Setup& setup, const TrainOptions& options, const TrainState& state,
                                     const std::map<std::string, std::string>& flags, const dist::Job& job);

/// Throws unless the journal setup.replay makes the run again from this state. `flags`: run_flags().
void check_replay(const Setup& setup, const TrainOptions& options, const TrainState& state,
                  const std::map<std::string, std::string>& flags);

/// Takes the lock of the folder of checkpoints for this replica, which another one may have held. Waits up to `seconds`
/// for it, and then returns false with a warning: a stopped process may hold it. A collective.
bool take_folder(CheckpointSaver& saver, const Setup& setup, double seconds);

}  // namespace weft::train
