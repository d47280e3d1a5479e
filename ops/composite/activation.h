// Activation functions, composed of primitives. 16-bit floats are computed in f32 and rounded once, as in PyTorch.
#pragma once
#include <string_view>

#include "framework/dispatch/arg.h"

namespace weft {

/// x Phi(x) with the normal distribution function Phi; with approximate = "tanh": x/2 (1 + tanh(sqrt(2/pi) (x +
/// 0.044715 x^3))) (Hendrycks & Gimpel 2016, arXiv:1606.08415).
Tensor gelu(const Arg& x, std::string_view approximate = "none");
/// x sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118).
Tensor silu(const Arg& x);
/// log(1 + e^(beta x)) / beta; x itself where beta x > threshold.
Tensor softplus(const Arg& x, double beta = 1, double threshold = 20);
/// log(sigmoid(x)), without overflow or loss of small results.
Tensor logsigmoid(const Arg& x);
/// x where x > 0, otherwise negative_slope x.
Tensor leaky_relu(const Arg& x, double negative_slope = 0.01);
/// x where x > 0, otherwise alpha (e^x - 1) (Clevert et al. 2015, arXiv:1511.07289).
Tensor elu(const Arg& x, double alpha = 1);
/// x limited to [lo, hi]; hi where lo > hi; NaN stays NaN. The gradient is 1 from lo to hi, both included. Any dtype
/// but bool.
Tensor clamp(const Arg& x, const Arg& lo, const Arg& hi);
Tensor clamp_min(const Arg& x, const Arg& lo);
Tensor clamp_max(const Arg& x, const Arg& hi);

}  // namespace weft
