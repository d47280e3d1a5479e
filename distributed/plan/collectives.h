// The collectives of a local graph, numbered by their attribute `site`. After passes move or drop nodes, the site
// identifies the record of emission about each collective: its value and reason.
#pragma once
#include "distributed/overlap/arrange.h"
#include "distributed/propagate/emit.h"

namespace weft::dist {

/// The collectives of `g` in its order. Kind, axes, type and bytes come from the node. The rest comes from the row of
/// `known` with the same site, or from the node if there is no such row.
std::vector<PlannedCollective> collectives_in(const Graph& g, const std::vector<PlannedCollective>& known);
/// The collectives of these nodes, in their order; a node may occur several times.
std::vector<PlannedCollective> collectives_in(const Graph& g, std::span<const int32_t> nodes,
                                              const std::vector<PlannedCollective>& known);

/// Adds the result of the arrangement: rows for the steps of rings, and for each collective the work that hides it and
/// the size of its bucket.
void add_arrangement(const CommunicationReport& report, std::vector<PlannedCollective>& collectives);

}  // namespace weft::dist
