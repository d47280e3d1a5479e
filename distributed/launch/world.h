// World: the ranks of a mesh as threads of this process. Each rank has a driver thread that lives as long as the world
// and sleeps between calls, a slice of the machine's cores, its RankContext and its device, whose allocator counts its
// memory apart. Only driver threads wait for one another.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "framework/dispatch/rank.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

struct WorldOptions {
  int threads = 0;                                              // for all ranks together; 0: one for each core
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  // how long a collective waits for its peers
  bool record = false;                                          // keep a CollectiveRecord of each collective
};

class World {
 public:
  explicit World(Mesh mesh, WorldOptions options = {});
  ~World();
  World(const World&) = delete;

  const Mesh& mesh() const;
  int size() const { return mesh().size(); }
  /// fn(rank) on every rank at once; returns when all have returned. If any throws, all collectives are aborted, so
  /// that none waits for it, and the first error is thrown again as "rank 3: ..."; the world can be used again then.
  /// Throws FailedPrecondition if called while it runs.
  void run(const std::function<void(int rank)>& fn);
  /// The context of a rank, for its statistics; not while run() is under way.
  RankContext& rank(int rank);
  /// Forgets the statistics of all ranks.
  void clear_statistics();
  /// Whether collectives are recorded from now on.
  void record(bool on);
  /// By collective and axes: count, bytes and waiting time of the average rank, as a table.
  std::string statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// World(mesh).run(fn): a program written by hand for each rank.
void run(const Mesh& mesh, const std::function<void(int rank)>& fn, WorldOptions options = {});

}  // namespace weft::dist
