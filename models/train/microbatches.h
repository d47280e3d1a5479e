// --microbatches, --pipeline and --stages of programs that run the training step of a model.
#pragma once
#include <cstdint>

#include "framework/mesh/mesh.h"
#include "framework/mesh/plan.h"

namespace weft::train {

/// The number of microbatches of a batch: `asked`, or if it is 0, dist::default_microbatches(). Makes the path of a
/// table in `plan` absolute. Throws UsageError, naming the flags, for a number that the batch, the mesh or the schedule
/// does not allow.
int64_t settle_microbatches(const dist::Mesh& mesh, dist::Plan& plan, int64_t batch, int64_t asked);

}  // namespace weft::train
