// Sizes of tiles by part, type and head dims: what registers and shared memory of sm_80 hold.
#pragma once
#include "compiler/targets/cuda/attention/spec.h"

namespace weft::cuda {

/// What a block may have on every device from sm_80 on (sm_86 and sm_89, with less, take smaller head dims).
inline constexpr int kMostSharedBytes = 166912;

/// block_q, block_kv: of the block mask, 0 for none; a tile never reaches over the edge of a block. Throw where head
/// dims leave no room, with the figures.
AttentionSpec forward_tiles(AttentionSpec s, int64_t rows, int64_t block_q);
AttentionSpec key_grad_tiles(AttentionSpec s, int64_t keys, int64_t block_q, int64_t block_kv);
AttentionSpec query_grad_tiles(AttentionSpec s, int64_t rows, int64_t block_q);
AttentionSpec table_grad_tiles(AttentionSpec s, int64_t rows, int64_t block_q);

/// Of the kernel for sm_90a, which takes only some calls: see hopper_takes.
AttentionSpec hopper_tiles(AttentionSpec s, int64_t block_kv);
bool hopper_takes(const AttentionSpec& s, int64_t rows, int64_t block_q);

/// Of the backward kernels for sm_90a, likewise. Head dims over 128 leave no registers for a warpgroup's sums.
AttentionSpec hopper_grad_tiles(AttentionSpec s, AttentionPart part);
bool hopper_takes_key_grad(const AttentionSpec& s, int64_t rows, int64_t keys, int64_t block_q, int64_t block_kv);
bool hopper_takes_query_grad(const AttentionSpec& s, int64_t rows, int64_t keys, int64_t block_q, int64_t block_kv);

/// Pieces of the columns of results, each a block's.
int column_chunks(const AttentionSpec& s, AttentionPart part);

}  // namespace weft::cuda
