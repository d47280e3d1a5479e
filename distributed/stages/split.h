// What each rank of a pipeline computes: the graph of one microbatch, taken apart by ranks, stages and actions.
//
// A rank runs `before` once, then the actions of its table, then `after` level by level. Values go from one rank to
// another between two actions (crossings(), cut.h) and between two levels. What follows from all microbatches, the
// update, runs on the rank that has the gradients. Small values that follow from gradients of several ranks, as the
// norm of all gradients, are computed on each of these ranks, from the same operands in the order of one device.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "distributed/stages/cut.h"
#include "distributed/stages/microbatch.h"

namespace weft::dist {

/// A graph whose operands and results are values of the graph of one microbatch. The result of a microbatch_sum is
/// there the sum so far: an operand and a result of the actions that add to it.
struct Part {
  Ref<Graph> graph;              // a joint graph
  std::vector<Value> in, out;    // by operand and result
  std::vector<int32_t> adds_to;  // by operand: the result that takes its place, a sum; -1: none
  std::vector<int32_t> results;  // by result: the number of the step's result, or -1

  /// Whether there is nothing to run.
  bool empty() const { return !graph || (graph->outputs.empty() && graph->writes.empty()); }
};

struct RankParts {
  Part before;  // slices of the batch, zeros of sums, values that no microbatch changes
  std::map<std::pair<int, pipeline::Kind>, Part> actions;  // by stage and F, I, W or B
  std::vector<Part> after;                                 // by level
};

/// A value that one rank sends to another once a step.
struct Hop {
  Value value;
  int from = 0, to = 0;
  friend auto operator<=>(const Hop&, const Hop&) = default;
};

struct StepSplit {
  std::vector<RankParts> ranks;
  std::vector<std::vector<Hop>> hops;    // by level: those between after[level] and after[level + 1]
  int commit_level = -1;                 // the first level at which a rank writes a cell; -1: none does
  std::vector<std::vector<bool>> cells;  // by rank: the cells that it has; each is on one or more
};

struct SplitCall {
  const Graph& joint;            // where the batch comes from
  const Microbatch& microbatch;  // arguments, count and sources
  const Graph& graph;            // microbatch.graph, or what one rank of the other mesh dimensions computes of it
  const StageCut& cut;           // of `graph`
  const pipeline::Table& table;
  bool gather_once = false;  // parameters are gathered once a step, not in each action that reads them
};

/// The results of the step are those of rank 0; the other ranks have none. Throws InvalidArgument if the table adds
/// the gradients of a stage in another order than that of the microbatches.
StepSplit split_step(const SplitCall& call);

}  // namespace weft::dist
