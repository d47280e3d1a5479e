// An operand along one of its dims, where a 0-d operand has one.
#pragma once
#include "ops/core/indexing/view.h"

namespace weft::internal {

/// t, or a 0-d t as [1].
inline Tensor one_dim(const Tensor& t) { return t.dim() == 0 ? reshape(t, {1}) : t; }

/// x along `dim`. A 0-d x is [1] here, as in PyTorch: its dim is 0 or -1. Throws OutOfRange, naming `op`, for other dims.
struct Along {
  Tensor x;
  int dim;
  bool scalar;  // x was 0-d

  Along(const Tensor& given, int64_t d, const char* op)
      : x(one_dim(given)), dim(normalize_dim(d, given.dim(), op)), scalar(given.dim() == 0) {}
  /// A result that has x's dims, without the dim that was added.
  Tensor result(const Tensor& y) const { return scalar && y.numel() == 1 ? reshape(y, {}) : y; }
};

}  // namespace weft::internal
