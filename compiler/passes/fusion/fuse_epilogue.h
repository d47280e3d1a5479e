// Products take over elementwise ops on their result (bias, activation, residual, the optimiser's update of a weight)
// while the tile is in cache, if that saves more bytes than leaving the ops in their group.
#pragma once
#include "compiler/passes/fusion/fuse_partition.h"

namespace weft::fusion {

/// Call it after join_all().
void join_epilogues(Partition& p);

}  // namespace weft::fusion
