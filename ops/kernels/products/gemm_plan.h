// How a product is split into tiles, from the shape and max_threads() only, and how one tile is computed from packed
// panels: shared by gemm and grouped_gemm. A task packs the rows of a that its tiles need, once for all their columns.
// b is packed once for all tasks, by each task, or block by block, depending on its size; deep products pack both
// operands block by block.
#pragma once
#include <algorithm>
#include <cstdint>

#include "framework/tensor/dtype.h"
#include "ops/kernels/products/gemm.h"
#include "ops/kernels/products/gemm_kernel.h"

namespace weft::kernels {

inline int64_t round_up(int64_t v, int64_t unit) { return (v + unit - 1) / unit * unit; }
/// The size of a part if n is split into equal parts of at most `most`, each a multiple of `unit` (which divides
/// `most`).
int64_t even_part(int64_t n, int64_t most, int64_t unit);

PanelType panel_type(DType type);

/// Tiles of one matrix of m x n sums over k.
struct GemmTiling {
  const GemmKernel* kernel;
  int64_t m, n, k;
  int64_t tile_m, tile_n;  // whole panels, except if the matrix is smaller
  int64_t tiles_m, tiles_n;
  bool blocks = false;  // each tile packs both operands, a block at a time, into memory of the second-level cache

  /// Plans at least `wanted` tiles for all `matrices` together, as long as a tile is worth a task.
  GemmTiling(const GemmKernel& kernel, int64_t matrices, int64_t m, int64_t n, int64_t k, int64_t wanted);
  /// Tiles for deep products, which pack block by block: the split that packs least for this many tasks.
  static GemmTiling by_blocks(const GemmKernel& kernel, int64_t matrices, int64_t m, int64_t n, int64_t k,
                              int64_t tasks, GemmFilled filled = {});

  /// Makes tiles as wide as the matrix, with about the same number of elements.
  void widen();

  int64_t padded_k() const { return round_up(k, kernel->kr); }
  // The k of one block. Tiles that pack block by block are larger, so their blocks are less deep: the second-level
  // cache must keep the blocks of both operands and the sums.
  int64_t block_k() const { return blocks ? std::min(kernel->kc, 1024 / kernel->size) : kernel->kc; }
  int64_t a_depth() const { return blocks ? std::min(padded_k(), block_k()) : padded_k(); }
  int64_t a_panel() const { return a_depth() * kernel->mr * kernel->size; }  // bytes
  int64_t b_panel() const { return padded_k() * kernel->nr * kernel->size; }
  int64_t b_bytes() const { return round_up(n, kernel->nr) / kernel->nr * b_panel(); }
  int64_t tile_ld() const { return round_up(tile_n, kernel->nr); }
};

/// Per-task scratch buffers.
struct GemmScratch {
  char* a;      // tile_m rows of a over all k (plan by blocks: over one block), packed
  char* b;      // b_bytes, packed
  float* tile;  // sums
  char* fill;   // output of a GemmFill before it is packed; has no room if `bytes` was called with fills = false

  GemmScratch(char* base, const GemmTiling& p, int64_t b_bytes);
  static int64_t bytes(const GemmTiling& p, int64_t b_bytes, bool fills);
};

/// A whole operand, or the part that one group contracts over; lines are rows of a or columns of b.
struct PanelSource {
  const void* data;
  DType type;
  int64_t line_stride, k_stride;  // elements
  const GemmFill* fill = nullptr;
  int64_t batch = 0;  // for fill
};
/// Packs `lines` lines starting at `line`, over k starting at `first`, into panels of padded_k (panel_bytes). `to` is
/// where the first of these lines has its k = 0; `first` is a multiple of kr.
void pack_panels(const GemmKernel& kernel, bool b_side, const PanelSource& source, int64_t line, int64_t lines,
                 int64_t first, int64_t k, char* to, int64_t panel_bytes, char* fill_memory);

/// One tile of rows x cols sums over k (above 0, except with an epilogue).
struct TileRun {
  const GemmTiling* plan;
  int64_t rows, cols, k;
  const char* a;             // packed rows, or null: packed here, block by block, from a_source
  int64_t a_line;            // not 0: rows in memory (GemmBlock)
  int64_t a_panel, b_panel;  // bytes
  const char* b;             // packed columns, or null: packed here, block by block, from b_source
  const PanelSource *a_source, *b_source;
  int64_t a_at, b_at;  // the tile's first line in them
  void* c;             // if there is no epilogue
  DType out;
  int64_t ldc;
  bool large;  // c as a whole is large
  bool add;    // c, in f32, has sums over earlier k; these continue them
  const GemmEpilogue* epilogue;
  int64_t batch, row, col;  // for the epilogue
};
/// True if a result of this many bytes is written past the caches: they could not keep it for its next reader.
inline bool large_result(int64_t bytes) { return bytes >= 4 << 20; }
void run_tile(const TileRun& t, const GemmScratch& slot);

}  // namespace weft::kernels
