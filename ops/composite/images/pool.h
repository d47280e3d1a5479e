// Pooling with PyTorch's arguments. Inputs are [N, C, spatial...] or, without a batch, [C, spatial...]. A stride of 0
// means a stride equal to kernel_size.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"
#include "ops/composite/images/conv.h"
#include "ops/composite/math/reduction.h"

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

/// The same with the position of each value in the flattened spatial dims of x, i64: the first of equal values.
ValuesIndices max_pool1d_with_indices(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0,
                                      const Sizes& padding = 0, const Sizes& dilation = 1, bool ceil_mode = false);
ValuesIndices max_pool2d_with_indices(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0,
                                      const Sizes& padding = 0, const Sizes& dilation = 1, bool ceil_mode = false);
ValuesIndices max_pool3d_with_indices(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0,
                                      const Sizes& padding = 0, const Sizes& dilation = 1, bool ceil_mode = false);
/// The inverse: zeros of output_size (by default the smallest that such windows cut), with x's values at these
/// positions. If a position occurs twice, the last value stays.
Tensor max_unpool1d(const Arg& x, const Arg& indices, const Sizes& kernel_size, const Sizes& stride = 0,
                    const Sizes& padding = 0, const Shape& output_size = {});
Tensor max_unpool2d(const Arg& x, const Arg& indices, const Sizes& kernel_size, const Sizes& stride = 0,
                    const Sizes& padding = 0, const Shape& output_size = {});
Tensor max_unpool3d(const Arg& x, const Arg& indices, const Sizes& kernel_size, const Sizes& stride = 0,
                    const Sizes& padding = 0, const Shape& output_size = {});

/// The mean of each window. Zeros of the padding count unless count_include_pad is false; places beyond it, which
/// ceil_mode adds, never do. divisor_override replaces the number of elements.
Tensor avg_pool1d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool2d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true, std::optional<int64_t> divisor_override = {});
Tensor avg_pool3d(const Arg& x, const Sizes& kernel_size, const Sizes& stride = 0, const Sizes& padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true, std::optional<int64_t> divisor_override = {});

/// Windows that cut each spatial dim into output_size parts: part i is [floor(i * n / out), ceil((i + 1) * n / out)).
Tensor adaptive_avg_pool1d(const Arg& x, const Sizes& output_size);
Tensor adaptive_avg_pool2d(const Arg& x, const Sizes& output_size);
Tensor adaptive_avg_pool3d(const Arg& x, const Sizes& output_size);
Tensor adaptive_max_pool1d(const Arg& x, const Sizes& output_size);
Tensor adaptive_max_pool2d(const Arg& x, const Sizes& output_size);
Tensor adaptive_max_pool3d(const Arg& x, const Sizes& output_size);
ValuesIndices adaptive_max_pool1d_with_indices(const Arg& x, const Sizes& output_size);
ValuesIndices adaptive_max_pool2d_with_indices(const Arg& x, const Sizes& output_size);
ValuesIndices adaptive_max_pool3d_with_indices(const Arg& x, const Sizes& output_size);

/// The columns [N, C * kernel elements, windows] of x [N, C, H, W], and the sum of such columns into [N, C,
/// output_size...].
Tensor unfold(const Arg& x, const Sizes& kernel_size, const Sizes& dilation = 1, const Sizes& padding = 0,
              const Sizes& stride = 1);
Tensor fold(const Arg& x, const Sizes& output_size, const Sizes& kernel_size, const Sizes& dilation = 1,
            const Sizes& padding = 0, const Sizes& stride = 1);

namespace internal {
/// The same for a number of spatial dims that the caller names, as `op`. If `at` is given, it becomes the positions of
/// the values.
Tensor max_pool_nd(const char* op, int spatial, const Arg& x, const Sizes& kernel_size, const Sizes& stride,
                   const Sizes& padding, const Sizes& dilation, bool ceil_mode, Tensor* at = nullptr);
Tensor max_unpool_nd(const char* op, int spatial, const Arg& x, const Arg& indices, const Sizes& kernel_size,
                     const Sizes& stride, const Sizes& padding, const Shape& output_size);
Tensor avg_pool_nd(const char* op, int spatial, const Arg& x, const Sizes& kernel_size, const Sizes& stride,
                   const Sizes& padding, bool ceil_mode, bool count_include_pad,
                   std::optional<int64_t> divisor_override = {});
Tensor adaptive_pool_nd(const char* op, int spatial, const Arg& x, const Sizes& output_size, bool max,
                        Tensor* at = nullptr);
}  // namespace internal

}  // namespace weft
