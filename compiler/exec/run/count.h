// Counting of the work that depends on values: masks, lengths of caches, rows of groups.
#pragma once
#include <optional>

#include "compiler/exec/plan/plan.h"

namespace weft::internal {

/// The work of a launch for the values of its operands, which are on `device`; none if the plan is exact (its cost is
/// not `at_most`) or the op cannot count (a loop). Call it before the launch runs, because the results may overwrite
/// the operands. Throws the op's error for these values (a mask that reads beyond its table).
std::optional<Cost> count_work(const Launch& launch, const Graph& g, std::span<const StridedView> in, Target& target,
                               Device device);

}  // namespace weft::internal
