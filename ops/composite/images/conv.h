// Convolutions with PyTorch's arguments. Inputs are [N, C, spatial...] or, without a batch, [C, spatial...].
#pragma once
#include <concepts>
#include <string>
#include <type_traits>

#include "framework/dispatch/arg.h"

namespace weft {

/// One number for all spatial dims, or one for each.
struct Sizes : Shape {
  Sizes(std::integral auto n) : Shape({static_cast<int64_t>(n)}) {}
  Sizes(std::initializer_list<int64_t> n) : Shape(n) {}
  Sizes(const Shape& n) : Shape(n) {}
  /// The numbers for `spatial` dims; throws, naming `op` and `what`, on another count.
  Shape of(int spatial, const char* op, const char* what) const;
};

namespace internal {
/// Zeros around the input: numbers as Sizes, "valid" for none, or "same" for a result of the input's extents (with a
/// stride of 1; an odd zero comes after the input).
struct Padding {
  Padding(std::integral auto n) : sizes(n) {}
  Padding(std::initializer_list<int64_t> n) : sizes(n) {}
  Padding(const Sizes& n) : sizes(n) {}
  Padding(const char* name) : sizes(0), name(name) {}
  Sizes sizes;
  std::string name;  // "": the numbers
};

struct NoBias {};
}  // namespace internal

/// Cross-correlation of x with weight[out channels, C / groups, kernel...], plus bias[out channels] if defined. weight
/// and bias are converted to x's dtype.
Tensor conv1d(const Arg& x, const Arg& weight, const Arg& bias = Tensor(), const Sizes& stride = 1,
              const internal::Padding& padding = 0, const Sizes& dilation = 1, int64_t groups = 1);
Tensor conv2d(const Arg& x, const Arg& weight, const Arg& bias = Tensor(), const Sizes& stride = 1,
              const internal::Padding& padding = 0, const Sizes& dilation = 1, int64_t groups = 1);
Tensor conv3d(const Arg& x, const Arg& weight, const Arg& bias = Tensor(), const Sizes& stride = 1,
              const internal::Padding& padding = 0, const Sizes& dilation = 1, int64_t groups = 1);
// Without a bias, written as {}: conv2d(x, weight, {}, stride).
#define WEFT_CONV(name)                                                                                     \
  inline Tensor name(const Arg& x, const Arg& weight, internal::NoBias, const Sizes& stride = 1,            \
                     const internal::Padding& padding = 0, const Sizes& dilation = 1, int64_t groups = 1) { \
    return name(x, weight, Tensor(), stride, padding, dilation, groups);                                    \
  }
WEFT_CONV(conv1d)
WEFT_CONV(conv2d)
WEFT_CONV(conv3d)
#undef WEFT_CONV

/// The transpose of the convolution with these arguments, for weight[C, out channels / groups, kernel...]. The result's
/// extents are the smallest whose convolution has x's extents, plus output_padding.
Tensor conv_transpose1d(const Arg& x, const Arg& weight, const Arg& bias = Tensor(), const Sizes& stride = 1,
                        const Sizes& padding = 0, const Sizes& output_padding = 0, int64_t groups = 1,
                        const Sizes& dilation = 1);
Tensor conv_transpose2d(const Arg& x, const Arg& weight, const Arg& bias = Tensor(), const Sizes& stride = 1,
                        const Sizes& padding = 0, const Sizes& output_padding = 0, int64_t groups = 1,
                        const Sizes& dilation = 1);
Tensor conv_transpose3d(const Arg& x, const Arg& weight, const Arg& bias = Tensor(), const Sizes& stride = 1,
                        const Sizes& padding = 0, const Sizes& output_padding = 0, int64_t groups = 1,
                        const Sizes& dilation = 1);

namespace internal {
/// The same for a number of spatial dims that the caller names, as `op`.
Tensor conv_nd(const char* op, int spatial, const Arg& x, const Arg& weight, const Arg& bias, const Sizes& stride,
               const Padding& padding, const Sizes& dilation, int64_t groups);
Tensor conv_transpose_nd(const char* op, int spatial, const Arg& x, const Arg& weight, const Arg& bias,
                         const Sizes& stride, const Sizes& padding, const Sizes& output_padding, int64_t groups,
                         const Sizes& dilation);
}  // namespace internal

}  // namespace weft
