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
/// scale (x where x > 0, otherwise alpha (e^x - 1)) with alpha = 1.67326 and scale = 1.05070 (Klambauer et al. 2017,
/// arXiv:1706.02515).
Tensor selu(const Arg& x);
/// x where x > 0, otherwise alpha (e^(x / alpha) - 1) (Barron 2017, arXiv:1704.07483).
Tensor celu(const Arg& x, double alpha = 1);
/// a sigmoid(b) for the halves a and b of x along dim (Dauphin et al. 2016, arXiv:1612.08083); dim has an even extent.
Tensor glu(const Arg& x, int64_t dim = -1);
/// x tanh(softplus(x)) (Misra 2019, arXiv:1908.08681).
Tensor mish(const Arg& x);
/// Same as silu.
Tensor swish(const Arg& x);
/// x limited to [min_val, max_val]; the gradient is 0 at the ends (PyTorch 2.15).
Tensor hardtanh(const Arg& x, double min_val = -1, double max_val = 1);
/// x limited to [0, 6].
Tensor relu6(const Arg& x);
/// relu6(x + 3) / 6, and x times that (Howard et al. 2019, arXiv:1905.02244).
Tensor hardsigmoid(const Arg& x);
Tensor hardswish(const Arg& x);
/// x / (1 + |x|).
Tensor softsign(const Arg& x);
/// x - tanh(x).
Tensor tanhshrink(const Arg& x);
/// 0 where |x| <= lambd, otherwise x.
Tensor hardshrink(const Arg& x, double lambd = 0.5);
/// x moved toward 0 by lambd, 0 where |x| <= lambd.
Tensor softshrink(const Arg& x, double lambd = 0.5);
/// x where x > threshold, otherwise value.
Tensor threshold(const Arg& x, double threshold, double value);
/// x where x > 0, otherwise weight x; weight has one element, or one for each slice along dim 1 of x.
Tensor prelu(const Arg& x, const Arg& weight);
/// x limited to [lo, hi]; hi where lo > hi; NaN stays NaN. The gradient at lo and hi is 0 if they are numbers; x shares
/// it equally with a tensor that it equals (PyTorch 2.15). Any dtype but bool.
Tensor clamp(const Arg& x, const Arg& lo, const Arg& hi);
inline Tensor clip(const Arg& x, const Arg& lo, const Arg& hi) { return clamp(x, lo, hi); }
/// clamp_min, as in PyTorch.
Tensor clamp(const Arg& x, const Arg& lo);
inline Tensor clip(const Arg& x, const Arg& lo) { return clamp(x, lo); }
Tensor clamp_min(const Arg& x, const Arg& lo);
Tensor clamp_max(const Arg& x, const Arg& hi);

}  // namespace weft
