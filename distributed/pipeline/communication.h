// SEND and RECV for a table of computations.
#pragma once
#include "distributed/pipeline/simulate.h"
#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

/// The table with a SEND behind each action whose result another rank reads, and the RECV in the reader's list at the
/// same time: behind the actions that end before it. All transfers then have one order that every rank keeps, so that
/// no rank waits for another in a circle, even if a transfer blocks both its ranks until it ends. A RECV has started
/// when its SEND does, if the times are right. Throws as simulate() does, and on a table that has transfers.
Table add_communication(const Table& table, const Links& links, const Costs& costs);

}  // namespace weft::dist::pipeline
