// The dtype of a result whose operands are tensors and numbers.
#pragma once
#include <span>

#include "framework/dispatch/arg.h"

namespace weft {

/// PyTorch's result_type: tensors with dims first, then 0-d tensors, then numbers; a later class can only raise the
/// kind (bool, integer, float).
DType result_type(std::span<const Arg* const> args);

namespace internal {
/// The dtype of a computation with x for these weights: x's. Throws, naming `op`, if they are f64 and x is narrower:
/// the result would have x's digits. `what` begins the error for another operand than weights.
DType dtype_with(const Tensor& weights, const Tensor& x, const char* op, const char* what = "the weights are");
}  // namespace internal

}  // namespace weft
