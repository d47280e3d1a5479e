// Shared by losses: the checks of their operands, and how the loss of each element becomes the result.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "ops/composite/precision.h"
#include "ops/core/reductions/reduce.h"

namespace weft::internal {

/// Throws unless reduction is "mean", "sum" or "none".
inline void check_reduction(std::string_view reduction, const char* op) {
  WEFT_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", op, ": reduction is '", reduction,
             "'; need \"mean\", \"sum\" or \"none\"");
}

inline Tensor reduced(const Tensor& loss, std::string_view reduction) {
  return reduction == "mean" ? mean(loss) : reduction == "sum" ? sum(loss) : loss;
}

/// Throws unless both have the same shape; the names are the operands' names.
inline void check_same(const Tensor& x, const Tensor& target, const char* op, const char* x_name = "x",
                       const char* target_name = "target") {
  WEFT_CHECK(x.shape() == target.shape(), op, ": ", x_name, " has shape ", x.shape(), " and ", target_name, " ",
             target.shape(), "; need equal shapes");
}

/// Converts the operands of a loss to the dtype in which it is computed: f64 if one of them is f64, as PyTorch promotes
/// them, otherwise f32 for 16-bit floats.
inline void widen_together(std::initializer_list<Tensor*> operands) {
  const bool wide = std::ranges::any_of(operands, [](const Tensor* t) { return t->dtype() == kFloat64; });
  for (Tensor* t : operands) *t = wide ? t->to(kFloat64) : widened(*t);
}

/// The operands of a loss in the dtype in which it is computed; throws unless they are floats of equal shape.
inline std::pair<Tensor, Tensor> loss_operands(const Arg& x, const Arg& target, std::string_view reduction,
                                               const char* op) {
  Tensor a = floating_of(x, op), b = floating_of(target, op);
  check_reduction(reduction, op);
  check_same(a, b, op);
  widen_together({&a, &b});
  return {a, b};
}

/// -(w t log sigmoid(x) + (1 - t) log sigmoid(-x)) for logits x; w undefined: 1. Each logarithm and its derivative keep
/// their digits where they are near 0: x - log sigmoid(x), the same as the second one, has none below -17 in f32.
inline Tensor loss_of_logits(const Tensor& x, const Tensor& t, const Tensor& w = {}) {
  const Tensor both = log1p(exp(neg(abs(x))));
  const Tensor of_one = both + maximum(neg(x), 0.0), of_none = both + maximum(x, 0.0);
  return (w.defined() ? w * t : t) * of_one + (1.0 - t) * of_none;
}

}  // namespace weft::internal
