// Normalisation over the last dims. For 16-bit floats, statistics are computed in f32 and the result is rounded once.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"

namespace weft {

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dims, whose extents are normalized_shape; var is the mean
/// squared difference from the mean (Ba et al. 2016, arXiv:1607.06450). weight and bias may be undefined.
Tensor layer_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight = Tensor(), const Arg& bias = Tensor(),
                  double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019, arXiv:1910.07467). eps: by default the machine epsilon
/// of x's dtype.
Tensor rms_norm(const Arg& x, const Shape& normalized_shape, const Arg& weight = Tensor(),
                std::optional<double> eps = {});
/// The same over weight's dims.
Tensor rms_norm(const Arg& x, const Arg& weight, double eps);

/// (x - mean) / sqrt(var + eps) * weight + bias for each channel (dim 1) of x [N, C, ...] (Ioffe & Szegedy 2015,
/// arXiv:1502.03167). mean and var [C] are running statistics; without them, the statistics of x over all other dims
/// are used. weight and bias [C] may be undefined. nn::BatchNorm1d to 3d keep running statistics.
Tensor batch_norm(const Arg& x, const Arg& mean = Tensor(), const Arg& var = Tensor(), const Arg& weight = Tensor(),
                  const Arg& bias = Tensor(), double eps = 1e-5);
/// The same for each sample and each of `groups` groups of channels, which divide C (Wu & He 2018, arXiv:1803.08494).
Tensor group_norm(const Arg& x, int64_t groups, const Arg& weight = Tensor(), const Arg& bias = Tensor(),
                  double eps = 1e-5);
/// The same for each sample and channel, over the spatial dims of x [N, C, spatial...] (Ulyanov et al. 2016,
/// arXiv:1607.08022).
Tensor instance_norm(const Arg& x, const Arg& weight = Tensor(), const Arg& bias = Tensor(), double eps = 1e-5);

/// The mean of each channel (dim 1) of x over all other dims, and the mean squared difference from it, as [1, C, 1...];
/// of 16-bit floats in f32.
struct ChannelMoments {
  Tensor mean, var;
};
ChannelMoments channel_moments(const Arg& x);

namespace internal {
/// Throws unless eps is a finite number >= 0; `op` is the function or the layer.
void check_eps(double eps, std::string_view op);
}  // namespace internal

}  // namespace weft
