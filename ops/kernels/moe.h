// Kernels of expert routing: ordering by expert, rows to experts and back. T tokens, k choices each, R = T k slots
// (choice j of token t is slot t k + j), one row per slot. Results are the same for any thread count.
#pragma once
#include "framework/tensor/view.h"

namespace weft::kernels {

/// Stable counting sort of the slots by expert, for integers experts [T, k] in [0, E). Results: slots [R] in order,
/// their tokens, the row of each slot, counts [E] and offsets [E + 1]; all contiguous i64.
void expert_order(const StridedView& experts, const StridedView& slots, const StridedView& tokens,
                  const StridedView& rows, const StridedView& counts, const StridedView& offsets);

/// out[r] = x[tokens[r]], times weights.flat[slots[r]] if there are weights [T, k]; computed in f32 (f64 if either is).
void dispatch_rows(const StridedView& x, const StridedView& slots, const StridedView& tokens,
                   const StridedView* weights, const StridedView& out);
/// out[t] = sum over j of y[rows[t k + j]], each times weights[t, j] if there are weights, in the order of
/// reduce_order.h; computed in f32 (f64 if either is).
void combine_rows(const StridedView& y, const StridedView& rows, const StridedView* weights, int64_t k,
                  const StridedView& out);
/// out[t, j] = sum over d of y[rows[t k + j], d] x[t, d], in the order of reduce_order.h.
void row_dots(const StridedView& y, const StridedView& x, const StridedView& rows, const StridedView& out);

}  // namespace weft::kernels
