#include "models/nn/layers/channel_norm.h"

#include "ops/composite/layers/norm.h"
#include "ops/composite/math/reduction.h"
#include "ops/composite/precision.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

void check_options(const std::string& name, int64_t channels, double eps) {
  WEFT_CHECK(channels > 0, name, ": channels is ", channels, "; need 1 or more");
  internal::check_eps(eps, name);
}

// Checks that x has an allowed number of dims and the channels.
void check_input(const std::string& name, const Tensor& x, int least, int most, int64_t channels, int dim = 1) {
  WEFT_CHECK(x.dim() >= least && x.dim() <= most, name, ": x is ", x.type(), "; need ",
             least == most ? str_cat(most) : str_cat(least, " or ", most), " dims");
  WEFT_CHECK(x.size(dim) == channels, name, ": x is ", x.type(), " with ", x.size(dim), " channels; need ", channels);
}

}  // namespace

void ChannelNorm::add_affine(int64_t channels) {
  weight = constant_parameter({channels}, 1);
  bias = constant_parameter({channels}, 0);
  register_parameter("weight", weight, /*full_precision=*/true);
  register_parameter("bias", bias, /*full_precision=*/true);
}

void RunningNorm::add_running(int64_t channels) {
  running_mean = zeros_buffer({channels});
  running_var = Buffer(ones({channels}));
  num_batches_tracked = zeros_buffer({}, kInt64);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked);
}

void RunningNorm::move_running(const Tensor& mean, const Tensor& unbiased, const Tensor& share) const {
  const Tensor old_mean = running_mean.value(), old_var = running_var.value();
  running_mean.set(old_mean + (mean.to(old_mean.dtype()) - old_mean) * share);
  running_var.set(old_var + (unbiased.to(old_var.dtype()) - old_var) * share);
}

template <int N>
BatchNorm<N>::BatchNorm(int64_t channels, const BatchNormOptions& options, std::source_location loc)
    : options_(options) {
  internal::LineScope line(loc);
  const std::string name = str_cat("BatchNorm", N, "d");
  check_options(name, channels, options.eps);
  WEFT_CHECK(options.momentum <= 1, name, ": momentum is ", options.momentum, "; need a number up to 1");
  if (options.affine) add_affine(channels);
  if (options.track_running_stats) add_running(channels);
}

template <int N>
Tensor BatchNorm<N>::operator()(const Arg& arg) const {
  CallScope call(*this, arg.line());
  static const std::string name = str_cat("BatchNorm", N, "d");
  const Tensor& x = internal::tensor_of(arg, name.c_str());
  const int64_t channels = options_.affine          ? weight.shape()[0]
                           : running_mean.defined() ? running_mean.shape()[0]
                           : x.dim() > 1            ? x.size(1)
                                                    : 0;
  check_input(name, x, N == 1 ? 2 : N + 2, N + 2, channels);
  const Tensor w = value_or_none(weight), b = value_or_none(bias);
  if (!is_training() && running_mean.defined())
    return call.result(batch_norm(x, running_mean, running_var, w, b, options_.eps));
  const int64_t count = channels == 0 ? 0 : x.numel() / channels;
  WEFT_CHECK(!is_training() || count > 1, name, ": x is ", x.type(), " with ", count, count == 1 ? " value" : " values",
             " per channel; need 2 or more in training");
  if (!is_training() || !running_mean.defined())
    return call.result(batch_norm(x, Tensor(), Tensor(), w, b, options_.eps));
  const ChannelMoments m = channel_moments(x);
  const Shape one{channels};
  const Tensor mean = reshape(m.mean, one), var = reshape(m.var, one);
  {
    NoGrad guard;
    const Tensor batches = num_batches_tracked.value() + 1;
    const DType t = running_mean.dtype();
    // The number of batches may be beyond f16.
    const Tensor share = options_.momentum < 0 ? reciprocal(batches.to(kFloat64)).to(t)
                                               : full({}, options_.momentum, {.dtype = t, .device = x.device()});
    const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
    move_running(mean.detach(), var.detach().to(t) * unbiased, share);
    num_batches_tracked.set(batches);
  }
  return call.result(batch_norm(x, mean, var, w, b, options_.eps));
}

template class BatchNorm<1>;
template class BatchNorm<2>;
template class BatchNorm<3>;

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const GroupNormOptions& options, std::source_location loc)
    : groups_(groups), eps_(options.eps) {
  internal::LineScope line(loc);
  check_options("GroupNorm", channels, options.eps);
  WEFT_CHECK(groups >= 1 && channels % groups == 0, "GroupNorm: ", groups, " groups of ", channels,
             " channels; need a number of groups that divides the channels");
  if (options.affine) add_affine(channels);
}

Tensor GroupNorm::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  return call.result(group_norm(x, groups_, value_or_none(weight), value_or_none(bias), eps_));
}

template <int N>
InstanceNorm<N>::InstanceNorm(int64_t channels, const InstanceNormOptions& options, std::source_location loc)
    : channels_(channels), options_(options) {
  internal::LineScope line(loc);
  const std::string name = str_cat("InstanceNorm", N, "d");
  check_options(name, channels, options.eps);
  WEFT_CHECK(options.momentum >= 0 && options.momentum <= 1, name, ": momentum is ", options.momentum,
             "; need a number from 0 to 1");
  if (options.affine) add_affine(channels);
  if (options.track_running_stats) add_running(channels);
}

template <int N>
Tensor InstanceNorm<N>::operator()(const Arg& arg) const {
  CallScope call(*this, arg.line());
  static const std::string name = str_cat("InstanceNorm", N, "d");
  const Tensor& x = internal::tensor_of(arg, name.c_str());
  const bool batched = x.dim() != N + 1;
  check_input(name, x, N + 1, N + 2, channels_, batched ? 1 : 0);
  const Tensor v = batched ? x : unsqueeze(x, 0), w = value_or_none(weight), b = value_or_none(bias);
  const bool tracked = running_mean.defined();
  if (tracked && is_training()) {
    NoGrad guard;
    const Tensor rows = internal::widened(flatten(v.detach(), 2));
    WEFT_CHECK(rows.size(0) > 0 && rows.size(2) > 1, name, ": x is ", x.type(),
               "; need one sample or more of 2 or more positions to track statistics");
    move_running(mean(mean(rows, 2), 0), mean(var(rows, Dims{2}), 0),
                 full({}, options_.momentum, {.dtype = running_mean.dtype(), .device = x.device()}));
  }
  const Tensor y = tracked && !is_training() ? batch_norm(v, running_mean, running_var, w, b, options_.eps)
                                             : instance_norm(v, w, b, options_.eps);
  return call.result(batched ? y : squeeze(y, 0));
}

template class InstanceNorm<1>;
template class InstanceNorm<2>;
template class InstanceNorm<3>;

}  // namespace weft::nn
