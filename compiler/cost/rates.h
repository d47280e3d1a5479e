// How fast a device copies memory and multiplies matrices: what a report's predicted times are made of.
#pragma once
#include "compiler/cost/machine.h"

namespace weft::internal {

/// bytes, products and products16. Of the CPU with all threads of the pool: measured once, in about 30 ms, at the first
/// call in a process. Of a GPU the peak rates that its clocks and multiprocessors give.
Machine rates_of(Device device);

}  // namespace weft::internal
