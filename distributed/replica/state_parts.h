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

/// Heals the cells of this replica, or gives them to the joiners of a view. A collective of all ranks of all replicas:
/// each process of a replica calls it. `world` has the ranks of the replica, and `shards` are from shards_of() of the
/// step that follows: on donors with values, on joiners without. Cells that have no shards there are whole on each rank.
/// replicas(rank) is the communicator of equal ranks. `heals` and `record` are as for heal().
///
/// Returns the record of the donors on joiners, whose cells then have the values of the donors. On an error of any rank
/// of this replica, it throws in all processes of the replica, and all cells are as before.
std::string heal_cells(World& world, const std::vector<std::pair<std::string, CellHandle>>& cells,
                       const CellShards& shards, const std::function<Ref<Communicator>(int rank)>& replicas,
                       const std::vector<bool>& heals, const std::string& record, Work::Deadline deadline);

}  // namespace weft::dist
