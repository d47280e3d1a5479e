// What is known of an integer or boolean value over many points: an interval, a congruence and known bits (Granger
// 1989, Miné 2012). Every rule is sound: the values that the op can take lie in what it returns.
#pragma once
#include <cstdint>

#include "framework/tensor/dtype.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {

/// All values v with lo <= v <= hi, v = rem (mod step), and the bits of `known` as in `bits` (two's complement, 64
/// wide). step 0: the one value lo = hi = rem; step 1: nothing known. Booleans are 0 and 1.
struct MaskRange {
  int64_t lo = 0, hi = 0;
  int64_t step = 0, rem = 0;
  uint64_t known = 0, bits = 0;  // beyond what the interval's common leading bits tell

  bool constant() const { return lo == hi; }
  bool contains(int64_t v) const;
  /// What is known of bits, the interval and the congruence included.
  void all_bits(uint64_t* known_bits, uint64_t* values) const;

  static MaskRange of(int64_t v) { return {v, v, 0, v, 0, 0}; }
  static MaskRange between(int64_t lo, int64_t hi) { return lo == hi ? of(lo) : MaskRange{lo, hi, 1, 0, 0, 0}; }
  /// Any value of the dtype (for floats nothing that may be used).
  static MaskRange any(DType dtype);
  static MaskRange boolean(bool may_be_false, bool may_be_true) { return between(!may_be_false, may_be_true); }
};

/// The range of op(args...) where the operands are of in_dtype and the result of dtype. `same`: args 0 and 1 are one
/// value.
MaskRange range_of(kernels::Pw op, DType in_dtype, DType dtype, const MaskRange* const* args, bool same);
/// The range of a value converted.
MaskRange range_of_cast(DType from, DType to, const MaskRange& x);
/// The values of either.
MaskRange range_join(const MaskRange& a, const MaskRange& b);

}  // namespace weft::internal
