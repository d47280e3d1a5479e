// The collectives of a local graph, numbered by their attribute `site`. By it the facts that emission knows about each
// one (the value, the reason) are found again after passes have moved or dropped nodes.
#pragma once
#include "distributed/overlap/arrange.h"
#include "distributed/propagate/emit.h"

namespace weft::dist {

/// The collectives of `g` in its order. Kind, axes, type and bytes are those of the node. The rest comes from the row
/// of `known` with the same site, or from the node if there is no such row.
std::vector<PlannedCollective> collectives_in(const Graph& g, const std::vector<PlannedCollective>& known);

/// Adds the result of the arrangement: the work that hides each collective, and how many share its bucket.
void add_arrangement(const CommunicationReport& report, std::vector<PlannedCollective>& collectives);

}  // namespace weft::dist
