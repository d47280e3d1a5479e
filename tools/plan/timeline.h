// A step in time by four ways of data and tensor parallelism, as a picture and as a page.
#pragma once
#include "tools/plan/step_cost.h"

namespace weft::planner {

/// Compute and collectives of a step of a few layers by DDP, ZeRO-1, ZeRO-3 and tp, on the GPUs of the workload, with a
/// sequence for each GPU. Communication that nothing hides is shaded. Every bar has a title with its name, its start,
/// its length and, of collectives, the bytes of the larger of operand and result.
std::string timeline_svg(const Workload& workload);
/// The same as a page of HTML that needs no network: with a table of the parts of each step, and the titles as soon as
/// the pointer is on a bar.
std::string timeline_page(const Workload& workload);

}  // namespace weft::planner
