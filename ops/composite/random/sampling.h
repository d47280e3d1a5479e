// Random choices and permutations. Like rand, they depend only on seed, step and the op's ordinal.
#pragma once
#include "ops/core/creation.h"

namespace weft {

/// 0 to n - 1 in random order.
Tensor randperm(int64_t n, const TensorOptions& options = {.dtype = kInt64},
                std::source_location loc = std::source_location::current());
/// Exponentially distributed with this rate (mean 1 / rate).
Tensor exponential(const Shape& shape, double rate = 1, const TensorOptions& options = {},
                   std::source_location loc = std::source_location::current());
/// An error: random numbers in place do not exist.
template <std::convertible_to<Tensor> T>
Tensor exponential(const T&) {
  static_assert(sizeof(T) == 0, "exponential: got a tensor; need a shape: write x = exponential(x.shape(), rate)");
  return {};
}
/// Indices drawn with probabilities proportional to weights [categories] or [rows, categories]: i64 [samples] or
/// [rows, samples]. Weights are finite, not negative, and at least one (without replacement: `samples` of them) is
/// positive. Without replacement no index of a row occurs twice.
Tensor multinomial(const Arg& weights, int64_t samples, bool replacement = false);

}  // namespace weft
