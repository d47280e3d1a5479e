// Products take what is computed elementwise from their result (bias, activation, residual, the optimiser's update of a
// weight) while the tile is hot, where that saves more than leaving it in the group it stands in.
#pragma once
#include "compiler/passes/fuse_partition.h"

namespace weft::fusion {

/// Run after join_all().
void join_epilogues(Partition& p);

}  // namespace weft::fusion
