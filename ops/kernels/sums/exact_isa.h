// Functions that add rows of order-free sums (exact.h), per instruction set. Keep this small, as tables.h.
#pragma once
#include <cstdint>

namespace weft::kernels {

/// Adds the digits [first, first + count) of n <= 2^14 terms to `limbs`. Terms are a[i] b[i], or b[i] for rows without
/// products. They must be finite, of magnitude at most 2^(40 (first + count) - 150) and, if first > 0, multiples of
/// digit `first`.
using ExactRowFn = void (*)(const double* a, const double* b, int64_t n, int first, int64_t* limbs);

namespace baseline {
ExactRowFn exact_row(bool product, int count);
}
namespace avx2 {
ExactRowFn exact_row(bool product, int count);
}
namespace avx512 {
ExactRowFn exact_row(bool product, int count);
}

}  // namespace weft::kernels
