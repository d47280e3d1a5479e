// Products of bf16 matrices, written by hand with the intrinsics: a sample of how kernels are written, and tests of the
// intrinsics together. C[m, n] = A[m, k] B[n, k]^T, f32 sums, row-major; any m and n, k a multiple of 8.
#pragma once
#include <cstdint>

#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

struct GemmParams {
  const uint16_t *a, *b;
  float* c;
  int m, n, k;
};
/// 64 x 64 tiles, cp.async in three stages, ldmatrix and mma.sync; grid {n / 64, m / 64} rounded up.
Kernel mma_gemm();

struct alignas(64) TmaGemmParams {
  char a[128], b[128];  // TensorMaps: boxes of 64 (k) x 128 rows and 64 x 64, 128-byte swizzle
  float* c;
  int m, n, k;
};
/// 128 x 64 tiles: one warpgroup loads operands by TMA in three stages, two multiply by WGMMA. The grid is like
/// mma_gemm's.
Kernel wgmma_gemm();

}  // namespace weft::cuda
