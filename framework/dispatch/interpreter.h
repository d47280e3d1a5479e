// The graph interpreter: runs a graph node by node through dispatch. It is the reference for everything compiled. Under
// capture it inlines one graph into another.
#pragma once
#include "framework/base/function_ref.h"
#include "framework/ir/graph.h"

namespace weft {

/// The outputs of the graph for these arguments (eager or traced). Cells are read now and written at the end.
std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> args);

namespace internal {

/// The values that a graph returns and writes.
struct Evaluation {
  std::vector<Tensor> outputs;
  std::vector<Tensor> writes;  // one per graph.writes
};

/// Sets the results of node `id` for these operands. Results of arguments, cells and captured tensors are set already.
/// The result false ends the evaluation.
using NodeEvaluator = FunctionRef<bool(int32_t id, std::span<const Tensor> in, std::vector<Tensor>& out)>;

/// Evaluates the nodes in order and releases each value after its last use. Cells are read and left alone. The result
/// is empty if `run` ended the evaluation.
Evaluation evaluate_nodes(const Graph& g, std::span<const Tensor> args, NodeEvaluator run);

}  // namespace internal
}  // namespace weft
