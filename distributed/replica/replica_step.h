// ReplicaStep: the training step of a program whose replicas may die and come back (docs/elastic.md).
//
//   dist::Job job({.ranks = dist::ranks_of_job(mesh)});
//   if (job.code()) return *job.code();
//   dist::ReplicaStep step(job, train_step, batch, {.mesh = mesh}, {.rows = 16, .cells = cells});
//   while (step.enter()) {                             // false: all replicas have finished
//     if (step.position().step == 1000) step.finish();  // writes(): saves before it
//     else if (const auto loss = step()) ...           // null: not committed
//   }
//
// If REPLICAS is set, this process belongs to one replica of a group. Otherwise all replicas of the mesh are ranks of
// one job, and live as long as it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "distributed/launch/compile.h"
#include "distributed/launch/job.h"
#include "distributed/replica/replay.h"
#include "distributed/replica/replica_run.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

/// The ranks of this process's job on `mesh`: of one replica if REPLICAS is set, else all. Throws InvalidArgument if
/// REPLICAS is set and REPLICA is not.
int ranks_of_job(const Mesh& mesh);

struct ReplicaStepOptions {
  int64_t rows = 1;  // rows of the data that each replica takes in a step
  /// All cells that the step reads or writes: weights, optimiser, random generator. A replica that comes back takes
  /// their values from the others.
  std::vector<std::pair<std::string, CellHandle>> cells;
  RunPosition position = {};       // the position of the checkpoint from which this process starts
  std::string journal = "";        // file of the service's views: this process makes their run again, to the bit
  std::string transport = "auto";  // between replicas: "shared", "gloo" or "auto"
};

/// The part of ReplicaStep that does not depend on the types of the step.
class ReplicaLoop {
 public:
  virtual ~ReplicaLoop();
  ReplicaLoop(const ReplicaLoop&) = delete;

  /// Waits for the other replicas, and takes their state if this replica comes back. Returns false if all replicas have
  /// finished; at once if nothing has changed. All processes of a replica call it. The first replica prints each view.
  /// Returns true after each committed step, also if other replicas have finished: its files may be missing.
  bool enter();
  /// The state of this replica, for its checkpoints and its data.
  const RunPosition& position() const { return position_; }
  /// The replicas that make the next step.
  int64_t live() const { return part().live; }
  /// Whether this replica writes checkpoints, because it is the first of the view. All its processes save together.
  bool writes() const { return !run_ || run_->writes(); }
  /// Ends the run of all replicas after the next committed step, as after a signal to this process. `code`: exit code.
  void stop(int code);
  /// The exit code, if a replica has called stop() before the latest committed step.
  std::optional<int> stopped() const { return stopped_; }
  /// Call it instead of the next step, when the files of the last step are written: enter() then waits for the others.
  void finish();

 protected:
  /// Replicas that make training steps of their own, between the steps of the group (ReplicaRun).
  struct OwnSteps {
    int64_t group_step = 0;  // the step of the group after options.position
    std::function<int64_t(int64_t)> made_before;
    std::string text;  // their options, which must be equal in all replicas
  };
  ReplicaLoop(Job& job, const CompileOptions& compile, const ReplicaStepOptions& options,
              const std::optional<OwnSteps>& own = {});
  /// enter(), without Job::fail.
  virtual bool enter_view();
  void print_view() const;
  DataPart part() const;
  int64_t rows() const { return options_.rows; }
  CompileOptions options_of(int64_t live) const;
  void committed();
  /// Whether there is a view. If not, enter() has returned true for a step that was committed before.
  bool can_step() const { return !run_ || run_->has_view(); }
  /// The result of enter().
  bool shows(bool goes_on) { return std::exchange(shown_, position_.step) != position_.step || goes_on; }
  void check_cells(const CellShards& used) const;
  void fail(const Error& cause) { job_.fail(cause); }
  virtual World& prepare(int64_t live) = 0;
  virtual CellShards shards(int64_t live, bool made) = 0;

  const CompileOptions compile_;
  const ReplicaStepOptions options_;
  RunPosition position_;
  std::shared_ptr<const Replay> replay_;
  std::unique_ptr<ReplicaRun> run_;  // null: no replica dies
  std::optional<int> stopped_;
  bool finished_ = false;  // without run_
  int64_t shown_ = 0;      // the position at which enter() has returned true

  int asked_ = -1;  // without run_: the code of stop()

 private:
  ReplicaState state();

  Job& job_;
};

/// `Fn` is a function as for dist::compile, and returns a value. batch(first, rows) returns a tuple of its arguments:
/// the rows `first` to first + rows - 1 of the data, in an endless order that is equal in all replicas. It is called
/// for shapes, too. After an error, the other processes of this replica end with its cause (Job::fail).
template <class Fn, class Batch>
class ReplicaStep final : public ReplicaLoop {
 public:
  /// Throws InvalidArgument if REPLICAS is set and the mesh has no dimension replica.
  ReplicaStep(Job& job, Fn fn, Batch batch, const CompileOptions& compile, const ReplicaStepOptions& options,
              std::source_location loc = std::source_location::current())
      : ReplicaLoop(job, compile, options), fn_(std::move(fn)), batch_(std::move(batch)), loc_(loc) {}

  /// Makes the next step with the live replicas, after enter(). Returns the result of the function, or null if the step
  /// is not committed: then no cell has changed, and the next step takes the same rows. Throws the errors of the step.
  auto operator()() {
    using Result = decltype(call(0));
    static_assert(!std::is_void_v<Result>, "ReplicaStep: the function returns nothing; need a value, such as the loss");
    std::optional<Result> result;
    try {
      if (!can_step()) return result;
      result = call(live());
      committed();
    } catch (const Uncommitted&) {
      return result;
    } catch (const Error& e) {
      fail(e);
      throw;
    }
    return result;
  }

 private:
  Compiled<Fn>& step_of(int64_t live) {
    if (const auto at = steps_.find(live); at != steps_.end()) return at->second;
    return steps_.emplace(live, dist::compile(fn_, options_of(live), loc_)).first->second;
  }
  auto batch_of(int64_t live) { return batch_(position().samples, live * rows()); }
  auto call(int64_t live) {
    return std::apply([&](const auto&... in) { return step_of(live)(in...); }, batch_of(live));
  }
  World& prepare(int64_t live) override {
    std::apply([&](const auto&... in) { step_of(live).prepare(in...); }, batch_of(live));
    return step_of(live).world();
  }
  CellShards shards(int64_t live, bool made) override { return shards_of(step_of(live), made); }

  Fn fn_;
  Batch batch_;
  const std::source_location loc_;
  std::map<int64_t, Compiled<Fn>> steps_;  // key: live replicas
};

}  // namespace weft::dist
