// Matrix products on strided views. f32, bf16 and f16 run on our own micro-kernels over packed panels (gemm_kernel.h):
// an element's sum has one order whatever the tiles, so its bits depend neither on the thread count nor on hooks. f64
// runs on Eigen tiles. A few rows (gemm_few_rows), or one column, have separate streaming kernels. A row of a few has
// the bits that it has alone.
#pragma once
#include <cstdint>

#include "framework/tensor/view.h"

namespace weft::kernels {

/// A finished piece of c in f32, still in the cache: element (row + i, col + j) of the flat batch index is data[i * ld
/// + j].
struct GemmTile {
  int64_t batch, row, col, rows, cols;
  const float* data;
  int64_t ld;
};
/// Gets each finished tile in place of c; c is then not written. Called from pool tasks, once per tile. The tiles (at
/// most 512 x 512, chosen from the shape and max_threads()) are disjoint and cover c.
struct GemmEpilogue {
  void (*run)(const void* context, const GemmTile& tile);
  const void* context;
  /// Memory that the epilogue will read and write besides the sums; it is prefetched meanwhile. Element (row, col) of
  /// batch b is at data + (b * M + row) * line + col * size, in bytes. Only a hint; at most 8 are used.
  struct Touch {
    const void* data;
    int64_t line, size;
  };
  const Touch* touches = nullptr;
  int num_touches = 0;
};
/// Writes rows x cols elements of an operand, starting at (row, col), to `out`, in place of its memory, just before
/// they are packed. `out` is row-major with rows ld elements apart, or column-major, if `transposed`, with columns ld
/// apart; it has the product's dtype. Called from pool tasks, and more than once for some elements, so it must be pure.
struct GemmFill {
  void (*run)(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, void* out,
              int64_t ld) = nullptr;
  const void* context = nullptr;
  bool transposed = false;
  int cost = 1;  // cost of an element, relative to packing one: the higher, the fewer times tiles request it
};
/// Changes to how a product reads its operands and writes its result; null: plain memory.
struct GemmHooks {
  const GemmEpilogue* epilogue = nullptr;
  const GemmFill* a = nullptr;
  const GemmFill* b = nullptr;
  /// b in panels of gemm_panel columns: [n / gemm_panel, k, gemm_panel], contiguous and 64-byte aligned. It is not
  /// packed again, and the fill of b does not run. Only for one matrix, and a product of more than 4 rows and more than
  /// one column. Row-major memory gives the same bits.
  const void* panels = nullptr;
  /// c, in f32 and without an epilogue, has sums over earlier k, and the product continues them term after term.
  /// Products over pieces of k (multiples of 64), one after another, give the bits of the whole product (for more than
  /// gemm_few_rows rows and one column, or a row-major b without AMX).
  bool add = false;
};

/// c[...,M,N] = a[...,M,K] x b[...,K,N] with the same batch dims, none or several. a and b have the same dtype and any
/// strides (0 where broadcast, heads inside rows, transposed). c's last stride is 1, the others are free; its dtype is
/// the same or f32 (floats), or the same or i64 (integers). Floats narrower than f64 accumulate in f32. K = 0 gives
/// zeros. `workspace` has gemm_workspace bytes, 64-byte aligned (may be null if 0). Hooks need dtype f32, bf16 or f16.
/// The data of a hooked operand, and of c with an epilogue, may be null. A filled operand gives the bits of the same
/// operand in row-major memory.
void gemm(const StridedView& a, const StridedView& b, const StridedView& c, void* workspace,
          const GemmHooks* hooks = nullptr);
/// Bytes that gemm needs, with or without an epilogue: scratch for min(tiles, max_threads()) tasks, so it is constant
/// in a process, whatever set_num_threads sets. For filled operands, pass GemmFill::cost (0: from memory).
struct GemmFilled {
  int a = 0, b = 0;
};
int64_t gemm_workspace(DType in, DType out, int64_t batch, int64_t m, int64_t n, int64_t k, GemmFilled filled = {});

/// The most rows of a product that is computed without packing (f32, bf16, f16), where a row has the bits that it has
/// alone, if b has more than 1024 elements. If b is column-major, sums of more rows have another order. The dtype, the
/// length of the sums and the machine's instruction set determine it.
int64_t gemm_few_rows(DType in, int64_t k);
/// The columns of a panel of b (GemmHooks::panels); 0: this dtype has no panels that are plain memory.
int64_t gemm_panel(DType in);

/// Products over groups of rows. Group e is rows offsets[e] to offsets[e + 1] (offsets: i64 or i32 [E + 1], ascending,
/// from 0 or more, at most T).
enum class GroupedMode {
  rows,         // y[T,N]:   y[rows of e] = x[rows of e] x w[e];     a = x[T,K], b = w[E,K,N]
  contraction,  // dw[E,K,N]: dw[e] = x[rows of e]^T x g[rows of e];  a = x[T,K], b = g[T,N]
};
/// Rows outside all groups, and groups without rows, give zeros. a and b have the same dtype and any strides; out's
/// last stride is 1, its dtype the same or f32. Bad offsets throw. In mode rows, an epilogue gets the tiles of y
/// (batch: the group; row: of y; rows outside all groups are not passed), and the tiles depend on the shapes and the
/// offsets.
void grouped_gemm(GroupedMode mode, const StridedView& a, const StridedView& b, const StridedView& offsets,
                  const StridedView& out, void* workspace, const GemmEpilogue* epilogue = nullptr);
int64_t grouped_gemm_workspace(GroupedMode mode, DType in, DType out, int64_t groups, int64_t t, int64_t k, int64_t n);

}  // namespace weft::kernels
