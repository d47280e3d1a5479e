#include "ops/composite/loss.h"

#include "ops/composite/activation.h"
#include "ops/composite/precision.h"
#include "ops/composite/softmax.h"
#include "ops/core/index.h"
#include "ops/core/reduce.h"
#include "ops/core/view.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;
using internal::tensor_of;
using internal::widened;

namespace {

void check_reduction(std::string_view reduction, const char* op) {
  WEFT_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", op, ": reduction is '", reduction,
             "'; need \"mean\", \"sum\" or \"none\"");
}

Tensor reduced(const Tensor& loss, std::string_view reduction) {
  return reduction == "mean" ? mean(loss) : reduction == "sum" ? sum(loss) : loss;
}

// Class targets: which ones count, and class indices for gather (0 where a target is ignored).
struct Targets {
  Tensor counts;   // bool
  Tensor classes;  // i64 or i32
  const char* op;
  Targets(const Tensor& scores, const Tensor& targets, int64_t ignore_index, const char* name) : op(name) {
    WEFT_CHECK(scores.dim() >= 1, op, ": got ", scores.type(), "; need classes in the last dim");
    Shape want = scores.shape();
    want.pop_back();
    WEFT_CHECK(is_integral(targets.dtype()), op, ": targets are ", targets.type(), "; need integer classes");
    WEFT_CHECK(targets.shape() == want, op, ": scores ", scores.type(), " with targets of shape ", targets.shape(),
               "; need ", want, ": classes are the last dim of the scores", hint(scores, targets));
    const Tensor t = targets.dtype() == kUInt8 ? targets.to(kInt64) : targets;
    counts = ne(t, ignore_index);
    classes = where(counts, t, 0);
  }
  // PyTorch has the classes of K-dimensional scores in dim 1.
  static std::string hint(const Tensor& scores, const Tensor& targets) {
    if (scores.dim() < 3) return "";
    Shape torch = scores.shape();
    torch.erase(1);
    return torch == targets.shape() ? "; these have them in dim 1, as in PyTorch: use movedim(scores, 1, -1)" : "";
  }
  /// scores[..., class].
  Tensor pick(const Tensor& scores) const {
    try {
      return squeeze(gather(scores, -1, unsqueeze(classes, -1)), -1);
    } catch (const Error& e) {
      if (e.code() != Code::kOutOfRange) throw;
      throw Error(e.code(), weft::str_cat(op, ": a target is not a class: ", e.what()));
    }
  }
  Tensor reduce(const Tensor& loss, std::string_view reduction) const {
    const Tensor kept = where(counts, loss, 0.0);
    if (reduction == "none") return kept;
    return reduction == "sum" ? sum(kept) : sum(kept) / sum(counts).to(kept.dtype());
  }
};

void check_same(const Tensor& x, const Tensor& target, const char* op) {
  WEFT_CHECK(x.shape() == target.shape(), op, ": x has shape ", x.shape(), " and target ", target.shape(),
             "; need equal shapes");
}

}  // namespace

Tensor cross_entropy(const Arg& logits, const Arg& targets, const CrossEntropyOptions& options) {
  LineScope line(logits.line());
  const Tensor& scores = floating_of(logits, "cross_entropy");
  const Tensor& target = tensor_of(targets, "cross_entropy");
  check_reduction(options.reduction, "cross_entropy");
  const double s = options.label_smoothing;
  WEFT_CHECK(s >= 0 && s <= 1, "cross_entropy: label_smoothing is ", s, "; need a number from 0 to 1");
  const Tensor x = widened(scores);
  if (is_floating(target.dtype())) {
    check_same(x, target, "cross_entropy");
    Tensor p = target.to(x.dtype());
    if (s > 0) p = p * (1 - s) + s / static_cast<double>(x.shape().back());
    const Tensor lse = logsumexp(x, -1, true);
    Tensor loss = sum(p * (lse - x), -1);
    if (options.z_loss != 0) loss = loss + square(squeeze(lse, -1)) * options.z_loss;
    return reduced(loss, options.reduction);
  }
  const Targets t(x, target, options.ignore_index, "cross_entropy");
  const Tensor lse = logsumexp(x, -1);
  Tensor loss = lse - t.pick(x);
  if (s > 0) loss = loss * (1 - s) + (lse - mean(x, -1)) * s;
  if (options.z_loss != 0) loss = loss + square(lse) * options.z_loss;
  return t.reduce(loss, options.reduction);
}

Tensor nll_loss(const Arg& log_probs, const Arg& targets, const LossOptions& options) {
  LineScope line(log_probs.line());
  const Tensor& scores = floating_of(log_probs, "nll_loss");
  const Tensor& target = tensor_of(targets, "nll_loss");
  check_reduction(options.reduction, "nll_loss");
  const Tensor x = widened(scores);
  const Targets t(x, target, options.ignore_index, "nll_loss");
  return t.reduce(-t.pick(x), options.reduction);
}

namespace {

// A loss of the difference of x and target, in the dtype of the sum.
template <class F>
Tensor difference_loss(const Arg& x, const Arg& target, std::string_view reduction, const char* op, const F& loss) {
  LineScope line(x.line());
  const Tensor &a = floating_of(x, op), &b = floating_of(target, op);
  check_reduction(reduction, op);
  check_same(a, b, op);
  return reduced(loss(widened(a) - widened(b)), reduction);
}

}  // namespace

Tensor mse_loss(const Arg& x, const Arg& target, std::string_view reduction) {
  return difference_loss(x, target, reduction, "mse_loss", [](const Tensor& d) { return square(d); });
}

Tensor l1_loss(const Arg& x, const Arg& target, std::string_view reduction) {
  return difference_loss(x, target, reduction, "l1_loss", [](const Tensor& d) { return abs(d); });
}

Tensor binary_cross_entropy_with_logits(const Arg& x, const Arg& target, std::string_view reduction) {
  LineScope line(x.line());
  const char* op = "binary_cross_entropy_with_logits";
  const Tensor &a = floating_of(x, op), &b = floating_of(target, op);
  check_reduction(reduction, op);
  check_same(a, b, op);
  const Tensor v = widened(a);
  return reduced((1.0 - widened(b)) * v - logsigmoid(v), reduction);
}

}  // namespace weft
