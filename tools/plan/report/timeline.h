// The timelines of a step by the best plan and by four kinds of parallelism, as a picture and as a page.
#pragma once
#include "tools/plan/step_cost.h"

namespace weft::planner {

/// Compute and collectives of a step of a few layers by the best plan, DDP, ZeRO-1, ZeRO-3 and tp, on the GPUs of the
/// workload, with a sequence for each GPU. The best plan is the fastest that fits, with one microbatch and without pp.
/// Plans that fit are drawn first, the fastest first. Exposed communication is shaded. Every bar has a title with its
/// name, its start, its length and, for collectives, the bytes of the larger of operand and result.
std::string timeline_svg(const Workload& workload);
/// The picture as a page of HTML that needs no network, with a table of each step's parts. A bar shows its title while
/// the pointer is on it.
std::string timeline_page(const Workload& workload);

}  // namespace weft::planner
