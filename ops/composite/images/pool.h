// Pooling with PyTorch's arguments. Inputs are [N, C, spatial...] or, without a batch, [C, spatial...]. A stride of 0
// means a stride equal to kernel_size.
#pragma once
#include "framework/dispatch/arg.h"
#include "ops/composite/images/conv.h"

namespace weft {

/// The largest value of each window; NaN if there is one. The gradient goes to the first of equal values. Padding is
/// -inf, at most half of the kernel. If ceil_mode is set, windows that begin inside the input or the padding before it
/// may reach over the end.
Tensor max_pool1d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  const Sizes& dilation = 1, bool ceil_mode = false);
Tensor max_pool2d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  const Sizes& dilation = 1, bool ceil_mode = false);
Tensor max_pool3d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  const Sizes& dilation = 1, bool ceil_mode = false);

/// The mean of each window. Zeros of the padding count unless count_include_pad is false; places beyond it, which
/// ceil_mode adds, never do.
Tensor avg_pool1d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool2d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool3d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true);

/// Windows that cut each spatial dim into output_size parts: part i is [floor(i * n / out), ceil((i + 1) * n / out)).
Tensor adaptive_avg_pool1d(const Arg& x, const Sizes& output_size);
Tensor adaptive_avg_pool2d(const Arg& x, const Sizes& output_size);
Tensor adaptive_avg_pool3d(const Arg& x, const Sizes& output_size);
Tensor adaptive_max_pool1d(const Arg& x, const Sizes& output_size);
Tensor adaptive_max_pool2d(const Arg& x, const Sizes& output_size);
Tensor adaptive_max_pool3d(const Arg& x, const Sizes& output_size);

/// The columns [N, C * kernel elements, windows] of x [N, C, H, W], and the sum of such columns into [N, C,
/// output_size...].
Tensor unfold(const Arg& x, const Sizes& kernel_size, const Sizes& dilation = 1, const Sizes& padding = 0,
              const Sizes& stride = 1);
Tensor fold(const Arg& x, const Sizes& output_size, const Sizes& kernel_size, const Sizes& dilation = 1,
            const Sizes& padding = 0, const Sizes& stride = 1);

namespace internal {
/// The same for a number of spatial dims that the caller names, as `op`.
Tensor max_pool_nd(const char* op, int spatial, const Arg& x, const Sizes& kernel_size, const Sizes& stride,
                   const Sizes& padding, const Sizes& dilation, bool ceil_mode);
Tensor avg_pool_nd(const char* op, int spatial, const Arg& x, const Sizes& kernel_size, const Sizes& stride,
                   const Sizes& padding, bool ceil_mode, bool count_include_pad);
Tensor adaptive_pool_nd(const char* op, int spatial, const Arg& x, const Sizes& output_size, bool max);
}  // namespace internal

}  // namespace weft
