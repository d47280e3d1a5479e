// How fast this machine copies memory and multiplies matrices: what a report's predicted times are made of.
#pragma once
#include "framework/tensor/dtype.h"

namespace weft::internal {

struct MachineRates {
  double copy = 0;  // bytes read plus bytes written, per microsecond, with all threads of the pool
  double f32 = 0;   // FLOPs per microsecond of a product of this dtype
  double bf16 = 0;
  /// Of a product whose operands are of this dtype.
  double flops(DType t) const { return t == kBFloat16 || t == kFloat16 ? bf16 : f32; }
};

/// Measured once, in about 30 ms, at the first call in a process.
const MachineRates& machine_rates();

}  // namespace weft::internal
