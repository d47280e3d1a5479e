// Records of the collectives: communication between ranks, as ops of a graph. Kernels find their communicator through
// RankContext::current(). `axes` names mesh dimensions ("tp", "dp,cp", "world"); `parts` is the number of ranks along
// them. The public functions are in distributed/collectives.h.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft {

extern const OpDef all_reduce_op;  // x {axes, op: sum avg max min, identity_grad?}
// x {axes, dim, parts, sizes?}: concatenates the ranks' x along dim; sizes "2,1,1" if uneven
extern const OpDef all_gather_op;
// x {axes, op, dim, parts, sizes?, extent?}: extent of this rank's part if uneven
extern const OpDef reduce_scatter_op;
// x {axes, split_dim, concat_dim, parts, split_sizes?, concat_sizes?, extent?}
extern const OpDef all_to_all_op;
// x, send i64[parts], recv i64[parts] {axes, rows, factor?}: unused rows are zero; factor: the origin of the bound, for
// the error
extern const OpDef all_to_all_rows_op;
extern const OpDef permute_ranks_op;    // x {axes, shift}: x of rank - shift, in a ring
extern const OpDef broadcast_ranks_op;  // x {axes, root}
extern const OpDef send_op;             // x {axes, peer} -> 0-d zero, the receipt
extern const OpDef recv_op;             // like {axes, peer} -> a value of like's type
extern const OpDef copy_to_op;          // x {axes} -> x; its derivative is an all_reduce
extern const OpDef stage_boundary_op;   // x -> x: a pipeline stage begins after it
extern const OpDef rank_coordinate_op;  // {axes, device?} -> i64: this rank's coordinate along axes
// index, positions {before, after, limit, shape, dims, ignore?} -> index. Throws OutOfRange for an index that is not in
// [0, limit). The error has the position in the whole index, of `shape`. `positions` has the positions of the local
// indices along `dims`, either the first one (0-d) or all.
extern const OpDef check_index_op;

// The same collectives, started only, with the op's attributes and {site}, which is unique among the collectives in
// progress. Operand and result belong to the transport until collective_wait, the only op that may read the result.
extern const OpDef all_reduce_start_op, all_gather_start_op, reduce_scatter_start_op, all_to_all_start_op,
    permute_ranks_start_op, send_start_op;
extern const OpDef recv_start_op;       // {axes, peer, site, shape, dtype, device?}: has no operand
extern const OpDef collective_wait_op;  // (y of a start, its x) {site} -> y, in y's memory

/// The `..._start` record of a collective, or null.
inline const OpDef* start_form(const OpDef& op) { return op.start; }

/// Text of a list of sizes, "2,1,1", and the list of a text; parse_sizes throws InvalidArgument on other text.
std::string sizes_text(std::span<const int64_t> sizes);
std::vector<int64_t> parse_sizes(const std::string& text);

std::span<const OpDef* const> collective_ops();

}  // namespace weft
