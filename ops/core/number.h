// Host numbers as arguments of compiled functions. Inside, such a number is a 0-d f32 value, so that no op gets another
// dtype from it than from a number of the host. Beside f64 it is the number itself, without rounding to f32: each
// number is known in f64 too, and so are the results of ops on such numbers alone.
// This header is a target of its own, because a header of ops/core is an input of most compilations.
#pragma once
#include <utility>
#include <vector>

#include "framework/dispatch/state/state.h"
#include "framework/tensor/tensor.h"

namespace weft::internal {

/// The numbers of one compiled call on this thread, known during its lifetime. Scopes nest: an inner scope sees the
/// numbers of the outer ones.
class NumberScope {
 public:
  NumberScope() : outer_(std::exchange(thread_state.numbers, this)) {}
  ~NumberScope() { thread_state.numbers = outer_; }
  NumberScope(const NumberScope&) = delete;

  /// Makes `narrow`, a 0-d f32 value, stand for `wide`, the same number in f64.
  void add(const Tensor& narrow, const Tensor& wide) { numbers_.emplace_back(narrow, wide); }
  /// The f64 number that `t` stands for, here or in an outer scope; null: none.
  const Tensor* wide(const Tensor& t) const;

 private:
  std::vector<std::pair<Tensor, Tensor>> numbers_;
  NumberScope* const outer_;
};

/// The 0-d f32 value that stands for `wide`, a 0-d f64 value, in the innermost NumberScope, which must exist.
Tensor number_of(const Tensor& wide);

}  // namespace weft::internal
