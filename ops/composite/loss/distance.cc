#include "ops/composite/loss/distance.h"

#include <cmath>

#include "ops/composite/layers/activation.h"
#include "ops/composite/precision.h"
#include "ops/core/products/dot.h"

namespace weft {

using namespace internal;

namespace {

// x^power for x >= 0, with derivative 0 at 0.
Tensor root(const Tensor& x, double power) {
  const Tensor zero = le(x, 0.0), safe = where(zero, 1.0, x);
  return where(zero, 0.0, power == 0.5 ? sqrt(safe) : pow(safe, power));
}

// The norm in x's dtype, f32 or f64.
Tensor norm_of(const Tensor& x, double p, const Dims& dims, bool keepdim, const char* op) {
  WEFT_CHECK(!std::isnan(p), op, ": p is NaN; need a number");
  if (p == 2) return root(sum(square(x), dims, keepdim), 0.5);
  const Tensor a = abs(x);
  if (p == 1) return sum(a, dims, keepdim);
  if (p == 0) return sum(ne(x, 0.0).to(x.dtype()), dims, keepdim);
  if (std::isinf(p)) return p > 0 ? amax(a, dims, keepdim) : amin(a, dims, keepdim);
  if (p > 0) return root(sum(root(a, p), dims, keepdim), 1 / p);
  // 0 if an element is 0, with derivative 0; NaN stays.
  const Tensor none = eq(a, 0.0), safe = where(logical_and(any(none, dims, true), !isnan(a)), 1.0, a);
  const Tensor y = pow(sum(pow(safe, p), dims, keepdim), 1 / p);
  return where(any(none, dims, keepdim), y * 0.0, y);
}

OperandPair wide_pair(const Arg& x, const Arg& y, const char* op) {
  floating_of(x, op), floating_of(y, op);
  const OperandPair p = common(x, y, op);
  return {widened(p.a), widened(p.b)};
}

DType result_of(const Arg& x, const Arg& y) { return autocast_f32(promote(x.tensor().dtype(), y.tensor().dtype())); }

}  // namespace

Tensor norm(const Arg& x, double p, const Dims& dims, bool keepdim) {
  const F32Operand t(x, "norm");
  return norm_of(widened(t), p, dims, keepdim, "norm").to(t.dtype());
}

Tensor normalize(const Arg& x, double p, int64_t dim, double eps) {
  const F32Operand t(x, "normalize");
  const int d = normalize_dim(dim, t.dim(), "normalize");
  const Tensor v = widened(t);
  return (v / clamp_min(norm_of(v, p, d, true, "normalize"), eps)).to(t.dtype());
}

Tensor cosine_similarity(const Arg& x, const Arg& y, int64_t dim, double eps) {
  LineScope line(x.line());
  const auto [a, b] = wide_pair(x, y, "cosine_similarity");
  const int d = normalize_dim(dim, a.dim(), "cosine_similarity");
  const auto size = [&](const Tensor& t) { return clamp_min(norm_of(t, 2, d, false, "cosine_similarity"), eps); };
  return (sum(a * b, d) / (size(a) * size(b))).to(result_of(x, y));
}

Tensor pairwise_distance(const Arg& x, const Arg& y, double p, double eps, bool keepdim) {
  LineScope line(x.line());
  const auto [a, b] = wide_pair(x, y, "pairwise_distance");
  WEFT_CHECK(a.dim() > 0, "pairwise_distance: got scalars; need vectors along the last dim");
  return norm_of(a - b + eps, p, -1, keepdim, "pairwise_distance").to(result_of(x, y));
}

Tensor cdist(const Arg& x, const Arg& y, double p, std::string_view compute_mode) {
  LineScope line(x.line());
  const Tensor &tx = floating_of(x, "cdist"), &ty = floating_of(y, "cdist");
  WEFT_CHECK(tx.dim() >= 2 && ty.dim() >= 2 && tx.size(-1) == ty.size(-1), "cdist: got ", tx.shape(), " and ",
             ty.shape(), "; need [..., P, M] and [..., R, M]");
  WEFT_CHECK(p >= 0, "cdist: p is ", p, "; need 0 or more");
  const bool always = compute_mode == "use_mm_for_euclid_dist", never = compute_mode == "donot_use_mm_for_euclid_dist";
  WEFT_CHECK(always || never || compute_mode == "use_mm_for_euclid_dist_if_necessary", "cdist: compute_mode is '",
             compute_mode,
             "'; need \"use_mm_for_euclid_dist_if_necessary\", \"use_mm_for_euclid_dist\" or "
             "\"donot_use_mm_for_euclid_dist\"");
  const DType dtype = result_of(x, y);
  const Tensor a = widened(tx.to(dtype)), b = widened(ty.to(dtype));
  const Autocast off(std::nullopt);  // the product keeps the digits that the difference needs
  if (p == 2 && (always || (!never && (a.size(-2) > 25 || b.size(-2) > 25)))) {
    const Tensor squares = sum(square(a), -1, true) + unsqueeze(sum(square(b), -1), -2);
    return root(clamp_min(squares - matmul(a, transpose(b, -2, -1)) * 2.0, 0.0), 0.5).to(dtype);
  }
  const Tensor apart = unsqueeze(a, -2) - unsqueeze(b, -3);
  if (apart.size(-1) == 0) return sum(apart, -1).to(dtype);
  return norm_of(apart, p, -1, false, "cdist").to(dtype);
}

}  // namespace weft
