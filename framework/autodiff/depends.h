// The values that a loss depends on: a path of derivatives leads from the loss to them.
#pragma once
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/ir/graph.h"

namespace weft::internal {

/// For each node of a captured graph, whether the derivative of `loss` reaches it, past no detach() and no NoGrad.
std::vector<bool> reached_by_derivative(const Graph& g, Value loss);
/// Whether the derivative of the loss reaches a value of one of the parameters. True if this is unknown, as in a body
/// (checkpoint, custom_grad).
bool depends_on(const Tensor& loss, const std::vector<Parameter>& parameters);
/// Notes that an optimiser updates the parameter, or that grad() was called for it.
void mark_trained(const Parameter& p);
bool is_trained(const Cell& c);

}  // namespace weft::internal
