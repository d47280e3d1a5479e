// The shards of a cell that has no value yet: each rank makes its own part by the cell's initialiser.
#pragma once
#include "distributed/placement/spec.h"
#include "framework/ir/graph.h"

namespace weft::dist {

/// The part that `rank` of `mesh` has of the result of `init`, an initialiser (Cell::init), with the bits of the whole.
/// Random numbers and what is computed from them point by point are made for this part alone; what needs the whole
/// (a product of random matrices) is made whole and cut.
Tensor initial_shard(const Mesh& mesh, const Spec& spec, const Graph& init, int rank);

}  // namespace weft::dist
