// World: the ranks of a mesh as threads of this process; in a job (processes.h), only this process's ranks. Each rank
// has a driver thread, a share of the machine's cores, a RankContext and a device whose allocator counts the rank's
// memory. Driver threads live as long as the world and sleep between calls. Only driver threads wait for each other.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/launch/replica_rank.h"
#include "framework/base/fair_mutex.h"
#include "framework/dispatch/rank/rank.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

struct WorldOptions {
  int threads = 0;  // total for all ranks; 0: one for each core
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);  // timeout of a wait for other ranks
  bool record = false;  // keep a CollectiveRecord of each collective
  /// The world is one of these replicas: `mesh` is the mesh without `replica`. They must live as long as the world.
  LiveReplicas* replicas = nullptr;
};

class World {
 public:
  explicit World(Mesh mesh, WorldOptions options = {});
  ~World();
  World(const World&) = delete;

  const Mesh& mesh() const;
  int size() const { return mesh().size(); }
  /// The ranks of this process.
  const std::vector<int>& local() const;
  /// Calls fn(rank) on all ranks of this process at the same time; returns when all have returned. If a rank throws,
  /// all collectives are aborted, so that no rank waits for it, and the first error is thrown as "rank 3: ...". The
  /// world can be used again afterwards. Throws FailedPrecondition if run() is in progress. Throws Uncommitted, and
  /// aborts nothing, if the replicas have not committed the step.
  void run(const std::function<void(int rank)>& fn);
  /// Creates the communicators of the ranks of this process along each of these mesh dimensions, in this order. All
  /// processes must call it with the same list, since they wait for each other. Other communicators are created at
  /// first use.
  void connect(const std::vector<std::string>& axes);
  /// Lets each rank make the part of another rank in later runs: it takes the place, coordinates and communicators, of
  /// the rank `by` positions further along mesh dimension `dim`, which wraps around. 0: all ranks are in their own
  /// places again. All processes call it, between runs.
  void take_places(const std::string& dim, int by);
  /// Steps on equal meshes share a world: each holds this during its whole call, so that one at a time runs.
  FairMutex& turn();
  /// The context of a rank of this process, for its statistics; not while run() is in progress.
  RankContext& rank(int rank);
  /// Its part in the steps on live replicas; null without them.
  ReplicaRank* replica_rank(int rank);
  /// Resets the statistics of all ranks.
  void clear_statistics();
  /// Turns the recording of collectives on or off.
  void record(bool on);
  /// A table by collective and axes of the average rank's counts, bytes and waiting times.
  std::string statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// World(mesh).run(fn): runs a hand-written program on each rank.
void run(const Mesh& mesh, const std::function<void(int rank)>& fn, WorldOptions options = {});

}  // namespace weft::dist
