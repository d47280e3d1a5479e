// Host numbers as arguments of compiled functions. Inside, such a number is a 0-d f32 value, so that no op gets another
// dtype from it than from a number of the host. Beside f64 it is the number itself, not rounded to f32: each number is
// known in f64, too, and so is what ops compute of such numbers only.
// Defined in pointwise.cc; a target of its own, because a header of ops/core is an input of most compilations.
#pragma once
#include "framework/tensor/tensor.h"

namespace weft::internal {

/// The 0-d f32 value that stands for `wide`, a 0-d f64 value, until the end of the innermost NumberScope.
Tensor number_of(const Tensor& wide);
size_t number_count();
/// Keeps the first `count` numbers only.
void forget_numbers(size_t count);

/// During its lifetime, the numbers of one call are known. Scopes nest: an inner one sees the outer numbers.
class NumberScope {
 public:
  NumberScope() : before_(number_count()) {}
  ~NumberScope() { forget_numbers(before_); }
  NumberScope(const NumberScope&) = delete;

 private:
  const size_t before_;
};

}  // namespace weft::internal
