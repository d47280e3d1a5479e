// Convolutions with a 3 x 3 kernel by the algorithm F(2 x 2, 3 x 3) (Lavin, Gray: Fast Algorithms for Convolutional
// Neural Networks, 2015). Each tile of 2 x 2 results comes from 4 x 4 elements of the operand: 16 products of channels
// instead of 36. All is f32.
#pragma once
#include <cstdint>

#include "framework/tensor/view.h"

namespace weft::kernels {

/// Rows and columns of zeros ahead of the operand.
struct WinogradPadding {
  int64_t rows = 0, columns = 0;
};

/// y[n, i, j, o] = sum over k, l, c of x[n, i + k - rows, j + l - columns, c] w[o, c, k, l], where x is 0 outside. x is
/// [N, H, W, C] and w [O, C, 3, 3], with any strides; y is [N, I, J, O], contiguous. `flip` selects w[o, c, 2 - k, 2 -
/// l] instead. An infinity among the elements of a tile may give NaN in results that read it. `workspace` has
/// winograd_workspace bytes, 64-byte aligned.
void winograd(const StridedView& x, const StridedView& w, const StridedView& y, WinogradPadding padding, bool flip,
              void* workspace);
int64_t winograd_workspace(const StridedView& x, const StridedView& y);

/// The gradient of w for the gradient g of y: dw[o, c, k, l] = sum over n, i, j of x[n, i + k - rows, j + l - columns,
/// c] g[n, i, j, o]. x and g have any strides; dw is [O, C, 3, 3], contiguous.
void winograd_weight_gradient(const StridedView& x, const StridedView& g, const StridedView& dw,
                              WinogradPadding padding, void* workspace);
int64_t winograd_weight_gradient_workspace(const StridedView& x, const StridedView& g);

}  // namespace weft::kernels
