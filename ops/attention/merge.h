// Merges attention over parts of the keys by maxima and sums (Milakov and Gimelshein 2018; Liu et al., Ring Attention,
// 2023): softmax over all keys is the sum of the parts' outputs weighted by the part's share of the sum.
#pragma once
#include "framework/tensor/tensor.h"

namespace weft {

/// Attention over some of the keys: out [B, H, Sq, Dv] f32 or f64 (a sum over many parts must not be rounded in
/// between), log_sum and max [B, H, Sq], as attention's results (record.h). Rows that see none of these keys have 0,
/// -inf and -inf.
struct PartialAttention {
  Tensor out, log_sum, max;
};

/// The result over the keys of both parts. Let m = max(max_a, max_b) and w = exp(scale (max - m) + log_sum); then out =
/// (w_a out_a + w_b out_b) / (w_a + w_b), log_sum = log(w_a + w_b), max = m. scale: softmax_scale of the node. Throws
/// unless both outs are f32 or both are f64.
PartialAttention merge_attention(const PartialAttention& a, const PartialAttention& b, double scale);

}  // namespace weft
