// Expert parallelism without capacities: rows sorted by expert travel to the ranks that own their experts and back, as
// many as there are (ragged). For programs that run on every rank of a mesh, eagerly or in capture. t tokens and k
// choices on this rank, R = t k rows; n ranks along `axes`, which hold the tokens in order of rank; E experts, each
// owned by one rank, in order of rank. An expert's rows lie in order of the tokens of all ranks, as on one device, so
// sums over them have the same bits.
#pragma once
#include <string>
#include <vector>

#include "framework/dispatch/arg.h"
#include "ops/core/moe.h"

namespace weft {

struct ExpertParallel {
  std::string axes = "ep";     // mesh dimensions
  int64_t ranks = 1;           // n: how many along axes
  int64_t num_experts = 0;     // E, of all ranks
  std::vector<int64_t> owned;  // experts of each rank; empty: E / n, of which the first E % n have one more
  int64_t own = -1;            // experts of this rank; -1: equal on all ranks
  double factor = 2;  // room of a rank for received rows, in average shares of them; more is an error. 0: for all
  int64_t group_tokens = 0;  // tokens of all ranks; 0: n t
};

/// Where rows go. Collectives: the counts, once; then one of rows for each call below and for each one's derivative.
struct ExpertExchange {
  ExpertOrder sent;                 // of this rank's slots by expert, so by owner
  ExpertOrder received;             // top_k 1: of what came, in order of rank and expert, by own expert
  Tensor send_counts, recv_counts;  // i64 [n]: rows to and from each rank
  Tensor offsets;                   // i64 [own + 1]: first row of each own expert; rows behind the last are zero
  int64_t rows = 0;                 // B: room for received rows
  std::string axes;
  double factor = 0;
};
/// For the choices [t, k] of this rank's tokens.
ExpertExchange exchange_experts(const Arg& experts, const ExpertParallel& options);
/// For the order of this rank's slots by expert.
ExpertExchange exchange_order(const ExpertOrder& order, const ExpertParallel& options);

/// Rows by expert of this rank's slots [R, D] -> rows of this rank's experts [B, D], for grouped_matmul with offsets.
Tensor rows_to_experts(const Arg& rows, const ExpertExchange& exchange);
/// The way back: [B, D] -> [R, D].
Tensor rows_from_experts(const Arg& rows, const ExpertExchange& exchange);

/// rows_to_experts of the rows of tokens x [t, D].
Tensor dispatch_to_experts(const Arg& x, const ExpertExchange& exchange);
/// [t, D]: the weighted sum of each token's rows of y [B, D], weights [t, k].
Tensor combine_from_experts(const Arg& y, const ExpertExchange& exchange, const Arg& weights);

}  // namespace weft
