// PyTorch's scaled_dot_product_attention, implemented by flex_attention: the whole scores never exist in memory.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"

namespace weft {

struct SdpaOptions {
  Tensor attn_mask = {};   // broadcasts to [..., H, Sq, Skv]; bool: true is visible; float: added to the scores
  double dropout_p = 0;    // on the probabilities
  bool is_causal = false;  // query i sees keys 0 to i (top left, as in PyTorch); not together with attn_mask
  std::optional<double> scale = {};  // default: 1 / sqrt(D)
  bool enable_gqa = false;           // k and v may have fewer heads: Hq a multiple of Hkv, neighbours share
};
/// softmax(q k^T scale + mask) v (Vaswani et al. 2017) for q [..., Hq, Sq, D], k [..., Hkv, Skv, D], v [..., Hkv, Skv,
/// Dv]: [..., Hq, Sq, Dv]. Scores and probabilities are f32 for 16-bit floats. A query whose keys are all masked gives
/// zeros.
Tensor scaled_dot_product_attention(const Arg& q, const Arg& k, const Arg& v, const SdpaOptions& options = {});

}  // namespace weft
