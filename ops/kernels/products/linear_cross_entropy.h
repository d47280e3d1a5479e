// A linear layer and cross-entropy in one kernel: a chunk of rows of logits exists at a time, never all of them.
#pragma once
#include <cstdint>

#include "framework/tensor/view.h"

namespace weft::kernels {

/// All operands but w are contiguous; x and w have the same floating dtype; C is f64 for f64, otherwise f32.
struct LinearCrossEntropy {
  StridedView x;        // [N, D]
  StridedView w;        // [V, D]
  StridedView targets;  // [N], i64 or i32
  StridedView bias;     // [V] of x's dtype; null address: none
  StridedView g;        // [N] of C: the gradient of each row's loss
  StridedView loss;     // [N] of C, out; (1 - s)(lse - l[t]) + s (lse - mean l) + z lse^2 of l = x w^T + bias, or 0
  bool gradients = false;
  StridedView dx;     // [N, D] of x's dtype, out
  StridedView dw;     // [V, D] of x's dtype, out
  StridedView dbias;  // [V] of x's dtype, out; null address: none
  int64_t ignore_index = -100;
  double smoothing = 0;  // s
  double z_loss = 0;     // z
};

/// Rows of logits that exist at once; depends only on the number of classes. Each chunk reads and writes dw once; with
/// 512 rows, the products cost more than that. At most 64 MiB of logits.
int64_t linear_cross_entropy_rows(int64_t classes);
/// Sums run over the rows in order, chunk after chunk, so bits do not depend on the thread count. In f32 without bias,
/// and with more than 4 classes, the bits equal the bits of the separate ops. Throws OutOfRange for a target that is
/// neither a class nor ignore_index. `workspace` has linear_cross_entropy_workspace bytes.
void linear_cross_entropy(const LinearCrossEntropy& c, void* workspace);
int64_t linear_cross_entropy_workspace(DType dtype, int64_t rows, int64_t classes, int64_t dim, bool gradients);

}  // namespace weft::kernels
