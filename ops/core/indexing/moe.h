// Expert routing as separate ops, so that a partitioner can see tokens move to experts and back. T tokens, k choices
// each, E experts. Slot t k + j is choice j of token t. There are R = T k rows, one per slot, sorted by expert.
// Let M[t, j, r] be 1 if row r belongs to slot (t, j). Then the last three functions are parts of one form,
//   sum over t, j, r, d of M[t, j, r] w[t, j] x[t, d] y[r, d],
// which is linear in w, x and y: the derivatives of each function are the other two. Sums over a token's rows follow
// the order of its choices: no atomics, and the same bits wherever the rows were computed.
#pragma once
#include <span>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// Slots sorted by expert, and by slot within an expert.
struct ExpertOrder {
  Tensor slots;    // i64 [R]: the slot in each row
  Tensor tokens;   // i64 [R]: its token
  Tensor rows;     // i64 [R]: the row of each slot (the inverse permutation)
  Tensor counts;   // i64 [E]: rows per expert; a part of the tokens gives its term of the sum
  Tensor offsets;  // i64 [E + 1]: first row of each expert, for grouped_matmul
  int64_t top_k = 1;
};
/// The order of experts [T, k], integers in [0, E).
ExpertOrder expert_order(const Arg& experts, int64_t num_experts);

/// [R, D]: row r is x[token of r], times weights[slot of r] if weights [T, k] are given; in x's dtype, computed in f32.
Tensor dispatch_rows(const Arg& x, const ExpertOrder& order, const Arg& weights = Tensor());
/// [T, D]: the sum of a token's rows of y [R, D], times weights [T, k] if given; in y's dtype, summed in f32.
Tensor combine_rows(const Arg& y, const ExpertOrder& order, const Arg& weights = Tensor());
/// [T, k] in f32 (f64 for f64): the row of slot (t, j) of y [R, D] times x[t] of x [T, D], summed over D.
Tensor row_dots(const Arg& y, const Arg& x, const ExpertOrder& order);

extern const OpDef expert_order_op;   // (experts[T,k]) -> slots, tokens, rows, counts, offsets {num_experts}
extern const OpDef dispatch_rows_op;  // (x[T,D], slots, tokens, rows, weights[T,k]?) {k}
extern const OpDef combine_rows_op;   // (y[R,D], slots, tokens, rows, weights[T,k]?) {k}
extern const OpDef row_dots_op;       // (y[R,D], x[T,D], slots, tokens, rows) {k}
std::span<const OpDef* const> moe_ops();

}  // namespace weft
