// The time of collectives from the rates of a machine's links. It is the one cost of communication: placements,
// schedules and reports use it. Rates come from a preset or a file and are never measured here, so that every rank and
// every run makes the same plan.
#pragma once
#include "compiler/cost/machine/machine.h"
#include "framework/dispatch/rank/communicator.h"

namespace weft {

/// Bytes that cross a rank's link for each byte of the larger of operand and result: all-reduce 2 (n-1) / n;
/// all-gather, reduce-scatter and all-to-all (n-1) / n; others 1 (the bus bandwidth of nccl-tests).
double bus_factor(Collective kind, double ranks);
/// A pair of binary trees, each for half of the bytes (Sanders, Speck, Traff 2009): all-reduces of few bytes over many
/// ranks. Each step takes `hop` seconds; `bus`: bytes per second of a link.
double tree_seconds(double bytes, double ranks, double bus, double hop);

/// Bytes per second of a link for large messages, over ranks that are spread evenly over nodes.
double bus_bandwidth(Collective kind, int ranks, int nodes, const Machine& machine);
/// Seconds of a collective on an idle network, the faster of ring and tree; `bytes`: the larger of operand and result.
double collective_seconds(Collective kind, double bytes, int ranks, int nodes, const Machine& machine);

}  // namespace weft
