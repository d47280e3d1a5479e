// The product of one tile with all its K blocks: what gemm and grouped_gemm run in their tasks.
#pragma once
#include "ops/kernels/gemm_plan.h"

namespace weft::kernels {

/// Address and strides, in elements, of a tile's operand.
struct TileOperand {
  const char* data;
  int64_t row, col;
};

/// c[m,n] (rows ldc apart) = a[m,k] x b[k,n] for k > 0: K blocks accumulate in f32 and are rounded once. Operands that
/// oneDNN cannot read (dtype or strides) are packed into the slot block by block.
void tile_product(const TileOperand& a, const TileOperand& b, DType type, int64_t m, int64_t n, int64_t k,
                  int64_t block_k, void* c, DType out, int64_t ldc, const Slot& slot);

}  // namespace weft::kernels
