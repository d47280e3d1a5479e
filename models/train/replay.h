// Replay: the views of an elastic run, from the journal of its service. One process makes the run again, to the bit,
// with the replicas as threads: a view with m members is the mesh with m replicas. Steps that a later view cancelled
// are not made.
#pragma once
#include <string>
#include <vector>

#include "distributed/replica/data_part.h"
#include "framework/mesh/mesh.h"
#include "models/train/checkpoint.h"

namespace weft::train {

/// The mesh with `live` replicas in place of its own number.
dist::Mesh with_replicas(const dist::Mesh& mesh, int64_t live);

class Replay {
 public:
  /// The views that made the latest state of the journal `path`. Throws Error, naming the file, if it is no journal of
  /// replicas, or has no view.
  explicit Replay(const std::string& path);
  /// Throws FailedPrecondition if the views do not lead from `state`, with which the run starts, or if the elastic run
  /// had other `facts` (run_facts()). A part of the data has `rows` rows.
  void check(const TrainState& state, int64_t rows, const std::string& facts) const;
  /// The replicas of the mesh of the elastic run.
  int64_t replicas() const { return replicas_; }
  /// The parts of the data that a step takes, with place 0.
  dist::DataPart at(int64_t step) const { return dist::part_at(history_, step, 0); }

 private:
  std::string path_;
  int64_t replicas_ = 0;
  std::vector<control::ReplicaView> history_;
};

}  // namespace weft::train
