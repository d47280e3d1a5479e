// Measures the share of a machine's rates that a training step reaches.
#pragma once
#include "compiler/cost/machine.h"

namespace weft::tools {

/// The time that plans predict for a step of a small transformer on `machine` over the time that it takes, at most 1:
/// plans expect it of other steps (Machine::reached).
double reached_share(const Machine& machine);

}  // namespace weft::tools
