// Checks derivatives against central differences in f64. The bound is derived: the difference between two step sizes
// gives the truncation error; the function's rounding error divided by the step gives the rest.
#pragma once
#include "framework/dispatch/capture.h"
#include "framework/testing/values.h"

namespace weft::testing {

struct GradCheck {
  uint64_t seed = 1;      // seed of the projection of the outputs and of the choice of elements
  double roundings = 64;  // roundings on the way from an operand to a result, in units of the results' magnitude
  int64_t elements = 48;  // elements checked per operand (all if fewer), plus one random direction through all
  bool captured = false;  // differentiate inside capture, expand and interpret instead of over the tape
};

/// Checks grad() of every f64 input in `wrt` (empty: all inputs) against central differences of fn, and that each
/// gradient has its operand's type. fn takes and returns tensors; results that are not floating are ignored.
::testing::AssertionResult gradcheck(const TensorFn& fn, const std::vector<Tensor>& inputs,
                                     const GradCheck& options = {}, const std::vector<int>& wrt = {});
/// Same for the gradient function itself (second derivatives), differentiated with create_graph.
::testing::AssertionResult gradgradcheck(const TensorFn& fn, const std::vector<Tensor>& inputs,
                                         const GradCheck& options = {}, const std::vector<int>& wrt = {});

}  // namespace weft::testing
