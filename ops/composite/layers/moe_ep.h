// Expert parallelism without capacities: rows sorted by expert are sent to the ranks that own their experts and back,
// in variable (ragged) numbers. For programs that run on every rank of a mesh, eagerly or in capture. t tokens and k
// choices on this rank, R = t k rows; n ranks along `axes`, which have the tokens in rank order; E experts, each owned
// by one rank, in rank order. An expert's rows are in order of the tokens of all ranks, as on one device, so sums over
// them have the same bits.
#pragma once
#include <string>
#include <vector>

#include "framework/dispatch/arg.h"
#include "ops/core/indexing/moe.h"

namespace weft {

struct ExpertParallel {
  std::string axes = "ep";     // mesh dimensions
  int64_t ranks = 1;           // n: number of ranks along axes
  int64_t num_experts = 0;     // E, over all ranks
  std::vector<int64_t> owned;  // experts of each rank; empty: E / n each, and one more for the first E % n ranks
  int64_t own = -1;            // experts of this rank; -1: the same number on all ranks
  // Space for received rows, as a multiple of the average number; more is an error. 0: space for all.
  double factor = 2;
  int64_t group_tokens = 0;  // tokens of all ranks; 0: n t
};

/// The routes of rows. Collectives: the counts, once; then one exchange of rows for each call below and for its
/// derivative.
struct ExpertExchange {
  ExpertOrder sent;                 // this rank's slots by expert, hence by owner
  ExpertOrder received;             // top_k 1: the received rows, in order of rank and expert, by own expert
  Tensor send_counts, recv_counts;  // i64 [n]: rows to and from each rank
  Tensor offsets;                   // i64 [own + 1]: first row of each own expert; rows after the last are zero
  int64_t rows = 0;                 // B: space for received rows
  std::string axes;
  double factor = 0;
};
/// Makes the exchange for the choices [t, k] of this rank's tokens.
ExpertExchange exchange_experts(const Arg& experts, const ExpertParallel& options);
/// Makes the exchange for the order of this rank's slots by expert.
ExpertExchange exchange_order(const ExpertOrder& order, const ExpertParallel& options);

/// Sends this rank's rows by expert [R, D]; returns the rows of this rank's experts [B, D], for grouped_matmul with
/// offsets.
Tensor rows_to_experts(const Arg& rows, const ExpertExchange& exchange);
/// The inverse: [B, D] -> [R, D].
Tensor rows_from_experts(const Arg& rows, const ExpertExchange& exchange);

/// rows_to_experts of the rows of tokens x [t, D].
Tensor dispatch_to_experts(const Arg& x, const ExpertExchange& exchange);
/// [t, D]: the weighted sum of each token's rows of y [B, D], with weights [t, k].
Tensor combine_from_experts(const Arg& y, const ExpertExchange& exchange, const Arg& weights);

}  // namespace weft
