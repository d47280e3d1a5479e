// Finds trainable parameters that a training step reads but does not train, as when a module was not registered.
#pragma once
#include <string>

#include "framework/ir/graph.h"

namespace weft::internal {

/// One sentence that names the trainable parameters which a captured step reads but neither differentiates by nor
/// writes, with the line that reads each. Empty if there are none, and for a step without gradients of parameters.
std::string untrained_parameters(const Graph& captured);

}  // namespace weft::internal
