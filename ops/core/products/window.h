// Windows: overlapping pieces of a tensor as further dims, without a copy. Convolution, pooling and unfold read them.
#pragma once
#include <span>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

namespace internal {
/// How a dim is cut into windows of `size` elements: window i has elements i * stride + j * dilation.
struct Window {
  int64_t dim = 0, size = 1, stride = 1, dilation = 1;
};
}  // namespace internal

/// A view of x. A windowed dim counts the windows; after x's dims, one dim for each Window, in their order, counts the
/// elements of a window. [N, C, T] with {{2, k}} gives [N, C, T - k + 1, k].
Tensor windows(const Arg& x, std::span<const internal::Window> cuts);
/// The transpose of windows: every element of the result, whose shape is `shape`, is the sum of its copies in x.
Tensor window_sum(const Arg& x, const Shape& shape, std::span<const internal::Window> cuts);

extern const OpDef window_op;      // {dims, size, stride, dilation}: one entry for each windowed dim
extern const OpDef window_sum_op;  // {shape, dims, size, stride, dilation}
std::span<const OpDef* const> window_ops();

}  // namespace weft
