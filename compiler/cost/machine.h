// The rates of a machine, in one type: assumed where plans must not depend on what was measured, measured where times
// are told.
#pragma once
#include <cstdint>

#include "framework/tensor/device.h"

namespace weft {

/// What a machine does in a second; operations of products (matrix units) and of everything else have their own rates.
struct Machine {
  double bytes = 0;       // memory traffic, read plus written
  double flops = 0;       // elementwise operations
  double products = 0;    // operations of matrix products: 2 m n k of each
  double products16 = 0;  // the same of 16-bit operands
  double launch = 0;      // seconds that a kernel of its own takes at least
  double products_of(int64_t itemsize) const { return itemsize <= 2 ? products16 : products; }
};

/// What plans for the CPU are made for: the same on every machine, so that a step computes the same everywhere. Only
/// ratios matter, and only coarsely.
inline constexpr Machine kPlannedMachine{.bytes = 20e9, .flops = 120e9, .products = 350e9, .products16 = 1500e9};
/// The same for GPUs: an H100 SXM's data sheet (dense bf16 989 TFLOP/s, f32 67 outside of tensor cores, HBM3 3.35
/// TB/s), and a kernel of a replayed graph. An H200 has 1.4 times the memory traffic (4.8 TB/s), an A100 the same
/// ratios within 1.9: neither plan would differ by more than a value here and there.
inline constexpr Machine kPlannedGpu{
    .bytes = 3.35e12, .flops = 67e12, .products = 67e12, .products16 = 989e12, .launch = 2e-6};

/// What plans for this kind of device are made for.
constexpr const Machine& planned_machine(DeviceType t) {
  return t == DeviceType::kCuda ? kPlannedGpu : kPlannedMachine;
}

}  // namespace weft
