// What this machine allows: the bounds of benchmarks.
#pragma once
#include "compiler/cost/machine.h"

namespace weft::bench {

/// bytes (a copy), products and products16 (large, of matrices of 1.0), with all threads: the bounds; kNone where not
/// measured. Takes a few seconds (tools/measure.h).
Machine measure_machine();

}  // namespace weft::bench
