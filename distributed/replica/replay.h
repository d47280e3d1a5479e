// Replay: the views of an elastic run, from the journal of its service. One process makes the run again, to the bit,
// with the replicas as threads: a view with m members is the mesh with m replicas. Steps that a later view cancelled
// are not made.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "distributed/replica/data_part.h"

namespace weft::dist {

/// How far a run is. A checkpoint keeps it.
struct RunPosition {
  int64_t step = 0;     // committed steps
  int64_t samples = 0;  // rows of the data that they took
  int64_t view = 0;     // the view of replicas that made the last step; 0: none
};

class Replay {
 public:
  /// The views that made the latest state of the journal `path`. Throws Error, naming the file, if it is no journal of
  /// replicas, or has no view.
  explicit Replay(const std::string& path);
  /// Throws FailedPrecondition if the views do not lead from the position from which the run starts, or if the elastic
  /// run had another value of one of `facts`. A part of the data has `rows` rows; 0: replicas have states of their own,
  /// so the run starts from the first one.
  void check(const RunPosition& from, int64_t rows,
             const std::vector<std::pair<std::string, std::string>>& facts) const;
  /// The replicas of the mesh of the elastic run.
  int64_t replicas() const { return replicas_; }
  /// All views; some have made no step.
  const std::vector<control::ReplicaView>& views() const { return all_; }
  /// The view that makes a step.
  const control::ReplicaView& view_at(int64_t step) const;
  /// All views in which replicas joined before a step: several, if the first ones made no step.
  std::vector<control::ReplicaView> views_from(int64_t step) const;
  /// The parts of the data that a step takes, with place 0.
  DataPart at(int64_t step) const { return part_at(history_, step, 0); }

 private:
  std::string path_;
  int64_t replicas_ = 0;
  std::vector<control::ReplicaView> history_, all_;  // all_: also views without steps
};

}  // namespace weft::dist
