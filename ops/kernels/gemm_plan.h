// How a product is cut into tiles and K blocks: from the shape alone, so that its bits never depend on the threads.
#pragma once
#include <cstdint>

#include "framework/tensor/dtype.h"

namespace weft::kernels {

struct GemmPlan {
  int64_t batch, m, n, k;
  int64_t tile_m, tile_n, block_k;  // block_k: K elements between two roundings to memory
  int64_t tiles_m, tiles_n, blocks_k;
  int64_t tiles;  // of all the batch
  bool tiny;      // plain loops
  int64_t slots;  // tasks that run at once at most; each has slot_bytes of workspace
  int64_t slot_bytes;

  GemmPlan(DType in, DType out, int64_t batch, int64_t m, int64_t n, int64_t k);
};

/// Where a task keeps its things in its slot.
struct Slot {
  char* scratch;
  int64_t scratch_bytes;
  float* acc;   // tile_m x tile_n f32, where K has several blocks but the output is narrower
  char *a, *b;  // tile_m x block_k and block_k x tile_n, packed, of up to 4 bytes an element

  Slot(char* base, int64_t tile_m, int64_t tile_n, int64_t block_k);
  static int64_t bytes(int64_t tile_m, int64_t tile_n, int64_t block_k);
};

/// n cut into equal parts of at most `most`, each a multiple of `unit`: the size of a part.
int64_t even_part(int64_t n, int64_t most, int64_t unit);

}  // namespace weft::kernels
