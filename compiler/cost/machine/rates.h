// The rates of this machine's devices: the one source for reports, MFU, benchmarks and the doctor.
#pragma once
#include <cstdint>
#include <optional>

#include "compiler/cost/machine/machine.h"

namespace weft {

/// Measures memory by working set, products of f32 and 16-bit operands, and the time that a launch adds, with the
/// threads of the current pool in about 0.3 s. An elementwise operation takes as long as a multiply-add, which is two
/// operations of a product. The best of `repetitions` counts.
Machine measured_cpu(int repetitions = 4);
/// Operations per second of a product [m, k] x [k, n] of f32 or bf16.
double gemm_rate(DType t, int64_t m, int64_t n, int64_t k, int repetitions = 4);
/// The rate of the products of a linear layer with `side` inputs and 2 `side` outputs, as a share of the rate of large
/// products, for sides from 16 to 512. The seconds that a launch adds are left out.
std::vector<ProductShare> measured_product_shares(double launch, int repetitions = 4);
/// The faster of two measurements, rate by rate: only other processes slow one down. Throws InvalidArgument if they
/// have rates of different working sets.
Machine faster_of(Machine a, const Machine& b);

/// The full rates, with `reached` 1 and no shares of small products. A CPU's rates come from the file that WEFT_MACHINE
/// names; without one, they are the kept rates (kept_rates.h) of all threads of the pool of the process's first call,
/// which measures and keeps them if there are none, or only disturbed ones. A GPU's rates are the peak rates of its
/// clocks and multiprocessors.
Machine rates_of(Device device);
/// The rates that a process alone on this machine gets from rates_of(); nothing if it would have to measure them.
std::optional<Machine> known_rates(Device device);
/// The threads of a process that is alone on this machine: WEFT_THREADS, or all cores.
int threads_alone();

}  // namespace weft
