// The step with one microbatch in place of the loop over all. Strategies place this graph on the other mesh dimensions;
// then it is cut into pipeline stages.
#pragma once
#include <vector>

#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft::dist {

/// (x) {index}: result `index` of the loop, the sum of x over all microbatches. A step adds the values of x in the
/// order of the microbatches, as the loop does.
extern const OpDef microbatch_sum_op;
inline bool is_microbatch_sum(const Node& n) { return n.op == &microbatch_sum_op; }

/// A joint graph with the body of the loop over microbatches in place of the loop.
struct Microbatch {
  Ref<Graph> graph;      // inputs: the step's inputs, then the slices of one microbatch, in the order of `sources`
  size_t arguments = 0;  // number of the step's inputs
  int64_t count = 0;     // number of microbatches
  std::vector<Value> sources;  // slice -> the stacked operand in the joint graph, [microbatches, ...]
};

/// Each value of one microbatch is computed once for each microbatch, each other value once for the step. The graph has
/// the results and cell writes of the step. Throws InvalidArgument if the step has no loop of accumulate(), or several,
/// or if the batch does not follow from the step's arguments alone.
Microbatch one_microbatch(const Graph& joint);

}  // namespace weft::dist
