// The rates of the device at hand: the one source for reports, MFU, benchmarks and the doctor.
#pragma once
#include "compiler/cost/machine.h"

namespace weft {

/// Copy rate, products of f32 and 16-bit operands and elementwise operations, measured with the threads of the current
/// pool in about 0.2 s. One elementwise operation takes the place of one multiply-add, of which products count both
/// operations.
Machine measured_cpu();

/// The CPU's, measured once per process with all threads of the pool of the first call; a GPU's peak rates as its
/// clocks and multiprocessors give them.
Machine rates_of(Device device);

}  // namespace weft
