// Context parallelism: one attention node over a sequence that ranks share, lowered to the computation of each rank on
// its queries and keys. There are three lowerings of the same node: keys gathered; keys passed around a ring, with
// partial results merged by log-sum-exp (Liu et al., Ring Attention, 2023); or heads exchanged for sequence (Jacobs et
// al., DeepSpeed Ulysses, 2023). They support any mask and score mod, since mods use positions of the whole; the
// positions that a rank owns are data.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ops/attention/relocate.h"

namespace weft {

/// The ranks that share the sequence, and their communication (sums are over ranks; all ranks make the same calls).
struct RankGroup {
  int64_t size = 1;
  Tensor rank;                                                         // 0-d i64: this rank's position among them
  std::function<Tensor(const Tensor& x, int64_t dim)> all_gather;      // in rank order
  std::function<Tensor(const Tensor& x, int64_t dim)> reduce_scatter;  // sums
  std::function<Tensor(const Tensor& x, int64_t split_dim, int64_t concat_dim)> all_to_all;
  std::function<Tensor(const Tensor& x, int64_t shift)> permute;  // x of rank - shift
};

/// The ranks along mesh dimensions `axes` ("cp"; "dp,cp"), `size` of them, with collectives as nodes of the graph
/// (ops/core/collective.h).
RankGroup rank_group(const std::string& axes, int64_t size, Device device = {});

/// One rank's part of a node. All ranks have the same number of queries and the same number of keys.
struct ContextCall {
  Attrs attrs;                   // of the whole node
  std::vector<Tensor> operands;  // of attention: q, k, v of this rank, the others of the whole
  IndexMap b, h;                 // how other mesh dims split these
  /// i64 [Sq of the whole]: positions of rank 0's queries, then of rank 1's, ...; undefined: in order. See
  /// sequence_layout.h. kv_positions: the same for keys.
  Tensor q_positions, kv_positions;
  RankGroup group;
};

/// Results for this rank's queries, and the tensors that backward needs.
struct ContextResult {
  Tensor out, lse, max;       // cp_ulysses: lse and max only with want_lse
  std::vector<Tensor> saved;  // cp_ulysses: q, k, v, out, lse of this rank's heads over the whole sequence
};

/// Each function returns attention's results for this rank's queries. The backward functions return
/// attention_backward's results: dq, dk, dv of this rank's queries and keys, and the tables' gradients summed over this
/// rank's part; the caller must still add these over ranks. dlse may be undefined: zero.
/// One all-gather of keys and values together; backward gathers again and reduce-scatters their gradients (f32).
ContextResult cp_all_gather(const ContextCall& c);
std::vector<Tensor> cp_all_gather_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                           const Tensor& dlse = {});

/// c - 1 permutes of keys and values together; backward c - 1 of them and c - 1 of their gradients (f32). Partial
/// results are added in f32. Steps that are known to be empty on all ranks are skipped, and so are permutes after the
/// last step. If the mask is known only at run time, empty blocks cost nothing.
ContextResult cp_ring(const ContextCall& c);
std::vector<Tensor> cp_ring_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                     const Tensor& dlse = {});

/// Four all-to-alls (q, k, v, out), backward four (dout, dq, dk, dv); with want_lse two more for lse and max. Throws,
/// naming a valid degree, if the number of ranks does not divide the key heads.
ContextResult cp_ulysses(const ContextCall& c, bool want_lse = false);
std::vector<Tensor> cp_ulysses_backward(const ContextCall& c, const ContextResult& forward, const Tensor& dout,
                                        const Tensor& dlse = {});

namespace internal {
/// For each step 0 to c - 1 of the ring: whether some rank sees some of the keys that it has then, as far as known. In
/// step s, rank r has its own queries and rank r - s's keys.
std::vector<bool> ring_steps(const ContextCall& c);
}  // namespace internal

}  // namespace weft
