#include "ops/composite/loss/loss_margin.h"

#include <limits>

#include "ops/composite/layers/activation.h"
#include "ops/composite/loss/loss_parts.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"

namespace weft {

using namespace internal;

namespace {

// A target of any dtype, for arithmetic with `like`; f64 stays, so that no digit is lost.
Tensor number_target(const Tensor& t, const Tensor& like) { return t.dtype() == kFloat64 ? t : t.to(like.dtype()); }

// Targets of 1 and -1 may have any dtype.
Tensor sign_target(const Arg& target, const Tensor& like, const char* op) {
  const Tensor& t = tensor_of(target, op);
  WEFT_CHECK(t.dtype() != kBool, op, ": target is ", t.type(), "; need 1 and -1: target.to(kFloat32) * 2 - 1");
  return number_target(t, like);
}

// |d|_p over the last dim; the gradient at 0 is 0.
Tensor length(const Tensor& d, double p) {
  if (p == 1) return sum(abs(d), -1);
  if (p == std::numeric_limits<double>::infinity()) return amax(abs(d), -1);
  if (p == 2) {
    const Tensor s = sum(square(d), -1), some = ne(s, 0.0);
    return where(some, sqrt(where(some, s, 1.0)), 0.0);
  }
  const Tensor size = abs(d), used = ne(size, 0.0);
  const Tensor s = sum(where(used, pow(where(used, size, 1.0), p), 0.0), -1), some = ne(s, 0.0);
  return where(some, pow(where(some, s, 1.0), 1 / p), 0.0);
}

Tensor class_weights(const Tensor& weight, const Tensor& x, const char* op) {
  WEFT_CHECK(is_floating(weight.dtype()) && weight.shape() == Shape({x.shape().back()}), op, ": weight is ",
             weight.type(), "; need one floating-point number for each of ", x.shape().back(), " classes");
  return weight.to(dtype_with(weight, x, op));
}

void check_has_classes(const Tensor& x, const char* op) {
  WEFT_CHECK(x.dim() > 0 && x.shape().back() > 0, op, ": x is ", x.type(), "; need [..., classes]");
}

// 0, 1, ... below the number of classes.
Tensor class_names(const Tensor& x) { return arange(x.shape().back(), {.dtype = kInt64, .device = x.device()}); }

// scores[..., class], for classes of a smaller or equal number than scores.
Tensor pick(const Tensor& scores, const Tensor& classes, const char* op) {
  return look_up(gather_op, scores, -1, classes, weft::str_cat(op, ": a target is not a class"));
}

}  // namespace

Tensor hinge_embedding_loss(const Arg& x, const Arg& target, double margin, std::string_view reduction) {
  LineScope line(x.line());
  const char* op = "hinge_embedding_loss";
  const Tensor v = widened(floating_of(x, op)), t = sign_target(target, v, op);
  check_reduction(reduction, op);
  check_same(v, t, op);
  return reduced(where(ne(t, 1.0), clamp_min(margin - v, 0.0), 0.0) + where(ne(t, -1.0), v, 0.0), reduction);
}

Tensor margin_ranking_loss(const Arg& x1, const Arg& x2, const Arg& target, double margin, std::string_view reduction) {
  LineScope line(x1.line());
  const char* op = "margin_ranking_loss";
  Tensor a = widened(floating_of(x1, op)), b = widened(floating_of(x2, op)), t = sign_target(target, a, op);
  widen_together({&a, &b, &t});
  check_reduction(reduction, op);
  check_same(a, b, op, "x1", "x2");
  check_same(a, t, op, "x1");
  return reduced(clamp_min(margin - t * (a - b), 0.0), reduction);
}

Tensor soft_margin_loss(const Arg& x, const Arg& target, std::string_view reduction) {
  LineScope line(x.line());
  const char* op = "soft_margin_loss";
  Tensor v = widened(floating_of(x, op)), t = sign_target(target, v, op);
  widen_together({&v, &t});
  check_reduction(reduction, op);
  check_same(v, t, op);
  return reduced(-logsigmoid(t * v), reduction);
}

Tensor cosine_embedding_loss(const Arg& x1, const Arg& x2, const Arg& target, double margin,
                             std::string_view reduction) {
  LineScope line(x1.line());
  const char* op = "cosine_embedding_loss";
  Tensor a = floating_of(x1, op), b = floating_of(x2, op);
  widen_together({&a, &b});
  const Tensor t = sign_target(target, a, op);
  check_reduction(reduction, op);
  check_same(a, b, op, "x1", "x2");
  WEFT_CHECK(a.dim() > 0, op, ": x1 is ", a.type(), "; need vectors in the last dim");
  Shape want = a.shape();
  want.pop_back();
  WEFT_CHECK(t.shape() == want, op, ": target has shape ", t.shape(), " and x1 ", a.shape(), "; need target ", want);
  constexpr double kEps = 1e-12;  // PyTorch's
  const Tensor cosine = sum(a * b, -1) / sqrt((sum(square(a), -1) + kEps) * (sum(square(b), -1) + kEps));
  return reduced(where(eq(t, 1.0), 1.0 - cosine, 0.0) + where(eq(t, -1.0), clamp_min(cosine - margin, 0.0), 0.0),
                 reduction);
}

Tensor triplet_margin_loss(const Arg& anchor, const Arg& positive, const Arg& negative, const TripletMarginOptions& o) {
  LineScope line(anchor.line());
  const char* op = "triplet_margin_loss";
  Tensor a = floating_of(anchor, op), b = floating_of(positive, op), c = floating_of(negative, op);
  widen_together({&a, &b, &c});
  check_reduction(o.reduction, op);
  WEFT_CHECK(o.margin > 0, op, ": margin is ", o.margin, "; need a number above 0");
  WEFT_CHECK(o.p > 0, op, ": p is ", o.p, "; need a number above 0");
  WEFT_CHECK(a.dim() > 0 && (o.p < std::numeric_limits<double>::infinity() || a.shape().back() > 0), op, ": anchor is ",
             a.type(), "; need vectors in the last dim");
  check_same(a, b, op, "anchor", "positive");
  check_same(a, c, op, "anchor", "negative");
  Tensor far = length(a - c + o.eps, o.p);
  if (o.swap) far = minimum(far, length(b - c + o.eps, o.p));
  return reduced(clamp_min(length(a - b + o.eps, o.p) - far + o.margin, 0.0), o.reduction);
}

Tensor multi_margin_loss(const Arg& x, const Arg& target, const MultiMarginOptions& o) {
  LineScope line(x.line());
  const char* op = "multi_margin_loss";
  const Tensor v = widened(floating_of(x, op));
  const Tensor& t = tensor_of(target, op);
  check_reduction(o.reduction, op);
  WEFT_CHECK(o.p == 1 || o.p == 2, op, ": p is ", o.p, "; need 1 or 2");
  check_has_classes(v, op);
  Shape want = v.shape();
  want.pop_back();
  WEFT_CHECK(is_integral(t.dtype()) && t.shape() == want, op, ": target is ", t.type(), " and x ", v.type(),
             "; need integer classes of shape ", want);
  const Tensor own = unsqueeze(is_small_integer(t.dtype()) ? t.to(kInt64) : t, -1);
  Tensor z = clamp_min(o.margin - pick(v, own, op) + v, 0.0);
  if (o.p == 2) z = square(z);
  if (o.weight.defined()) z = z * class_weights(o.weight, v, op)[own];
  return reduced(mean(where(ne(own, class_names(v)), z, 0.0), -1), o.reduction);
}

Tensor multilabel_margin_loss(const Arg& x, const Arg& target, std::string_view reduction) {
  LineScope line(x.line());
  const char* op = "multilabel_margin_loss";
  const Tensor v = widened(floating_of(x, op));
  const Tensor& t = tensor_of(target, op);
  check_reduction(reduction, op);
  check_has_classes(v, op);
  WEFT_CHECK(is_integral(t.dtype()), op, ": target is ", t.type(), "; need integer classes");
  check_same(v, t, op);
  const Tensor classes = t.to(kInt64), listed = eq(cumsum(lt(classes, 0).to(kInt64), -1), 0);
  const Tensor own = where(listed, classes, 0);
  const Tensor names = class_names(v);
  const Tensor is_target = any(logical_and(unsqueeze(listed, -1), eq(unsqueeze(own, -1), names)), -2);
  // [..., j, i]: class j is a target, class i is not.
  const Tensor z = clamp_min(1.0 - unsqueeze(pick(v, own, op), -1) + unsqueeze(v, -2), 0.0);
  const Tensor counts = logical_and(unsqueeze(listed, -1), unsqueeze(logical_not(is_target), -2));
  return reduced(sum(where(counts, z, 0.0), {-2, -1}) / static_cast<double>(v.shape().back()), reduction);
}

Tensor multilabel_soft_margin_loss(const Arg& x, const Arg& target, const MultilabelSoftMarginOptions& o) {
  LineScope line(x.line());
  const char* op = "multilabel_soft_margin_loss";
  Tensor v = widened(floating_of(x, op)), t = number_target(tensor_of(target, op), v);
  widen_together({&v, &t});
  check_reduction(o.reduction, op);
  check_has_classes(v, op);
  check_same(v, t, op);
  Tensor loss = loss_of_logits(v, t);
  if (o.weight.defined()) loss = loss * class_weights(o.weight, v, op);
  return reduced(mean(loss, -1), o.reduction);
}

}  // namespace weft
