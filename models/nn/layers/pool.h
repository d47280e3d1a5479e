// Pooling layers with PyTorch's arguments; they have no parameters.
#pragma once
#include <concepts>

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
  std::optional<int64_t> divisor_override = {};  // in place of the number of elements of a window
};

/// The options select the kind of pooling.
template <int N, class Options>
class Pool : public Module {
 public:
  explicit Pool(const Sizes& kernel_size, const Options& options = {}) : kernel_size_(kernel_size), options_(options) {}
  /// PyTorch's next arguments: MaxPool2d(3, 2) and MaxPool2d(3, 2, 1).
  template <std::integral S>
  Pool(const Sizes& kernel_size, S stride, const Sizes& padding = 0)
      : Pool(kernel_size, Options{.stride = stride, .padding = padding}) {}
  Tensor operator()(const Arg& x) const;
  /// PyTorch's return_indices: the values, and their positions for MaxUnpool.
  ValuesIndices with_indices(const Arg& x) const requires std::is_same_v<Options, MaxPoolOptions>;

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

struct MaxUnpoolOptions {
  Sizes stride = 0;  // 0: the kernel's size
  Sizes padding = 0;
};
/// The inverse of MaxPool: zeros with x's values at the positions that with_indices() gave.
template <int N>
class MaxUnpool : public Module {
 public:
  explicit MaxUnpool(const Sizes& kernel_size, const MaxUnpoolOptions& options = {})
      : kernel_size_(kernel_size), options_(options) {}
  /// output_size: by default the smallest that such windows cut.
  Tensor operator()(const Arg& x, const Arg& indices, const Shape& output_size = {}) const;

 private:
  Sizes kernel_size_;
  MaxUnpoolOptions options_;
};
using MaxUnpool1d = MaxUnpool<1>;
using MaxUnpool2d = MaxUnpool<2>;
using MaxUnpool3d = MaxUnpool<3>;

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
