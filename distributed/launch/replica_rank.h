// ReplicaRank: the part of a rank in the steps on live replicas (live_replicas.h): its sums over `replica`, and its
// vote. No error of another replica is an error of these collectives.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/live_replicas.h"
#include "framework/dispatch/rank/rank.h"

namespace weft::dist {

class ReplicaRank {
 public:
  /// `speaks`: the rank is the first one of its process.
  ReplicaRank(LiveReplicas& replicas, RankContext& rank, bool speaks);
  ~ReplicaRank();
  ReplicaRank(const ReplicaRank&) = delete;

  /// Begins a step. `open`: the sites of the collectives that the step starts before its vote and waits for after it.
  /// If the step is not committed, the rank waits for them in the vote, so that all communicators stay usable.
  void begin(std::vector<uint64_t> open);
  /// The communicator for sums over `replica`.
  Communicator& sums() { return *sums_; }
  /// The communicator of all ranks of the replica, `world`, whose barriers are votes.
  Ref<Communicator> votes(Ref<Communicator> world);
  /// Decides on an exception that an op has thrown before the vote; call it in the handler. True: the rank makes only
  /// its collectives until the vote, and the step is not committed, because the op may have got values of a failed sum.
  /// False: the rank has all sums, and its last step had an exception too, so the op throws by itself.
  bool holds();
  /// Whether a step was not committed since the last call.
  bool take_uncommitted() { return std::exchange(uncommitted_, false); }

 private:
  class Sums;
  class Sum;
  class Votes;
  class Vote;
  void fail(const std::string& cause);
  std::optional<Error> vote(Communicator& world, Work::Deadline deadline);

  LiveReplicas& replicas_;
  RankContext& rank_;
  const bool speaks_;
  const Ref<Communicator> sums_;
  Ref<Communicator> others_;  // the communicator of this view, since the first sum of the step
  std::vector<uint64_t> open_;
  bool has_sums_ = true;  // no sum of the step has failed
  bool threw_ = false;    // an op has thrown with all sums, and no step was committed since
  bool uncommitted_ = false;
};

}  // namespace weft::dist
