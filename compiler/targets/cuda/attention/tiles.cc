#include "compiler/targets/cuda/attention/tiles.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::cuda {
namespace {

// Halves the rows of a tile until there are at most `most`.
void limit_rows(AttentionSpec* s, int64_t most) {
  while (s->block_m() > most) {
    if (s->row_tiles == 2) {
      s->row_tiles = 1;
    } else if (s->warps > 1) {
      s->warps /= 2;
    } else {
      break;
    }
  }
}
// The smallest tile, in rows (a power of two), that holds `rows`.
int64_t tile_for(int64_t rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : 128; }

AttentionSpec fitted(AttentionSpec s, AttentionPart part, const char* what) {
  while (attention_shared_bytes(s, part) > kMostSharedBytes && s.block_m() > 16) limit_rows(&s, s.block_m() / 2);
  const int bytes = attention_shared_bytes(s, part);
  WEFT_CHECK(bytes <= kMostSharedBytes, "attention on CUDA: ", what, " for head dims ", s.dim, " and ", s.value_dim,
             " in ", to_string_view(s.type), " needs ", bytes, " bytes of shared memory; a block has ",
             kMostSharedBytes);
  return s;
}

int widest(const AttentionSpec& s) { return std::max(s.dim, s.value_dim); }

// The tiles of a gradient with these rows, in blocks of `block`. In f32, heads up to `widest_32` have tiles of 32
// columns.
AttentionSpec grad_tiles(AttentionSpec s, int64_t rows, int64_t block, int widest_32) {
  const int wide = widest(s);
  const bool f32 = s.type == kFloat32;
  s.stages = 2;
  s.row_tiles = 1;
  s.keep_rows = wide <= 64 && !s.score;  // a mod needs the registers
  s.warps = wide <= 128 && !f32 ? 8 : wide <= 128 || !f32 ? 4 : 2;
  s.block_n = wide <= 64 && !f32 ? 64 : wide <= widest_32 || !f32 ? 32 : 16;
  if (s.dropout && !f32) s.block_n /= 2;  // for the registers of the generator
  limit_rows(&s, std::min<int64_t>(tile_for(rows), block % 128 ? 64 : 128));
  return s;
}

}  // namespace

AttentionSpec forward_tiles(AttentionSpec s, int64_t rows, int64_t block_q) {
  const int wide = widest(s);
  const bool f32 = s.type == kFloat32;
  s.value_cols = s.value_dim <= 256 ? s.value_dim : 128;
  s.keep_rows = wide <= 128;
  // Pairs of row tiles halve the traffic of keys, if mods leave registers for them.
  const bool pairs = wide <= 64 && !s.score && !s.dropout;
  s.row_tiles = pairs ? 2 : 1;
  s.warps = pairs ? 4 : 8;
  s.block_n = wide <= 128 && !f32 ? 64 : 32;
  s.stages = wide <= 64 && !f32 ? 3 : 2;
  if (wide > 128 && f32) s.warps = 2;
  limit_rows(&s, std::min<int64_t>(tile_for(rows), block_q % 128 ? 64 : 128));
  return fitted(s, AttentionPart::kForward, "forward");
}

AttentionSpec key_grad_tiles(AttentionSpec s, int64_t keys, int64_t block_kv) {
  s.value_cols = std::min(widest(s), s.type == kFloat32 ? 64 : 128);
  return fitted(grad_tiles(s, keys, block_kv, 64), AttentionPart::kKeyGrad, "gradients of keys and values");
}

AttentionSpec query_grad_tiles(AttentionSpec s, int64_t rows, int64_t block_q) {
  s.value_cols = s.dim <= 256 ? s.dim : 128;
  s = grad_tiles(s, rows, block_q, 128);
  return fitted(s, AttentionPart::kQueryGrad, "the gradient of queries");
}

AttentionSpec table_grad_tiles(AttentionSpec s, int64_t rows, int64_t block_q) {
  s = query_grad_tiles(std::move(s), rows, block_q);
  limit_rows(&s, 64);
  s.block_n = std::min(s.block_n, 32);
  return fitted(s, AttentionPart::kTableGrad, "the gradients of tables");
}

bool hopper_takes(const AttentionSpec& s, int64_t rows, int64_t block_q) {
  // Wide sums leave no registers for the generator of dropout.
  const bool dims =
      widest(s) <= 128 || (widest(s) <= 256 && !s.dropout && (s.value_dim <= 128 || s.value_dim % 32 == 0));
  return s.type != kFloat32 && dims && s.aligned && s.boxes && !s.paged && !s.pack_heads && !s.split && rows > 64 &&
         block_q % 128 == 0;
}

AttentionSpec hopper_tiles(AttentionSpec s, int64_t block_kv) {
  const int wide = widest(s);
  s.row_tiles = 1, s.warps = 8;
  s.value_cols = s.value_dim;
  s.block_n = block_kv % 128 || s.score || s.dropout || wide > 128 ? 64 : 128;
  s.stages = wide > 128 ? 2 : (wide <= 64 ? 4 : 2) * 128 / s.block_n;
  return s;
}

AttentionSpec hopper_grad_tiles(AttentionSpec s, AttentionPart part) {
  s.row_tiles = 1, s.warps = 8;
  s.value_cols = widest(s);
  // The registers of a mod, and of the two sums of keys, are taken from the scores.
  const bool few = s.score || (s.dropout && part == AttentionPart::kKeyGradHopper);
  s.block_n = few && widest(s) > 96 ? 32 : 64;
  s.stages = 4;
  s.keep_rows = false;
  return s;
}

bool hopper_takes_key_grad(const AttentionSpec& s, int64_t rows, int64_t keys, int64_t block_q, int64_t block_kv) {
  return s.type != kFloat32 && widest(s) <= 128 && s.aligned && s.boxes && !s.paged && rows > 0 && keys > 64 &&
         block_q % 64 == 0 && block_kv % 128 == 0;
}
bool hopper_takes_query_grad(const AttentionSpec& s, int64_t rows, int64_t keys, int64_t block_q, int64_t block_kv) {
  return s.type != kFloat32 && widest(s) <= 128 && s.aligned && s.boxes && !s.paged && rows > 64 && keys > 0 &&
         block_q % 128 == 0 && block_kv % 64 == 0;
}

int column_chunks(const AttentionSpec& s, AttentionPart part) {
  const int cols = part == AttentionPart::kForward                                            ? s.value_dim
                   : part == AttentionPart::kKeyGrad || part == AttentionPart::kKeyGradHopper ? widest(s)
                                                                                              : s.dim;
  return std::max(1, (cols + s.value_cols - 1) / s.value_cols);
}

}  // namespace weft::cuda
