// A run with --diloco: its flags, its replica and its messages (distributed/diloco).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "distributed/diloco/diloco_replica.h"
#include "distributed/replica/replay.h"
#include "distributed/replica/replica_run.h"
#include "framework/cli/cli.h"
#include "models/train/options.h"

namespace weft::train {

/// --diloco and the flags that begin with outer_.
Flags diloco_flags(TrainOptions& options);
/// Restarts for replicas with --diloco that this process starts, if none are given: they need a launcher of their own.
void restart_diloco(TrainOptions& options);
/// Sets Setup::outer. Throws UsageError for flags that do not fit.
void settle_diloco(Setup& setup, const TrainOptions& options);
/// The line before the first step: the bytes by the closed form, and --outer_rows.
std::string diloco_text(const Setup& setup, const TrainOptions& options, int64_t parameters);

/// The replica of a trainer with --diloco. Exchanges give the state of the trainer their position in the data.
class DilocoRun final : public dist::DilocoReplica {
 public:
  /// `exchanged`: the state of a replica without --diloco. `state`: the state of the trainer; it outlives this.
  /// prepare() makes the training step ready. make(step, row, rows) makes a step of another one in a replay.
  DilocoRun(const Setup& setup, const TrainOptions& options, const dist::ReplicaState& exchanged,
            std::function<void()> prepare, std::function<void(int64_t step, int64_t row, int64_t rows)> make,
            TrainState& state);
  /// Begins at the position of the state.
  void begin(dist::ReplicaRun* run, std::shared_ptr<const dist::Replay> replay);
  /// Makes the next step of the group of replicas. Returns whether it is a committed exchange.
  bool exchange();
  /// The line after the last step: the bytes that this replica has sent, and its utilisation, the share of the time
  /// since the first block in which it did not wait for an exchange. A collective of its processes.
  std::string end_text() const;

 private:
  TrainState& state_;
  int64_t first_ = 0, waited_ = 0;  // now_ns() after the decision on the first block; nanoseconds
};

}  // namespace weft::train
