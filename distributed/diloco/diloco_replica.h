// DilocoReplica: this replica among replicas that train by themselves, and exchange outer gradients (outer.h).
//
// An exchange makes two steps of the group of replicas (control/group/member.h). Exchange x begins with step 2 x: it
// decides which replicas make the training steps up to the exchange, and on which rows of the data. Step 2 x + 1 is the
// exchange itself: its sums are the averages of outer gradients. A replica that heals before step 2 x trains with the
// others. One that heals before step 2 x + 1 takes part in this exchange without weight. So the views of the service
// decide on each bit of the run, and one process can make it again, with one replica after the other.
//
// If there is a delay, an exchange begins before its step of the group, and several may be under way. Their
// collectives run one after the other, in the order of the exchanges. The view of step 2 x + 1 decides on the replicas
// of exchange x: when a view is over, its members drop all averages that are not committed, and keep their outer
// gradients. The members of the next view make these exchanges again. A replica that heals takes part in them without
// weight.
//
// Replicas may have different meshes, instruction sets and numbers of rows: the views contain them (own_values()). If
// the meshes of a view differ, the leaders exchange whole fragments. A replay has the bits of the run if it has the
// mesh and the instruction set of all replicas, or if sums do not depend on them (check_replay()).
//
// A replica that heals takes anchors, outer momentum and the state of its optimiser from another one, and its
// parameters are the anchors. If a replica is lost, its training steps since the last exchange are lost, too. Outer
// gradients that are under way are in no checkpoint: all replicas that begin from it take them from its parameters.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/diloco/outer.h"
#include "distributed/diloco/outer_state.h"
#include "distributed/launch/world.h"
#include "distributed/replica/replay.h"
#include "distributed/replica/replica_run.h"

namespace weft::dist {

/// The training step of a replica, as DilocoReplica sees it.
struct DilocoStep {
  std::function<World*()> prepare;                       // makes the step ready; null: it runs on one device
  std::function<CellShards(bool made)> shards;           // shards_of() this step
  NamedCells parameters;                                 // trained: f32, on the CPU
  NamedCells others;                                     // further cells that the step reads or writes
  std::function<std::string()> record;                   // the state that is in no cell, equal in all replicas
  std::function<void(const std::string& record)> adopt;  // takes such a state, before position() changes
  /// For a replay: makes a training step of another replica, from `rows` rows of the data, after `step` steps.
  std::function<void(int64_t step, int64_t row, int64_t rows)> make;
};

class DilocoReplica {
 public:
  /// `rows` of the data are the part of this replica in a training step. Throws InvalidArgument for bad options.
  DilocoReplica(const OuterOptions& options, DilocoStep step, int64_t rows);
  ~DilocoReplica();

  /// For ReplicaRun: the training steps before a step of the group.
  static std::function<int64_t(int64_t)> made_before(const OuterOptions& options);
  /// The step of the group after this number of training steps. Throws FailedPrecondition if an exchange is not
  /// complete there.
  static int64_t group_step(const OuterOptions& options, int64_t steps);

  /// Throws FailedPrecondition unless a replay with these own_values() has the bits of the run. `exact`: the bits of
  /// training steps depend on no mesh (CompileOptions::verify_numerics).
  static void check_replay(const Replay& replay, const OuterOptions& options, const std::string& own, bool exact);

  /// The cells "outer.*". Checkpoints keep them.
  const NamedCells& cells() const { return outer_.cells(); }
  /// Begins at the position of a state. `run` has made_before(), and must outlive this. Without it, `replay` decides.
  void begin(const RunPosition& at, ReplicaRun* run, std::shared_ptr<const Replay> replay = nullptr);
  /// ReplicaRun::enter(). Only with `run`.
  bool enter();
  /// Whether the next training step can run now: it needs no view. If not, call enter() if there is no view, and
  /// advance().
  bool ready();
  /// Makes the next step of the group, which waits for the other replicas. If it is not committed, there is no view.
  void advance();
  /// Whether an exchange has ended, and the next training steps have not begun: checkpoints and the end of the run are
  /// here. After the last training step, whether all exchanges have ended.
  bool between() const {
    return begins_block() && (position_.step < options_.steps || exchange_number() == options_.exchanges());
  }
  /// The first row of the data that the next training step takes.
  int64_t row() const { return first_row_ + (position_.step - block_begin_) * block_rows_; }
  /// Its rows. They change in a replay.
  int64_t rows() const { return block_rows_; }
  /// A training step was made.
  void made();
  const RunPosition& position() const { return position_; }
  /// Bytes that this process has sent to other replicas, and the training steps that it has made.
  int64_t sent() const { return sent_; }
  int64_t steps() const { return steps_; }

 private:
  using Average = std::shared_future<std::vector<float>>;
  // An exchange that has begun.
  struct Flight {
    int64_t weight = 0;
    std::vector<std::vector<float>> d;  // index: rank of this process
    bool under_way = false;
    std::vector<float> whole;       // if the meshes differ: the leader's whole fragment, while it is under way
    std::vector<Average> averages;  // index: rank of this process; one if the leader exchanges
  };
  // A replica of a replay.
  struct Member {
    int64_t incarnation = 0, since = 0;
    std::vector<Tensor> values;
    std::deque<Flight> flights;
  };
  int64_t exchange_number() const { return group_ / 2; }
  bool begins_block() const { return group_ % 2 == 0; }  // the next step of the group decides on training steps
  World* prepare();
  CellShards bind(bool made);
  int64_t rows_of(const control::ViewMember& member) const;
  void begin_block(const control::ReplicaView& view, size_t place);
  int64_t after_blocks(const control::ReplicaView& view, size_t count, int64_t begin) const;
  void take_gradients();
  void start_exchanges();
  void drop_averages();
  std::vector<std::vector<float>> finish_exchange(bool& good);
  void committed(int64_t view);
  void keep(const std::string& name, int64_t incarnation);
  Member& member_of(const control::ReplicaView& view, const std::string& name);
  void join(const control::ReplicaView& view);
  void replay_block();
  void replay_exchange();
  std::vector<Tensor> values_now();
  void set_values(const std::vector<Tensor>& values);

  const OuterOptions options_;
  const DilocoStep step_;
  const int64_t rows_;
  RunPosition position_;
  ReplicaRun* run_ = nullptr;
  std::shared_ptr<const Replay> replay_;
  OuterState outer_;
  std::unique_ptr<World> alone_;  // if the step runs on one device
  std::vector<int> ranks_;        // the ranks of this process
  int64_t group_ = 0;             // the next step of the group
  int64_t block_begin_ = 0;       // training steps before the present ones of this replica
  int64_t first_row_ = 0;         // their first row
  int64_t block_rows_ = 0;        // the rows of each
  int64_t since_ = 0;             // the training steps before this replica healed
  std::deque<Flight> flights_;    // from exchange_number() on
  std::atomic<int64_t> sent_{0};
  int64_t steps_ = 0;
  std::map<std::string, Member> members_;  // replicas of a replay, by name
  std::vector<std::string> active_;        // the replicas that make the present training steps of a replay
};

}  // namespace weft::dist
