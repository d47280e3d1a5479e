// How fast this machine copies memory and multiplies matrices: what a report's predicted times are made of.
#pragma once
#include "compiler/analysis/machine.h"

namespace weft::internal {

/// bytes, products and products16, with all threads of the pool. Measured once, in about 30 ms, at the first call in a
/// process.
const Machine& this_machine();

}  // namespace weft::internal
