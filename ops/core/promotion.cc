#include "ops/core/promotion.h"

namespace weft {

static int kind_of(DType t) { return is_floating(t) ? 2 : t == kBool ? 0 : 1; }

DType result_type(std::span<const Arg* const> args) {
  bool have = false;
  DType result{};
  auto consider = [&](DType t) {
    if (!have) {
      result = t;
      have = true;
    } else {
      result = promote(result, t);
    }
  };
  for (const Arg* a : args)
    if (a->is_tensor() && a->tensor().dim() > 0) consider(a->tensor().dtype());
  auto lower = [&](auto&& pick) {
    bool any = false;
    DType t{};
    for (const Arg* a : args) {
      DType d;
      if (!pick(*a, &d)) continue;
      t = any ? promote(t, d) : d;
      any = true;
    }
    if (!any) return;
    if (!have || kind_of(t) > kind_of(result)) {
      result = t;
      have = true;
    }
  };
  lower(
      [](const Arg& a, DType* d) { return a.is_tensor() && a.tensor().dim() == 0 && (*d = a.tensor().dtype(), true); });
  lower([](const Arg& a, DType* d) {
    if (a.is_tensor()) return false;
    *d = a.kind() == Arg::kFloat ? kFloat32 : a.kind() == Arg::kInt ? kInt64 : kBool;
    return true;
  });
  return result;
}

DType internal::dtype_with(const Tensor& weights, const Tensor& x, const char* op, const char* what) {
  WEFT_CHECK(weights.dtype() != kFloat64 || x.dtype() == kFloat64, op, ": ", what, " ", weights.type(),
             " and the input ", x.type(), ", whose few digits the result would have; need one dtype: x.to(kFloat64)");
  return x.dtype();
}

}  // namespace weft
