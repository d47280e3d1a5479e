// Tile sizes by part, type and head dims, within the registers and shared memory of sm_80.
#pragma once
#include "compiler/targets/cuda/attention/spec.h"

namespace weft::cuda {

/// Shared memory per block on every device from sm_80 on (sm_86 and sm_89 have less and support smaller head dims).
inline constexpr int kMostSharedBytes = 166912;

/// block_q, block_kv: of the block mask, 0 if there is none. A tile never crosses the edge of a block. They throw, with
/// the figures, if the head dims do not fit.
AttentionSpec forward_tiles(AttentionSpec s, int64_t rows, int64_t block_q);
AttentionSpec key_grad_tiles(AttentionSpec s, int64_t keys, int64_t block_kv);
AttentionSpec query_grad_tiles(AttentionSpec s, int64_t rows, int64_t block_q);
AttentionSpec table_grad_tiles(AttentionSpec s, int64_t rows, int64_t block_q);

/// For the kernel for sm_90a, which supports only some calls: see hopper_takes.
AttentionSpec hopper_tiles(AttentionSpec s, int64_t block_kv);
bool hopper_takes(const AttentionSpec& s, int64_t rows, int64_t block_q);

/// For the backward kernels for sm_90a, likewise. Head dims over 128 leave no registers for a warpgroup's sums.
AttentionSpec hopper_grad_tiles(AttentionSpec s, AttentionPart part);
bool hopper_takes_key_grad(const AttentionSpec& s, int64_t rows, int64_t keys, int64_t block_q, int64_t block_kv);
bool hopper_takes_query_grad(const AttentionSpec& s, int64_t rows, int64_t keys, int64_t block_q, int64_t block_kv);

/// The number of pieces into which the columns of results are cut, one block each.
int column_chunks(const AttentionSpec& s, AttentionPart part);

}  // namespace weft::cuda
