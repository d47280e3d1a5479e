// Simulates the steps of a reshard on the parts of all ranks, one rank after another in this thread.
#pragma once
#include <vector>

#include "distributed/propagate/reshard.h"

namespace weft::testing {

/// "all-gather".
const char* to_string(dist::Move m);

/// The parts of all ranks after the stages; WEFT_CHECKs that each step fits the parts.
std::vector<Tensor> simulate(const dist::Mesh& mesh, const std::vector<dist::ReshardStage>& stages,
                             std::vector<Tensor> parts);

}  // namespace weft::testing
