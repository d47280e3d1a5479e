// Ranks of a benchmark in processes of this host.
#pragma once
#include <functional>
#include <string>

#include "tools/bench/report.h"

namespace weft::bench {

/// Runs `rank(folder, number, report)` for ranks 1 to ranks - 1 in child processes and for rank 0 in this one, whose
/// rows are reported. The folder is for their store and is removed afterwards.
void run_ranks(int ranks, Report& report,
               const std::function<void(const std::string& folder, int rank, Report& report)>& rank);

}  // namespace weft::bench
