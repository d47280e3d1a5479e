// Kernels of expert routing: order by expert, rows to experts and back. T tokens, k choices of each, R = T k slots
// (token t's choice j is slot t k + j), a row for each slot. Results are the same for any thread count.
#pragma once
#include "framework/tensor/view.h"

namespace weft::kernels {

/// Counting sort of the slots by expert, stable, for integers experts [T, k] in [0, E): slots [R] in order, their
/// tokens, the row of each slot, counts [E] and offsets [E + 1]; results are contiguous i64.
void expert_order(const StridedView& experts, const StridedView& slots, const StridedView& tokens,
                  const StridedView& rows, const StridedView& counts, const StridedView& offsets);

/// out[r] = x[tokens[r]], times weights.flat[slots[r]] if there are weights [T, k]; in f32 (f64 if either is).
void dispatch_rows(const StridedView& x, const StridedView& slots, const StridedView& tokens,
                   const StridedView* weights, const StridedView& out);
/// out[t] = sum over j of y[rows[t k + j]], each times weights[t, j] if there are weights, in the order of
/// reduce_order.h; in f32 (f64 if either is).
void combine_rows(const StridedView& y, const StridedView& rows, const StridedView* weights, int64_t k,
                  const StridedView& out);
/// out[t, j] = sum over d of y[rows[t k + j], d] x[t, d], in the order of reduce_order.h.
void row_dots(const StridedView& y, const StridedView& x, const StridedView& rows, const StridedView& out);

}  // namespace weft::kernels
