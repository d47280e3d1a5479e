// The tables of functions that each instruction set exports, and the choice among them. Light: the per-instruction-set
// sources include it, and it must not pull inline code of others into them.
#pragma once
#include <cstdint>

namespace weft::kernels {

using PwFn = int (*)(const void* const* in, void* out, int64_t n, uint32_t scalars);

/// dtypes the kernels compute on: the first eight of DType (no f8).
inline constexpr int kNumComputeDTypes = 8;
/// Functions of one row of pointwise.inc by dtype; null where the row does not take it.
struct PwRow {
  PwFn by_dtype[kNumComputeDTypes];
};

#define WEFT_DECLARE_TABLES(isa)                                               \
  namespace isa {                                                              \
  const PwRow* pointwise_rows();                                               \
  const PwRow* cast_rows(); /* by source, then target dtype */                 \
  }
WEFT_DECLARE_TABLES(baseline)
WEFT_DECLARE_TABLES(avx2)
WEFT_DECLARE_TABLES(avx512)

}  // namespace weft::kernels

/// The function `name` of the selected instruction set's namespace, e.g. WEFT_SELECT(pointwise_rows)().
#define WEFT_SELECT(name)                                                      \
  (::weft::selected_isa() == ::weft::Isa::avx512 ? &::weft::kernels::avx512::name \
   : ::weft::selected_isa() == ::weft::Isa::avx2 ? &::weft::kernels::avx2::name   \
                                                 : &::weft::kernels::baseline::name)
