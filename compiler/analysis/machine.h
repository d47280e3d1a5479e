// The rates of a machine, in one type: assumed where plans must not depend on what was measured, measured where times
// are told.
#pragma once
#include <cstdint>

namespace weft {

/// What a machine does in a second; operations of products (matrix units) and of everything else have their own rates.
struct Machine {
  double bytes = 0;       // memory traffic, read plus written
  double flops = 0;       // elementwise operations
  double products = 0;    // operations of matrix products: 2 m n k of each
  double products16 = 0;  // the same of 16-bit operands
  double products_of(int64_t itemsize) const { return itemsize <= 2 ? products16 : products; }
};

/// What plans are made for: the same on every machine, so that a step computes the same everywhere. Only ratios matter,
/// and only coarsely.
inline constexpr Machine kPlannedMachine{.bytes = 20e9, .flops = 120e9, .products = 350e9, .products16 = 1500e9};

}  // namespace weft
