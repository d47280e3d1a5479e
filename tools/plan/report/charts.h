// Pictures of the limits of a step: over the number of GPUs, and by the size of collectives.
#pragma once
#include "tools/plan/step_cost.h"

namespace weft::planner {

/// Compute and fully sharded communication of a step over the number of GPUs, with both limits (advice.h).
std::string curve_svg(const Workload& workload);
/// Bus bandwidth of all-reduces and all-to-alls by size, over 1 to 32 whole nodes, with the measured points.
std::string collectives_svg(const Machine& machine);

}  // namespace weft::planner
