// The rates of the device at hand: the one source for reports, MFU, benchmarks and the doctor.
#pragma once
#include <cstdint>

#include "compiler/cost/machine.h"

namespace weft {

/// Memory by working set, products of f32 and 16-bit operands, elementwise operations, and what a launch adds, measured
/// with the threads of the current pool in about 0.3 s. One elementwise operation takes the place of one multiply-add,
/// of which products count both operations. The best of `repetitions` counts.
Machine measured_cpu(int repetitions = 4);
/// Operations per second of a product [m, k] x [k, n] of f32 or bf16.
double gemm_rate(DType t, int64_t m, int64_t n, int64_t k, int repetitions = 4);
/// What the products of a linear layer with `side` inputs and twice as many outputs reach of the rate of large ones, by
/// sides from 16 to 512; without the seconds that a launch adds.
std::vector<ProductShare> measured_product_shares(double launch, int repetitions = 4);
/// The faster of two measurements, rate by rate: what slowed one of them down was another process. Throws
/// InvalidArgument if they have rates of different working sets.
Machine faster_of(Machine a, const Machine& b);

/// The rates themselves, with `reached` 1 and no shares of small products. The CPU's: those of the file that
/// WEFT_MACHINE names, else measured once per process with all threads of the pool of the first call. A GPU's: its peak
/// rates as its clocks and multiprocessors give them.
Machine rates_of(Device device);

}  // namespace weft
