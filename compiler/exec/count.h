// Counting of the work that depends on values: masks, lengths of caches, rows of groups.
#pragma once
#include <optional>

#include "compiler/exec/plan.h"

namespace weft::internal {

/// The work of a launch by the values of its operands, which are on `device`; none where the plan is exact (its cost is
/// not `at_most`) or the op cannot count (a loop). To be called before the launch runs: its results may overwrite its
/// operands. Throws what the op throws for these values (a mask that reads beyond its table).
std::optional<Cost> count_work(const Launch& launch, const Graph& g, std::span<const StridedView> in, Target& target,
                               Device device);

}  // namespace weft::internal
