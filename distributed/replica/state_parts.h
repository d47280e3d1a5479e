// The cells of a state as parts for heal(), on all ranks of a replica.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/world.h"
#include "distributed/replica/heal.h"
#include "framework/dispatch/parameter.h"

namespace weft::dist {

using NamedCells = std::vector<std::pair<std::string, CellHandle>>;

/// The values of cells on the ranks of this process. Cells that have no shards are whole on each rank.
class RankValues {
 public:
  RankValues(const NamedCells& cells, const CellShards& shards);
  size_t size() const { return cells_.size(); }
  const std::string& name(size_t cell) const { return cells_[cell].first; }
  const TensorType& type(size_t cell) const { return cells_[cell].second.type(); }
  /// Null: the cell has none.
  const Ref<ShardedCell>& shards(size_t cell) const { return shards_[cell]; }
  bool has(size_t cell, int rank) const { return !shards_[cell] || shards_[cell]->has_shard(rank); }
  /// The value of a cell on a rank, row-major; undefined if the rank has none.
  Tensor get(size_t cell, int rank) const;
  /// Replaces it. A holder of the earlier value keeps that value.
  void set(size_t cell, int rank, const Tensor& value) const;
  /// The whole value, on each process; set_whole() reads the value of the first process alone. Collectives.
  Tensor whole(size_t cell) const;
  void set_whole(size_t cell, const Tensor& value) const;
  /// If the cell has shards, they are its value from now on, also if this process has none.
  void use_shards(size_t cell) const;

 private:
  NamedCells cells_;
  std::vector<Ref<ShardedCell>> shards_;
};

/// The result of heal_cells() on a joiner. Empty on a donor.
struct HealedCells {
  std::string record;                // the donors' record
  std::function<void()> adopt = {};  // gives the cells the values of the donors, in this process
};

/// Gives the cells of this replica to the joiners of a view, or takes them. A collective of all ranks of all replicas:
/// each process of a replica calls it. `world` has the ranks of the replica, and `shards` are from shards_of() of the
/// step that follows: on donors with values, on joiners without. Cells that have no shards there are whole on each
/// rank. replicas(rank) is the communicator of equal ranks. heals[p], `record` and `from_first` are as for heal();
/// `place` is the place of this replica.
///
/// `whole`: the meshes of the replicas differ. Then whole cells go from the first process of the first donor to the
/// first processes of the joiners, which need memory for them.
///
/// No cell changes before adopt(), a collective of the processes of the replica: call it once the group counts the
/// replica as healed. Throws in all processes of the replica if one of its ranks fails.
HealedCells heal_cells(World& world, const NamedCells& cells, const CellShards& shards,
                       const std::function<Ref<Communicator>(int rank)>& replicas, const std::vector<bool>& heals,
                       int place, const std::string& record, Work::Deadline deadline, bool from_first = false,
                       bool whole = false);

}  // namespace weft::dist
