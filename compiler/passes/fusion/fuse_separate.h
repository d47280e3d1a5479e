// Which launches are not one kernel, and the traffic that this costs.
#pragma once
#include "compiler/passes/fusion/fuse_graph.h"
#include "compiler/passes/fusion/fuse_report.h"

namespace weft::fusion {

/// Fills in `r.separate` from its groups and `r.refused`.
void list_separate(const FusionGraph& g, FusionReport& r);

}  // namespace weft::fusion
