// How a product is cut into tiles, from the shape and max_threads() alone, and how one tile is computed from packed
// panels: what gemm and grouped_gemm share. A task packs the rows of a that its tiles need, once for all their columns;
// b is packed once for all tasks, by each task, or block by block, whichever its size suggests; deep products pack both
// block by block.
#pragma once
#include <algorithm>
#include <cstdint>

#include "framework/tensor/dtype.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/gemm_kernel.h"

namespace weft::kernels {

inline int64_t round_up(int64_t v, int64_t unit) { return (v + unit - 1) / unit * unit; }
/// n cut into equal parts of at most `most`, each a multiple of `unit` (which divides `most`): the size of a part.
int64_t even_part(int64_t n, int64_t most, int64_t unit);

PanelType panel_type(DType type);

/// Tiles of one matrix of m x n sums over k.
struct TilePlan {
  const GemmKernel* kernel;
  int64_t m, n, k;
  int64_t tile_m, tile_n;  // whole panels, save where the matrix is smaller
  int64_t tiles_m, tiles_n;
  bool blocks = false;  // each tile packs both operands, kc of k at a time, into memory that stays in the second cache

  /// At least `wanted` tiles together with the other `matrices`, as long as tiles stay worth a task.
  TilePlan(const GemmKernel& kernel, int64_t matrices, int64_t m, int64_t n, int64_t k, int64_t wanted);
  /// Tiles for deep products, which pack block by block: the cut that packs least for so many tasks.
  static TilePlan by_blocks(const GemmKernel& kernel, int64_t matrices, int64_t m, int64_t n, int64_t k, int64_t tasks,
                            GemmFilled filled = {});

  /// Tiles of all columns, of about as many elements.
  void widen();

  int64_t padded_k() const { return round_up(k, kernel->kr); }
  int64_t a_depth() const { return blocks ? std::min<int64_t>(padded_k(), kernel->kc) : padded_k(); }
  int64_t a_panel() const { return a_depth() * kernel->mr * kernel->size; }  // bytes
  int64_t b_panel() const { return padded_k() * kernel->nr * kernel->size; }
  int64_t b_bytes() const { return round_up(n, kernel->nr) / kernel->nr * b_panel(); }
  int64_t tile_ld() const { return round_up(tile_n, kernel->nr); }
};

/// Where a task keeps its things.
struct Slot {
  char* a;      // tile_m rows of a over all k (plan's blocks: over kc of it), packed
  char* b;      // b_bytes, packed
  float* tile;  // sums
  char* fill;   // what a GemmFill writes, before it is packed; no room where `bytes` was told that nothing is filled

  Slot(char* base, const TilePlan& p, int64_t b_bytes);
  static int64_t bytes(const TilePlan& p, int64_t b_bytes, bool fills);
};

/// A whole operand, or the part that one group contracts over; lines are rows of a, columns of b.
struct PanelSource {
  const void* data;
  DType type;
  int64_t line_stride, k_stride;  // elements
  const GemmFill* fill = nullptr;
  int64_t batch = 0;  // for fill
};
/// Packs `lines` lines from `line` on, over k from `first` on, to panels that hold padded_k (panel_bytes); `to` is
/// where the first of these lines has its k = 0, and `first` a multiple of kr.
void pack_panels(const GemmKernel& kernel, bool b_side, const PanelSource& source, int64_t line, int64_t lines,
                 int64_t first, int64_t k, char* to, int64_t panel_bytes, char* fill_memory);

/// One tile of rows x cols sums over k (above 0, save with an epilogue).
struct TileRun {
  const TilePlan* plan;
  int64_t rows, cols, k;
  const char* a;             // packed rows, or null: packed here, block by block, from a_source
  int64_t a_line;            // not 0: rows in memory (GemmBlock)
  int64_t a_panel, b_panel;  // bytes
  const char* b;             // packed columns, or null: packed here, block by block, from b_source
  const PanelSource *a_source, *b_source;
  int64_t a_at, b_at;  // the tile's first line in them
  void* c;             // where there is no epilogue
  DType out;
  int64_t ldc;
  bool large;  // c as a whole is
  bool add;    // c, of f32, holds sums over earlier k, which these go on from
  const GemmEpilogue* epilogue;
  int64_t batch, row, col;  // for the epilogue
};
/// Whether a result of so many bytes is written past the caches: more than they hold for whoever reads it next.
inline bool large_result(int64_t bytes) { return bytes >= 4 << 20; }
void run_tile(const TileRun& t, const Slot& slot);

}  // namespace weft::kernels
