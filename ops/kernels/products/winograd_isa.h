// The transforms of Winograd's convolution (winograd.h), per instruction set. Keep this small: it must not bring inline
// code of others into the files of an instruction set.
#pragma once
#include <cstdint>

namespace weft::kernels {

/// Lines of n elements that the transforms read and write. No sum has another order on another instruction set.
struct WinogradFns {
  /// The 4 x 4 lines x of a tile of the operand to the 16 lines out + i * stride.
  void (*operand)(const float* const* x, int64_t n, float* out, int64_t stride);
  /// The 2 x 2 lines g of a tile of the result's gradient to the 16 lines out + i * stride.
  void (*gradient)(const float* const* g, int64_t n, float* out, int64_t stride);
  /// The 16 lines m + i * stride of a tile to its 2 x 2 outputs, the last one first: where addresses are equal, the
  /// earlier result stays.
  void (*output)(const float* m, int64_t stride, int64_t n, float* const* out);
  /// The 9 lines w[0] to w[8] of a kernel to the 16 lines out + i * stride.
  void (*weight)(const float* const* w, int64_t n, float* out, int64_t stride);
  /// The 16 lines m + i * stride of a weight's gradient to its 9 lines out + i * n.
  void (*weight_gradient)(const float* m, int64_t stride, int64_t n, float* out);
};

namespace baseline {
const WinogradFns& winograd_fns();
}
namespace avx2 {
const WinogradFns& winograd_fns();
}
namespace avx512 {
const WinogradFns& winograd_fns();
}

}  // namespace weft::kernels
