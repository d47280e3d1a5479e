// Facts about an integer or boolean value over many points: an interval, a congruence and known bits (Granger 1989,
// Miné 2012). Every rule is sound: the result contains all values that the op can produce.
#pragma once
#include <cstdint>

#include "framework/base/function_ref.h"
#include "framework/ir/graph.h"
#include "framework/tensor/dtype.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {

/// All values v with lo <= v <= hi, v = rem (mod step), and the bits in `known` equal to `bits` (two's complement, 64
/// wide). step 0: the single value lo = hi = rem; step 1: nothing known. Booleans are 0 and 1.
struct MaskRange {
  int64_t lo = 0, hi = 0;
  int64_t step = 0, rem = 0;
  uint64_t known = 0, bits = 0;  // in addition to the interval's common leading bits

  bool constant() const { return lo == hi; }
  /// Whether every value fits in an i32.
  bool fits_i32() const;
  bool contains(int64_t v) const;
  /// All known bits, including bits that follow from the interval and the congruence.
  void all_bits(uint64_t* known_bits, uint64_t* values) const;

  static MaskRange of(int64_t v) { return {v, v, 0, v, 0, 0}; }
  static MaskRange between(int64_t lo, int64_t hi) { return lo == hi ? of(lo) : MaskRange{lo, hi, 1, 0, 0, 0}; }
  /// Any value of the dtype (for floats, a range that carries no information).
  static MaskRange any(DType dtype);
  static MaskRange boolean(bool may_be_false, bool may_be_true) { return between(!may_be_false, may_be_true); }
};

/// The range of op(args...) with operands of in_dtype and a result of dtype. `same`: args 0 and 1 are the same value.
MaskRange range_of(kernels::Pw op, DType in_dtype, DType dtype, const MaskRange* const* args, bool same);
/// The range of a converted value.
MaskRange range_of_cast(DType from, DType to, const MaskRange& x);
/// The range of a pointwise node's result, an integer or bool; of(v) is the range of operand v.
MaskRange range_of_node(const Graph& g, const Node& n, FunctionRef<const MaskRange&(Value)> of);
/// The values of either.
MaskRange range_join(const MaskRange& a, const MaskRange& b);

}  // namespace weft::internal
