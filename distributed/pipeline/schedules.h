// The published pipeline schedules as action tables. A table follows from the name and three numbers; times do not
// change it. Every stage accumulates its weight gradients in the order of the microbatches, so that all schedules give
// the same sums.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

struct ScheduleOptions {
  int ranks = 1;
  int stages_per_rank = 0;  // 0: the schedule's least, 2 for interleaved_1f1b, zb_v and dualpipe_v, else 1
  int microbatches = 1;
  /// dualpipe_v: joins each F of the steady part with the adjacent B (Action::with_next), as published. This costs time
  /// unless the kernels of the two overlap.
  bool pairs = false;
};

/// gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_2p, zb_v, dualpipe_v.
const std::vector<std::string>& schedule_names();

/// interleaved_1f1b has stage s on rank s mod ranks; zb_v and dualpipe_v go down the ranks and up again. Throws
/// InvalidArgument on other names and on numbers that the schedule does not support.
Table make_schedule(std::string_view name, const ScheduleOptions& options);

}  // namespace weft::dist::pipeline
