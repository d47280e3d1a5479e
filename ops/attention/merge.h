// Merges attention over parts of the keys by log-sum-exp (Milakov and Gimelshein 2018; Liu et al., Ring Attention,
// 2023): softmax over all keys is the sum of the parts' outputs weighted by exp(lse of the part - lse of all).
#pragma once
#include "framework/tensor/tensor.h"

namespace weft {

/// Attention over some of the keys: out [B, H, Sq, Dv] f32 or f64 (a sum over many parts must not be rounded in
/// between), lse and max [B, H, Sq]. Rows that see none of these keys have 0, -inf and -inf.
struct PartialAttention {
  Tensor out, lse, max;
};

/// The result over the keys of both parts: with m = max(lse_a, lse_b), w = exp(lse - m): out = (w_a out_a + w_b out_b)
/// / (w_a + w_b), lse = m + log(w_a + w_b). Throws unless both outs are f32 or both are f64.
PartialAttention merge_attention(const PartialAttention& a, const PartialAttention& b);

}  // namespace weft
