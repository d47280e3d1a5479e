// The collectives of a local graph as they are in it: numbered by their attribute `site`, so that what emission knows
// of each (whose value, why) is found again after passes have moved or dropped nodes.
#pragma once
#include "distributed/overlap/arrange.h"
#include "distributed/propagate/emit.h"

namespace weft::dist {

/// The collectives of `g` in its order, with kind, axes, type and bytes of the node itself, and the rest from the row
/// of `known` with the same site; without one, from the node.
std::vector<PlannedCollective> collectives_in(const Graph& g, const std::vector<PlannedCollective>& known);

/// What became of them: what hides each, and who shares a bucket with the first of it.
void tell_arranged(const CommunicationReport& report, std::vector<PlannedCollective>& collectives);

}  // namespace weft::dist
