// Context parallelism: one attention node over a sequence that ranks share, as what each rank computes on its queries
// and keys. Three lowerings of the same node: keys gathered, keys passed around a ring with partial results merged by
// log-sum-exp (Liu et al., Ring Attention, 2023), or heads exchanged for sequence (Jacobs et al., DeepSpeed Ulysses,
// 2023). Any mask and score mod, since mods count in positions of the whole; which positions a rank owns is data.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ops/attention/relocate.h"

namespace weft {

/// The ranks that share the sequence, and what they say to each other (sums are over ranks; all act alike).
struct RankGroup {
  int64_t size = 1;
  Tensor rank;                                                         // 0-d i64: where this rank stands among them
  std::function<Tensor(const Tensor& x, int64_t dim)> all_gather;      // in order of ranks
  std::function<Tensor(const Tensor& x, int64_t dim)> reduce_scatter;  // sums
  std::function<Tensor(const Tensor& x, int64_t split_dim, int64_t concat_dim)> all_to_all;
  std::function<Tensor(const Tensor& x, int64_t shift)> permute;  // x of rank - shift
};

/// The ranks along mesh dimensions `axes` ("cp"; "dp,cp"), `size` of them, as nodes of the graph
/// (ops/core/collective.h).
RankGroup rank_group(const std::string& axes, int64_t size, Device device = {});

/// One rank's part of a node: every rank has as many queries as the others, and as many keys.
struct ContextCall {
  Attrs attrs;                   // the whole's
  std::vector<Tensor> operands;  // of attention: q, k, v of this rank, the rest the whole's
  IndexMap b, h;                 // how other mesh dims split these
  /// i64 [Sq of the whole]: positions of rank 0's queries, then of rank 1's, ...; undefined: in order. See
  /// sequence_layout.h. kv likewise for keys.
  Tensor q_positions, kv_positions;
  RankGroup group;
};

/// Results for this rank's queries; what backward wants again.
struct ContextResult {
  Tensor out, lse, max;       // cp_ulysses: lse and max only with want_lse
  std::vector<Tensor> saved;  // cp_ulysses: q, k, v, out, lse of this rank's heads over the whole sequence
};

/// Each returns what attention returns for this rank's queries, and the backward ones attention_backward's results: dq,
/// dk, dv of this rank's queries and keys, and sums of the tables' gradients over its part, which are still to be added
/// up over ranks. dlse may be undefined: zero.
///
/// One all-gather of keys and values together; backward gathers again and reduce-scatters their gradients (f32).
ContextResult cp_all_gather(const ContextCall& c);
std::vector<Tensor> cp_all_gather_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                           const Tensor& dlse = {});

/// c - 1 permutes of keys and values together; backward c - 1 of them and c - 1 of their gradients (f32). Sums of
/// partial results are f32. Steps that the mask is known to leave empty on all ranks are not taken, nor permutes behind
/// the last; where it is known only when it runs, empty blocks cost nothing.
ContextResult cp_ring(const ContextCall& c);
std::vector<Tensor> cp_ring_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                     const Tensor& dlse = {});

/// Four all-to-alls (q, k, v, out), backward four (dout, dq, dk, dv); with want_lse two more for lse and max. Throws
/// unless the ranks divide the key heads, naming a degree that does.
ContextResult cp_ulysses(const ContextCall& c, bool want_lse = false);
std::vector<Tensor> cp_ulysses_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                        const Tensor& dlse = {});

namespace internal {
/// Of the ring's steps 0 to c - 1, at which of them some rank sees some of the keys that it then has, as far as is
/// known: step s is rank r's queries and rank r - s's keys.
std::vector<bool> ring_steps(const ContextCall& c);
}  // namespace internal

}  // namespace weft
