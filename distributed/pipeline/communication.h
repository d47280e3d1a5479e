// SEND and RECV for a table of computations.
#pragma once
#include "distributed/pipeline/simulate.h"
#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

/// Adds a SEND after each action whose result another rank reads, and the RECV at the same time in the reader's list:
/// after the actions that end before it. All ranks keep one order of transfers, so ranks never wait in a cycle, even if
/// a transfer blocks both its ranks until it ends. If the costs are right, a RECV has started when its SEND starts.
/// Throws like simulate(), and on a table with transfers.
Table add_communication(const Table& table, const StageLinks& links, const ActionCosts& costs);

}  // namespace weft::dist::pipeline
