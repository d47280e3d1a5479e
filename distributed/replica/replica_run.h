// ReplicaRun: this run as one of several replicas that train together, and may die and come back. It waits for views,
// takes the state from the others or gives it to them, and carries signals to all replicas.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/live_replicas.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/world.h"
#include "distributed/replica/data_part.h"
#include "distributed/replica/replica_member.h"
#include "framework/dispatch/parameter.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

/// The state of a run, as ReplicaRun gives and takes it.
struct ReplicaState {
  std::function<World&(int64_t live)> prepare;                // makes the step for `live` replicas ready
  std::function<CellShards(int64_t live, bool made)> shards;  // shards_of() this step
  std::vector<std::pair<std::string, CellHandle>> cells;
  std::function<std::string()> record;                   // the state that is in no cell, equal in all replicas
  std::function<void(const std::string& record)> adopt;  // the cells have got the values of the state with this record
};

/// A line of ReplicaOptions::facts. A value that is long or has several lines becomes its checksum.
std::string fact_line(const std::string& name, const std::string& value);

/// Names of own values, as control::kMeshValue and kProcessesValue.
inline constexpr const char *kInstructionsValue = "instructions", *kRowsValue = "rows";
/// ReplicaOptions::own of a replica that makes training steps of its own: the mesh of one replica, the number of
/// processes of this job, its instruction set, and its rows of the data in a step.
std::string own_values(const Mesh& mesh, int64_t rows);

class ReplicaRun {
 public:
  /// Joins the group of `options.address`, which has up to `options.replicas` live replicas. Steps that this thread
  /// compiles until the end of this object are steps of live replicas.
  ///
  /// If `made_before` is set, each replica makes training steps of its own, and vote() makes a step of the group
  /// between them: made_before(s) is the number of training steps before step s of the group. A replica that comes back
  /// takes the state of the first one with a state.
  explicit ReplicaRun(const ReplicaOptions& options, std::function<int64_t(int64_t)> made_before = {});

  /// Waits for the next view, and takes or gives the state. Returns false if the run has ended. If it has a view,
  /// returns at once. A collective of the processes of this replica, as finish() is.
  bool enter(const ReplicaState& state);
  /// Whether the next step can run.
  bool has_view() const { return member_.has_view(); }
  /// Whether this replica writes the files of the run: it is the first of the view.
  bool writes() const { return member_.live().place == 0; }
  /// Ends a step of the group: whether it is committed. `has_sums`: this process has all sums. A collective of the
  /// processes of this replica.
  bool vote(bool has_sums);
  ReplicaMember& member() { return member_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }
  /// The part of this replica in the step before which all steps took `parts` parts.
  DataPart part(int64_t parts) const;
  /// Makes the steps for one replica fewer and one more ready, once in a view: the next view then compiles nothing.
  void prepare_next(const ReplicaState& state);
  /// All replicas end after the next committed step. `code`: their exit code; the largest one of all replicas counts.
  void stop(int code) { member_.set_note(int64_t{std::max(code, 0)} + 1); }
  /// Whether a replica has called stop() before the latest committed step, and its exit code.
  bool stops() const { return member_.group_note() != 0; }
  int code() const;
  /// The last step is committed, and this replica has written its files.
  void finish() { member_.finish(); }
  /// "view 3 from step 40: 2 of 3 replicas: a, b".
  std::string text() const;

 private:
  int64_t first_step() const;

  const std::string name_;
  const int64_t replicas_;
  const std::chrono::nanoseconds timeout_;
  const std::function<int64_t(int64_t)> made_before_;
  int64_t prepared_ = 0;  // the view for which prepare_next() was called
  ReplicaMember member_;
  std::optional<ScopedReplicas> scope_;
};

}  // namespace weft::dist
