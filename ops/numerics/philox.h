// Weft's use of Philox: key = seed, counter = {block low, block high, op id, step low}. Element i of a random op is
// word i % 4 of block i / 4, where i is its position in the whole tensor.
#pragma once
#include <cstdint>

namespace weft {
namespace internal {
#define W_FN inline
#include "ops/numerics/philox.inc"
#undef W_FN
}  // namespace internal

inline void philox4x32(uint64_t seed, uint64_t block, uint32_t op_id, uint32_t step, uint32_t words[4]) {
  internal::w_philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(block),
                     static_cast<uint32_t>(block >> 32), op_id, step, words);
}

}  // namespace weft
