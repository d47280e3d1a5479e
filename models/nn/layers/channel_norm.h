// Norms per channel (dim 1), computed in f32 and returned in x's dtype.
#pragma once
#include <concepts>

#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

/// The base of the norms: a weight and a bias for each channel.
class ChannelNorm : public Module {
 public:
  using Module::Module;
  Parameter weight, bias;  // [channels]; undefined without affine

 protected:
  /// Registers weights of 1 and biases of 0.
  void add_affine(int64_t channels);
};

/// A norm that may keep running statistics.
class RunningNorm : public ChannelNorm {
 public:
  using ChannelNorm::ChannelNorm;
  Buffer running_mean, running_var;  // [channels], f32; undefined without track_running_stats
  Buffer num_batches_tracked;        // i64

 protected:
  /// Registers a mean of 0, a variance of 1 and a count of 0.
  void add_running(int64_t channels);
  /// Moves the running statistics by `share` (0-d) toward a batch's mean and unbiased variance.
  void move_running(const Tensor& mean, const Tensor& unbiased, const Tensor& share) const;
};

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // weight of a new batch in the running statistics; negative: their plain average
  bool affine = true;
  bool track_running_stats = true;  // false: eval() uses the statistics of the batch too
};

/// Normalises each channel over batch and spatial dims (Ioffe & Szegedy 2015): in train() by the statistics of the
/// batch, in eval() by the running statistics. On a mesh, a batch contains the rows of all ranks.
template <int N>
class BatchNorm : public RunningNorm {
 public:
  using RunningNorm::RunningNorm;
  explicit BatchNorm(int64_t channels, const BatchNormOptions& options = {},
                     std::source_location loc = std::source_location::current());
  /// PyTorch's next arguments.
  template <std::floating_point E>
  BatchNorm(int64_t channels, E eps, double momentum = 0.1, std::source_location loc = std::source_location::current())
      : BatchNorm(channels, BatchNormOptions{.eps = eps, .momentum = momentum}, loc) {}
  /// x [N, channels, N spatial dims]; BatchNorm1d also accepts [N, channels].
  Tensor operator()(const Arg& x) const;

 private:
  BatchNormOptions options_;
};
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
};

/// Normalises each sample over groups of channels (Wu & He 2018).
class GroupNorm : public ChannelNorm {
 public:
  using ChannelNorm::ChannelNorm;
  GroupNorm(int64_t groups, int64_t channels, const GroupNormOptions& options = {},
            std::source_location loc = std::source_location::current());
  template <std::floating_point E>
  GroupNorm(int64_t groups, int64_t channels, E eps, std::source_location loc = std::source_location::current())
      : GroupNorm(groups, channels, GroupNormOptions{.eps = eps}, loc) {}
  Tensor operator()(const Arg& x) const;

 private:
  int64_t groups_;
  double eps_;
};

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // weight of a new batch in the running statistics
  bool affine = false;
  bool track_running_stats = false;  // true: eval() uses the means of the statistics over samples and batches
};

/// Normalises each sample and channel over the spatial dims (Ulyanov et al. 2016); x is [N, C, spatial...] or, without
/// a batch, [C, spatial...].
template <int N>
class InstanceNorm : public RunningNorm {
 public:
  using RunningNorm::RunningNorm;
  explicit InstanceNorm(int64_t channels, const InstanceNormOptions& options = {},
                        std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& x) const;

 private:
  int64_t channels_;
  InstanceNormOptions options_;
};
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

}  // namespace weft::nn
