// Sums and products whose bits do not depend on order or on splits. Floats become fixed-point integers (i64[..., 8],
// see ops/kernels/sums/exact.h), which any plan may add in parts; exact_finish rounds the total once. These ops are not
// linear in their operands, which are rounded first; splits of the summed dims give integer partial sums.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

extern const OpDef exact_sum_op;          // (x) {dims}: as reduce_sum
extern const OpDef exact_dot_op;          // (a, b) {a_batch, b_batch, a_contract, b_contract}
extern const OpDef exact_grouped_dot_op;  // (a, b, offsets) {mode}
extern const OpDef exact_index_add_op;    // (index, src) {rows}: sums of the rows of src with equal index
extern const OpDef exact_scatter_add_op;  // (index, src) {dim, rows}: scatter_add to zeros, `rows` along dim
extern const OpDef exact_row_dots_op;     // (y, x, slots, tokens, rows) {k}
extern const OpDef exact_finish_op;       // (i64[..., 8]) -> [...] {dtype}
std::span<const OpDef* const> exact_ops();

}  // namespace weft
