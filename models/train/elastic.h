// Elastic: this run as one of several replicas that train together, and may die and come back. It waits for views,
// takes the state from the others, and says which replica writes the files of the run.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "distributed/launch/job.h"
#include "distributed/launch/live_replicas.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/world.h"
#include "distributed/replica/data_part.h"
#include "distributed/replica/replica_member.h"
#include "models/train/checkpoint_saver.h"
#include "models/train/options.h"

namespace weft::train {

/// The state of a run, as Elastic gives and takes it.
struct ElasticState {
  std::function<dist::World&(int64_t live)> prepare;                // makes the step for `live` replicas ready
  std::function<dist::CellShards(int64_t live, bool made)> shards;  // dist::shards_of() this step
  NamedCells cells;
  std::function<TrainState()> record;            // the state that is in no cell
  std::function<void(const TrainState&)> adopt;  // the cells have got the values of another replica's state
};

/// The flags and the data that decide on the result of a run: a line "name value" for each. `flags`: run_flags().
std::string run_facts(const TrainOptions& options, const std::map<std::string, std::string>& flags);

class Elastic {
 public:
  /// Joins the group of setup.replica with `state`. Steps that this thread compiles until the end are steps of live
  /// replicas. `flags` are equal in all replicas.
  Elastic(const Setup& setup, const TrainOptions& options, const TrainState& state,
          const std::map<std::string, std::string>& flags, dist::Job& job);

  /// Waits for the next view, and takes or gives the state. Returns false if the run has ended. If it has a view,
  /// returns at once. A collective of the processes of this replica, as finish() is.
  bool enter(const ElasticState& state);
  /// Whether the next step can run.
  bool has_view() const { return member_.has_view(); }
  /// Whether this replica writes checkpoints, metrics and progress lines: it is the first of the view.
  bool writes() const { return member_.live().place == 0; }
  /// The part of this replica in the step at sample `samples`.
  dist::DataPart part(int64_t samples) const;
  /// Makes the steps for one replica fewer and one more ready, once in a view: the next view then compiles nothing.
  void prepare_next(const ElasticState& state);
  /// A signal to this process: all replicas end after the next committed step.
  void stop(int code) { member_.set_note(code > 0 ? code : kNoCode); }
  /// Whether a replica has called stop() before the latest committed step, and its exit code.
  bool stops() const { return member_.group_note() != 0; }
  int code() const;
  /// The last step is committed, and this replica has written its files.
  void finish() { member_.finish(); }
  /// "view 3 from step 40: 2 of 3 replicas: a, b".
  std::string text() const;

 private:
  static constexpr int kNoCode = 1 << 20;  // a note: the output was closed
  const Setup& setup_;
  const int64_t replicas_;
  const std::chrono::nanoseconds timeout_;
  int64_t prepared_ = 0;  // the view for which prepare_next() was called
  dist::ReplicaMember member_;
  const dist::ScopedReplicas scope_{member_};
};

/// Takes the lock of the folder of checkpoints for this replica, which another one may have held. Waits up to `seconds`
/// for it, and then returns false with a warning: a stopped process may hold it. A collective.
bool take_folder(CheckpointSaver& saver, const Setup& setup, double seconds);

}  // namespace weft::train
