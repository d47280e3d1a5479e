// The shards of a cell without a value: each rank makes its own part with the cell's initialiser.
#pragma once
#include "distributed/placement/spec.h"
#include "framework/ir/graph.h"

namespace weft::dist {

/// The part that `rank` of `mesh` has of the result of `init`, an initialiser (Cell::init), with the bits of the whole.
/// Random numbers, and elementwise results of them, are made for this part alone; a value that needs the whole (a
/// product of random matrices) is made whole and sliced.
Tensor initial_shard(const Mesh& mesh, const Spec& spec, const Graph& init, int rank);

}  // namespace weft::dist
