// Products whose lines of memory begin at multiples of 16 bytes but do not end there, such as products with a
// vocabulary of 50257. cuBLASLt has only slow kernels for them: 13.2 ms where the aligned product takes 1.9 (GPT-2's
// head in bf16, 16384 tokens, H100).
#pragma once
#include <optional>

#include "framework/cuda/libraries/cublaslt.h"

namespace weft::cuda {

/// Two products in place of one. Offsets are in elements.
struct SplitProduct {
  MatmulShape first, second;      // in this order
  int64_t a = 0, b = 0, out = 0;  // where the operands and the result of the smaller part begin
  bool first_is_smaller = false;  // along k: the larger part then adds to the smaller one
};

/// The parts of a large product with a remainder of columns (n) or of terms (k), which is split off. Empty if the
/// product has fast kernels as it is, or none either way. The sum of the remaining terms (at most 7) is rounded to the
/// result's type before the others are added, where that is within the error of the whole sum.
std::optional<SplitProduct> split_product(const MatmulShape& s);

}  // namespace weft::cuda
