// The cells of a state as parts for heal(), on all ranks of a replica.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/sharded_cell.h"
#include "distributed/launch/world.h"
#include "distributed/replica/heal.h"

namespace weft::dist {

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
/// No cell changes before adopt(). Call it in all processes of the replica, once the group counts the replica as
/// healed. Throws in all processes of the replica if one of its ranks fails.
HealedCells heal_cells(World& world, const std::vector<std::pair<std::string, CellHandle>>& cells,
                       const CellShards& shards, const std::function<Ref<Communicator>(int rank)>& replicas,
                       const std::vector<bool>& heals, int place, const std::string& record, Work::Deadline deadline,
                       bool from_first = false);

}  // namespace weft::dist
