#include "models/train/train_step.h"

#include <utility>

#include "framework/dispatch/commit_always.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::train {

constexpr double kClip = 1.0;

StepOut train_step(const StepParts& p, const Tensor& tokens, const Tensor& targets) {
  const int64_t parts = p.microbatches;
  const nn::BatchShare share = nn::BatchShare::of(parts, targets);
  auto [sum, grads] = accumulate(parts, std::pair{tokens, targets}, [&](const Tensor& x, const Tensor& y) {
    NameScope scope("model");
    nn::LossOut out = p.model.loss(x, y, share);
    Gradients g = grad(p.scaler ? p.scaler->scale(out.loss) : out.loss, p.parameters);
    for (Tensor* t : {&out.loss, &out.ce, &out.aux, &out.dropped}) *t = t->detach();
    return std::pair{std::move(out), std::move(g)};
  });
  NoGrad guard;
  NameScope scope("update");
  if (p.scaler) grads = p.scaler->unscale(grads);
  auto mean = [&](const Tensor& t) { return parts > 1 ? t * share.rows : t; };
  auto [clipped, norm] = optim::clip_grad_norm(grads, kClip);
  StepOut out{sum.ce, norm, {}, sum.aux, sum.expert_counts, mean(sum.dropped)};
  out.ok = logical_and(isfinite(out.loss), isfinite(norm));
  if (p.scaler) p.scaler->update(out.ok);
  Tensor commits = out.ok;
  if (p.healthy.defined()) {
    commits = logical_and(p.healthy.value(), out.ok);
    CommitAlways always;
    p.healthy.set(commits);
  }
  commit_if(commits);
  p.optimizer.step(clipped);
  p.model.update_balance(sum.expert_counts);
  return out;
}

}  // namespace weft::train
