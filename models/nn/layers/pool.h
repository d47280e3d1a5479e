// Pooling layers with PyTorch's arguments; they have no parameters.
#pragma once
#include "models/nn/module.h"
#include "ops/composite/images/pool.h"

namespace weft::nn {

struct MaxPoolOptions {
  Sizes stride = 0;  // 0: the kernel's size
  Sizes padding = 0;
  Sizes dilation = 1;
  bool ceil_mode = false;
};
struct AvgPoolOptions {
  Sizes stride = 0;  // 0: the kernel's size
  Sizes padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
};

/// The options select the kind of pooling.
template <int N, class Options>
class Pool : public Module {
 public:
  explicit Pool(const Sizes& kernel_size, const Options& options = {}) : kernel_size_(kernel_size), options_(options) {}
  Tensor operator()(const Arg& x) const;

 private:
  Sizes kernel_size_;
  Options options_;
};
template <int N>
using MaxPool = Pool<N, MaxPoolOptions>;
template <int N>
using AvgPool = Pool<N, AvgPoolOptions>;
using MaxPool1d = MaxPool<1>;
using MaxPool2d = MaxPool<2>;
using MaxPool3d = MaxPool<3>;
using AvgPool1d = AvgPool<1>;
using AvgPool2d = AvgPool<2>;
using AvgPool3d = AvgPool<3>;

template <int N, bool kMax>
class AdaptivePool : public Module {
 public:
  explicit AdaptivePool(const Sizes& output_size) : output_size_(output_size) {}
  Tensor operator()(const Arg& x) const;

 private:
  Sizes output_size_;
};
using AdaptiveAvgPool1d = AdaptivePool<1, false>;
using AdaptiveAvgPool2d = AdaptivePool<2, false>;
using AdaptiveAvgPool3d = AdaptivePool<3, false>;
using AdaptiveMaxPool1d = AdaptivePool<1, true>;
using AdaptiveMaxPool2d = AdaptivePool<2, true>;
using AdaptiveMaxPool3d = AdaptivePool<3, true>;

}  // namespace weft::nn
