// Linear layer and cross-entropy in one: the logits exist a chunk of rows at a time, never all of them.
#pragma once
#include <cstdint>

#include "framework/tensor/view.h"

namespace weft::kernels {

/// Operands but w are contiguous; x and w share a floating dtype, C is f64 for f64, else f32.
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

/// Rows of logits held at once: follows from the number of classes alone. Each chunk reads and writes dw once, which
/// the products of 512 rows outweigh; 64 MiB of logits are the most.
int64_t linear_cross_entropy_rows(int64_t classes);
/// Sums run over the rows in order, chunk after chunk, so bits do not depend on the thread count; of f32 without bias
/// they are those of the ops one by one (more than 4 classes). Throws OutOfRange for a target that is neither a class
/// nor ignore_index. `workspace` has linear_cross_entropy_workspace bytes.
void linear_cross_entropy(const LinearCrossEntropy& c, void* workspace);
int64_t linear_cross_entropy_workspace(DType dtype, int64_t rows, int64_t classes, int64_t dim, bool gradients);

}  // namespace weft::kernels
