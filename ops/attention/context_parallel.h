// Ring attention: one attention node over a sequence that ranks share, lowered to the computation of each rank on its
// queries and keys. Keys are passed around a ring, and partial results are merged by maxima and sums (Liu et al., Ring
// Attention, 2023). Any mask and score mod is supported, since mods use positions of the whole; the positions that a
// rank owns are data. The other ways to share a sequence, gathered keys and exchanged heads, need no lowering:
// distributed/strategies/context_parallel.cc.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ops/attention/mods/relocate.h"

namespace weft {

/// The ranks that share the sequence, and their communication (all ranks make the same calls).
struct RankGroup {
  int64_t size = 1;
  Tensor rank;                                                    // 0-d i64: this rank's position among them
  std::function<Tensor(const Tensor& x, int64_t shift)> permute;  // x of rank - shift
};

/// The ranks along mesh dimensions `axes` ("cp"; "dp,cp"), `size` of them, with collectives as nodes of the graph
/// (ops/core/collectives/collective.h).
RankGroup rank_group(const std::string& axes, int64_t size);

/// One rank's part of a node. All ranks have the same number of queries and the same number of keys.
struct ContextCall {
  Attrs attrs;                   // attributes of the whole node
  std::vector<Tensor> operands;  // operands of attention: q, k, v of this rank, the others of the whole
  IndexMap b, h;                 // how other mesh dims split these
  /// i64 [Sq of the whole]: positions of rank 0's queries, then of rank 1's, ...; undefined: in order. See
  /// sequence_layout.h. kv_positions: the same for keys.
  Tensor q_positions, kv_positions;
  RankGroup group;
};

/// Attention's results for this rank's queries.
struct ContextResult {
  Tensor out, log_sum, max;
};

/// c - 1 permutes of keys and values together; backward c - 1 of them and c - 1 of their gradients (f32). Partial
/// results are added in f32. Steps that are known to be empty on all ranks are skipped, and so are permutes after the
/// last step. If the mask is known only at run time, empty blocks cost nothing. Backward returns attention_backward's
/// results: dq, dk, dv of this rank's queries and keys, and the tables' gradients summed over this rank's part; the
/// caller must still add these over ranks. dlse may be undefined: zero.
ContextResult cp_ring(const ContextCall& c);
std::vector<Tensor> cp_ring_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                     const Tensor& dlse = {});

namespace internal {
/// For each step 0 to c - 1 of the ring: whether some rank sees some of the keys that it has then, as far as known. In
/// step s, rank r has its own queries and rank r - s's keys.
std::vector<bool> ring_steps(const ContextCall& c);
}  // namespace internal

}  // namespace weft
