// One matrix product on one thread: oneDNN behind a bounded cache of primitives. Only gemm.cc and grouped_gemm.cc call
// it, from pool tasks.
#pragma once
#include <cstdint>

#include "framework/tensor/dtype.h"

namespace weft::kernels {

/// What a tile is, data aside: c[m,n] (f32 or `type`, rows ldc apart) = or += a[m,k] x b[k,n], both of `type`.
struct TileShape {
  DType type, out;
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, ldc;
  bool accumulate;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// True if oneDNN multiplies this dtype with the selected instruction set: f32 always, bf16 with AVX-512 and bf16 dots.
bool tile_native(DType type);
/// True if oneDNN reads rows x cols with these strides: one of them is 1 and the other steps over a whole line.
bool tile_readable(int64_t rows, int64_t cols, int64_t row, int64_t col);
/// An upper bound of what a tile of at most this size needs as scratch; larger needs are met by the thread's own
/// memory.
int64_t tile_scratch(int64_t m, int64_t n, int64_t k);
/// Runs one tile; a and b must be tile_readable. `scratch` has tile_scratch bytes, 64-byte aligned.
void tile_matmul(const TileShape& shape, const void* a, const void* b, void* c, void* scratch, int64_t scratch_bytes);

/// While it lives, OpenMP in this thread (oneDNN's) uses one thread.
class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp();
  ~SingleThreadedOpenMp();
  SingleThreadedOpenMp(const SingleThreadedOpenMp&) = delete;

 private:
  int before_;
};

}  // namespace weft::kernels
