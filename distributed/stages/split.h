// The graphs of each rank of a pipeline: the graph of one microbatch, divided by rank, stage and action.
//
// A rank runs `before` once, then the actions of its table, then `after` level by level. Ranks exchange values between
// two actions (crossings(), cut.h) and between two levels. The update, which follows from all microbatches, runs on the
// rank that has the gradients. Small values that follow from gradients of several ranks, such as the norm of all
// gradients, are computed on each rank that needs them, from the same operands in the order of one device.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "distributed/stages/cut.h"
#include "distributed/stages/microbatch.h"

namespace weft::dist {

/// A graph whose operands and results are values of the graph of one microbatch. In a part, the result of a
/// microbatch_sum is the running sum: an operand and a result of each action that adds to it.
struct GraphPart {
  Ref<Graph> graph;              // a joint graph
  std::vector<Value> in, out;    // values by operand and by result
  std::vector<int32_t> adds_to;  // operand -> the result that replaces it, a sum; -1: none
  std::vector<int32_t> results;  // result -> number of the step's result, or -1

  /// Whether the part has no work.
  bool empty() const { return !graph || (graph->outputs.empty() && graph->writes.empty()); }
};

struct RankParts {
  GraphPart before;  // slices of the batch, zeros of sums, values that no microbatch changes
  std::map<std::pair<int, pipeline::ActionKind>, GraphPart> actions;  // key: stage and F, I, W or B
  std::vector<GraphPart> after;                                       // index: level
};

/// A value that one rank sends to another once per step.
struct Hop {
  Value value;
  int from = 0, to = 0;
  friend auto operator<=>(const Hop&, const Hop&) = default;
};

struct StepSplit {
  std::vector<RankParts> ranks;
  std::vector<std::vector<Hop>> hops;    // level -> the hops between after[level] and after[level + 1]
  int commit_level = -1;                 // the first level at which a rank writes a cell; -1: none does
  std::vector<std::vector<bool>> cells;  // rank -> the cells that it has; each cell is on one or more ranks
};

struct SplitCall {
  const Graph& joint;            // the graph of the whole step, from which the batch comes
  const Microbatch& microbatch;  // arguments, count and sources
  const Graph& graph;            // microbatch.graph, or its part on one rank of the other mesh dimensions
  const StageCut& cut;           // cut of `graph`
  const pipeline::Table& table;
  bool gather_once = false;  // parameters are gathered once per step instead of in each action that reads them
};

/// Rank 0 has the results of the step; the other ranks have none. Throws InvalidArgument if the table adds the
/// gradients of a stage in an order other than the order of the microbatches.
StepSplit split_step(const SplitCall& call);

}  // namespace weft::dist
