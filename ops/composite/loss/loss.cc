#include "ops/composite/loss/loss.h"

#include <atomic>

#include "framework/autodiff/grad.h"
#include "ops/composite/layers/activation.h"
#include "ops/composite/layers/softmax.h"
#include "ops/composite/loss/loss_parts.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/reductions/log_sum_exp.h"

namespace weft {

using namespace internal;

namespace {

// Scores with the classes in the last dim, and their targets.
struct Classes {
  Tensor scores;
  int64_t dim = 0;  // where the classes were
  Classes(const Tensor& x, const Tensor& targets, std::optional<int64_t> given, const char* op) : scores(x) {
    const int n = x.dim();
    WEFT_CHECK(n >= 1, op, ": got ", x.type(), "; need a dim with the classes");
    dim = given.value_or(-1);
    WEFT_CHECK(dim >= -n && dim < n, op, ": dim is ", dim, " for scores ", x.type(), "; need ", -n, " to ", n - 1);
    if (dim < 0) dim += n;
    if (!given && n > 2 && fits(x.shape(), targets, n - 1) && fits(x.shape(), targets, 1)) warn_once(targets, op);
    if (dim != n - 1) scores = movedim(x, dim, -1);
  }
  int64_t count() const { return scores.shape().back(); }
  // Warns once in a process: a training loop would repeat the warning in every step.
  void warn_once(const Tensor& targets, const char* op) const {
    static std::atomic<bool> said = false;
    if (said.exchange(true)) return;
    warn(weft::str_cat(op, ": the classes of scores ", scores.type(), " with targets ", targets.type(),
                       " can be the last dim or dim 1; took the last one: give {.dim = -1} or {.dim = 1}",
                       origin_text(origin.line ? *origin.line : SourceLine(), origin_path())));
  }
  /// Whether these targets fit scores with the classes in `dim`.
  static bool fits(const Shape& scores, const Tensor& targets, int dim) {
    if (is_floating(targets.dtype())) return targets.shape() == scores;
    Shape want = scores;
    want.erase(dim);
    return targets.shape() == want;
  }
  /// The weights of the classes in the dtype of the scores, which must not narrow them.
  Tensor weights(const Tensor& weight, const char* op) const {
    WEFT_CHECK(is_floating(weight.dtype()) && weight.shape() == Shape({count()}), op, ": weight is ", weight.type(),
               "; need one floating-point number for each of ", count(), " classes");
    return weight.to(dtype_with(weight, scores, op));
  }
};

// Class targets: which ones count, and class indices for gather (0 where a target is ignored).
struct ClassTargets {
  Tensor counts;   // bool
  Tensor classes;  // i64 or i32
  Tensor weights;  // weight of the target of each row; undefined without class weights
  const char* op;
  ClassTargets(const Classes& c, const Tensor& targets, int64_t ignore_index, const char* name) : op(name) {
    const Tensor& scores = c.scores;
    Shape want = scores.shape();
    want.pop_back();
    WEFT_CHECK(is_integral(targets.dtype()), op, ": targets are ", targets.type(), "; need integer classes");
    WEFT_CHECK(targets.shape() == want, op, ": scores ", type_of(c), " with targets of shape ", targets.shape(),
               "; need ", want, ": classes are ", place_of(c), hint(c, targets));
    const Tensor t = is_small_integer(targets.dtype()) ? targets.to(kInt64) : targets;
    counts = ne(t, ignore_index);
    classes = where(counts, t, 0);
  }
  static TensorType type_of(const Classes& c) {
    TensorType type = c.scores.type();
    const int64_t n = type.shape.back();
    type.shape.pop_back();
    type.shape.insert(static_cast<int>(c.dim), n);
    return type;
  }
  static std::string place_of(const Classes& c) {
    return c.dim == c.scores.dim() - 1 ? "the last dim of the scores" : weft::str_cat("dim ", c.dim, " of the scores");
  }
  // PyTorch has the classes of K-dimensional scores in dim 1.
  static std::string hint(const Classes& c, const Tensor& targets) {
    if (c.scores.dim() < 3 || !Classes::fits(type_of(c).shape, targets, 1)) return "";
    return "; these have them in dim 1, as in PyTorch: give {.dim = 1}";
  }
  /// scores[..., class].
  Tensor pick(const Tensor& scores) const {
    const std::string what = weft::str_cat(op, ": a target is not a class");
    return squeeze(look_up(gather_op, scores, -1, unsqueeze(classes, -1), what), -1);
  }
  Tensor reduce(const Tensor& loss, std::string_view reduction) const {
    const Tensor kept = where(counts, loss, 0.0);
    if (reduction == "none") return kept;
    if (reduction == "sum") return sum(kept);
    return sum(kept) / (weights.defined() ? sum(where(counts, weights, 0.0)) : sum(counts).to(kept.dtype()));
  }
};

}  // namespace

Tensor cross_entropy(const Arg& logits, const Arg& targets, const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  const FloatingOperand scores(logits, op);
  const Tensor& target = tensor_of(targets, op);
  check_reduction(options.reduction, op);
  const double s = options.label_smoothing;
  WEFT_CHECK(s >= 0 && s <= 1, op, ": label_smoothing is ", s, "; need a number from 0 to 1");
  Tensor wide = scores, likely = target;
  const bool probabilities = is_floating(target.dtype());
  if (probabilities) {
    widen_together({&wide, &likely});
  } else {
    wide = widened(wide);
  }
  const Classes classes(wide, target, options.dim, op);
  const Tensor& x = classes.scores;
  const double share = s / static_cast<double>(classes.count());
  const Tensor weight = options.weight.defined() ? classes.weights(options.weight, op) : Tensor();
  if (probabilities) {
    WEFT_CHECK(target.shape() == scores.shape(), op, ": targets are ", target.type(), " for scores ", scores.type(),
               "; need integer classes, as in targets.to(kInt64), or a probability for each score");
    Tensor p = classes.dim == x.dim() - 1 ? likely : movedim(likely, classes.dim, -1);
    if (s > 0) p = p * (1 - s) + share;
    const LogSumExp l = log_sum_exp(x, -1, true);
    Tensor loss = sum((weight.defined() ? p * weight : p) * (l.log_sum + (l.shift - x)), -1);
    if (options.z_loss != 0) loss = loss + square(squeeze(l.log_sum + l.shift, -1)) * options.z_loss;
    return reduced(loss, options.reduction);
  }
  ClassTargets t(classes, target, options.ignore_index, op);
  // Logits are subtracted from the shift first: equal logits give log(classes), however large they are.
  const LogSumExp l = log_sum_exp(x, -1);
  Tensor loss = l.log_sum + (l.shift - t.pick(x));
  if (!weight.defined()) {
    if (s > 0) loss = loss * (1 - s) + (l.log_sum + mean(unsqueeze(l.shift, -1) - x, -1)) * s;
    if (options.z_loss != 0) loss = loss + square(l.log_sum + l.shift) * options.z_loss;
    return t.reduce(loss, options.reduction);
  }
  t.weights = weight[t.classes];
  loss = loss * (1 - s);
  if (options.z_loss != 0) loss = loss + square(l.log_sum + l.shift) * options.z_loss;
  loss = loss * t.weights;
  if (s > 0) loss = loss + sum(weight * (unsqueeze(l.log_sum, -1) + (unsqueeze(l.shift, -1) - x)), -1) * share;
  return t.reduce(loss, options.reduction);
}

Tensor nll_loss(const Arg& log_probs, const Arg& targets, const LossOptions& options) {
  const char* op = "nll_loss";
  const FloatingOperand scores(log_probs, op);
  const Tensor& target = tensor_of(targets, op);
  check_reduction(options.reduction, op);
  const Classes classes(widened(scores), target, options.dim, op);
  ClassTargets t(classes, target, options.ignore_index, op);
  Tensor loss = -t.pick(classes.scores);
  if (options.weight.defined()) {
    t.weights = classes.weights(options.weight, op)[t.classes];
    loss = loss * t.weights;
  }
  return t.reduce(loss, options.reduction);
}

// A loss of the difference of x and target, in the dtype of the sum.
template <class F>
static Tensor difference_loss(const Arg& x, const Arg& target, std::string_view reduction, const char* op,
                              const F& loss) {
  LineScope line(x.line());
  const auto [v, t] = loss_operands(x, target, reduction, op);
  return reduced(loss(v - t), reduction);
}

Tensor mse_loss(const Arg& x, const Arg& target, std::string_view reduction) {
  return difference_loss(x, target, reduction, "mse_loss", [](const Tensor& d) { return square(d); });
}

Tensor l1_loss(const Arg& x, const Arg& target, std::string_view reduction) {
  return difference_loss(x, target, reduction, "l1_loss", [](const Tensor& d) { return abs(d); });
}

Tensor huber_loss(const Arg& x, const Arg& target, std::string_view reduction, double delta) {
  LineScope line(x.line());
  WEFT_CHECK(delta > 0, "huber_loss: delta is ", delta, "; need a number above 0");
  return difference_loss(x, target, reduction, "huber_loss", [&](const Tensor& d) {
    const Tensor size = abs(d);
    return where(lt(size, delta), square(d) * 0.5, (size - delta / 2) * delta);
  });
}

Tensor smooth_l1_loss(const Arg& x, const Arg& target, std::string_view reduction, double beta) {
  LineScope line(x.line());
  WEFT_CHECK(beta >= 0, "smooth_l1_loss: beta is ", beta, "; need a number >= 0");
  return difference_loss(x, target, reduction, "smooth_l1_loss", [&](const Tensor& d) {
    const Tensor size = abs(d);
    return beta == 0 ? size : where(lt(size, beta), square(d) * (0.5 / beta), size - beta / 2);
  });
}

namespace {

// `weight` in the dtype of `loss`, which it must broadcast to and which must not narrow it.
Tensor weight_for(const Tensor& loss, const Tensor& weight, const char* name, const char* op) {
  WEFT_CHECK(is_floating(weight.dtype()), op, ": ", name, " is ", weight.type(), "; need a floating-point dtype");
  bool fits = weight.dim() <= loss.dim();
  for (int d = 1; fits && d <= weight.dim(); ++d) fits = weight.size(-d) == 1 || weight.size(-d) == loss.size(-d);
  WEFT_CHECK(fits, op, ": ", name, " has shape ", weight.shape(), "; need one that broadcasts to ", loss.shape());
  return weight.to(dtype_with(weight, loss, op));
}

Tensor weighted(const Tensor& loss, const BinaryCrossEntropyOptions& o, const char* op) {
  return reduced(o.weight.defined() ? loss * weight_for(loss, o.weight, "weight", op) : loss, o.reduction);
}

}  // namespace

Tensor binary_cross_entropy_with_logits(const Arg& x, const Arg& target, std::string_view reduction) {
  LineScope line(x.line());
  return binary_cross_entropy_with_logits(x, target, {.reduction = reduction});
}

Tensor binary_cross_entropy_with_logits(const Arg& x, const Arg& target, const BinaryCrossEntropyOptions& o) {
  LineScope line(x.line());
  const char* op = "binary_cross_entropy_with_logits";
  const auto [v, t] = loss_operands(x, target, o.reduction, op);
  if (!o.pos_weight.defined()) return weighted(loss_of_logits(v, t), o, op);
  return weighted(loss_of_logits(v, t, weight_for(v, o.pos_weight, "pos_weight", op)), o, op);
}

Tensor binary_cross_entropy(const Arg& x, const Arg& target, std::string_view reduction) {
  LineScope line(x.line());
  return binary_cross_entropy(x, target, {.reduction = reduction});
}

Tensor binary_cross_entropy(const Arg& x, const Arg& target, const BinaryCrossEntropyOptions& o) {
  LineScope line(x.line());
  const char* op = "binary_cross_entropy";
  const auto [v, t] = loss_operands(x, target, o.reduction, op);
  dtype_with(target.tensor(), x.tensor(), op, "the target is");
  WEFT_CHECK(!o.pos_weight.defined(), op, ": got pos_weight; need binary_cross_entropy_with_logits for it");
  // The derivative of the clamped logarithms is 0 or infinite where x is 0 or 1; PyTorch's is large and finite.
  const auto logs = [](const Tensor& p) { return std::pair(clamp_min(log(p), -100.0), clamp_min(log1p(-p), -100.0)); };
  const CustomGrad loss(
      [&](std::span<const Tensor> in) {
        const auto [yes, no] = logs(in[0]);
        return std::vector<Tensor>{(in[1] - 1.0) * no - in[1] * yes};
      },
      [&](std::span<const Tensor> in, std::span<const Tensor>, std::span<const Tensor> g) {
        const Tensor &p = in[0], &t = in[1];
        const auto [yes, no] = logs(p);
        return std::vector<Tensor>{g[0] * (p - t) / clamp_min((1.0 - p) * p, 1e-12), g[0] * (no - yes)};
      });
  return weighted(loss(v, t), o, op);
}

}  // namespace weft
