// Whether a table of actions can run, before anything is allocated for it.
#pragma once
#include <vector>

#include "distributed/pipeline/index.h"
#include "distributed/pipeline/table.h"

namespace weft::dist::pipeline {

/// The result of check(). Keeps references to the table and the links.
struct Checked {
  ActionIndex index;
  std::vector<int> order;  // the numbers of all actions, in an order in which they can run
  std::vector<int> alive;  // rank -> the most microbatches of its stages between their F and their W or B
};

/// Throws InvalidArgument, naming the rank and the action, if an action is missing, doubled or on a wrong rank; if it
/// precedes an action of its own rank that it awaits; if it computes with weights that are not gathered; if a gradient
/// misses the REDUCE of its stage; and if ranks wait for each other in a cycle. The time is linear in the number of
/// actions.
Checked check(const Table& table, const StageLinks& links);

}  // namespace weft::dist::pipeline
