// Finds trainable parameters that a training step uses but does not train, as when a module was not registered.
#pragma once
#include <string>

#include "framework/ir/graph.h"

namespace weft::internal {

/// One sentence that names the trainable parameters which a captured step neither differentiates by nor writes,
/// although the derivative of one of its losses reaches them, with the line and the layer that read each. Without those
/// that something else trains: an optimiser has them, or grad() was called for them. Empty if there are none.
std::string untrained_parameters(const Graph& captured);

}  // namespace weft::internal
