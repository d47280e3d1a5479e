// Finds trainable parameters that a training step uses but does not train, as when a module was not registered.
#pragma once
#include <string>

#include "framework/ir/graph.h"

namespace weft::internal {

/// One sentence that names the trainable parameters without training in a captured step: the step takes no gradient of
/// them and does not write them, although the derivative of one of its losses reaches them. It gives the line and the
/// layer that read each parameter. Parameters that something else trains are left out: an optimiser has them, or grad()
/// was called for them. Empty if there are none.
std::string untrained_parameters(const Graph& captured);

}  // namespace weft::internal
