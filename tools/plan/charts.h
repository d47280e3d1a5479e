// Pictures of what limits a step: over the number of GPUs, by the size of collectives, and in time.
#pragma once
#include "tools/plan/step_cost.h"

namespace weft::planner {

/// Compute and fully sharded communication of a step over the number of GPUs, with both limits (advice.h).
std::string curve_svg(const Workload& workload);
/// Bus bandwidth of all-reduces and all-to-alls by size, over 1 to 32 whole nodes, with the measured points.
std::string collectives_svg(const Machine& machine);
/// Compute and collectives of a step of a few layers by DDP, ZeRO-1, ZeRO-3 and tp, on the GPUs of the workload.
std::string timeline_svg(const Workload& workload);

}  // namespace weft::planner
