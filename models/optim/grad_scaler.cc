#include "models/optim/grad_scaler.h"

#include <cmath>

#include "framework/dispatch/commit_always.h"
#include "framework/dispatch/state/torn.h"
#include "models/optim/cells.h"
#include "ops/composite/layers/activation.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::optim {

constexpr const char *kScaleName = "loss_scale", *kGoodName = "good_steps";

GradScaler::GradScaler(const GradScalerOptions& options, std::source_location loc)
    : scale_factor(full({}, options.init_scale).to(options.device), kScaleName, loc),
      good_steps(zeros({}, {.dtype = kInt64}).to(options.device), kGoodName, loc),
      options_(options) {
  internal::LineScope line(loc);
  WEFT_CHECK(std::isfinite(static_cast<float>(options.init_scale)) && options.init_scale >= 1,
             "GradScaler: init_scale is ", options.init_scale, "; need a number >= 1 that fits f32");
  WEFT_CHECK(options.growth_factor >= 1, "GradScaler: growth_factor is ", options.growth_factor,
             "; need a number >= 1");
  WEFT_CHECK(options.backoff_factor > 0 && options.backoff_factor <= 1, "GradScaler: backoff_factor is ",
             options.backoff_factor, "; need a number above 0, at most 1");
  WEFT_CHECK(options.growth_interval >= 1, "GradScaler: growth_interval is ", options.growth_interval,
             "; need at least 1");
}

Tensor GradScaler::scale(const Tensor& loss, std::source_location loc) const {
  internal::LineScope line(loc);
  return (loss.dtype() == kFloat64 ? loss : loss.to(kFloat32)) * scale_factor.value();
}

Gradients GradScaler::unscale(const Gradients& grads, double factor, std::source_location loc) const {
  internal::LineScope line(loc);
  NoGrad guard;
  const Tensor inverse = factor / scale_factor.value();
  Gradients out = grads;
  // f32, because unscaled values may underflow in f16.
  for (Tensor& g : out)
    if (g.defined()) g = (is_16bit(g.dtype()) ? g.to(kFloat32) : g) * inverse;
  return out;
}

void GradScaler::update(const Tensor& ok, std::source_location loc) const {
  internal::LineScope line(loc);
  WEFT_CHECK(ok.dtype() == kBool && ok.dim() == 0, "GradScaler: update got ", ok.type(), "; need a 0-d bool");
  NoGrad guard;
  CommitAlways always;
  const Tensor scale = scale_factor.value(), good = good_steps.value() + 1;
  const Tensor grown = scale * options_.growth_factor;
  const Tensor due = ge(good, options_.growth_interval);
  const Tensor next = where(logical_and(due, isfinite(grown)), grown, scale);
  scale_factor.set(where(ok, next, clamp_min(scale * options_.backoff_factor, 1.0)));
  good_steps.set(where(logical_and(ok, logical_not(due)), good, 0));
}

double GradScaler::get_scale() const { return scale_factor.value().item<double>(); }

std::vector<std::pair<std::string, CellHandle>> GradScaler::named_cells() const {
  return {{kScaleName, scale_factor}, {kGoodName, good_steps}};
}

std::map<std::string, Tensor> GradScaler::state_dict(std::vector<std::string>* torn, std::source_location loc) const {
  internal::LineScope line(loc);
  return whole_values(named_cells(), torn);
}

void GradScaler::load_state_dict(const std::map<std::string, Tensor>& values, std::source_location loc) const {
  internal::LineScope line(loc);
  internal::set_cells(named_cells(), values, "GradScaler", /*scalars=*/2);
}

}  // namespace weft::optim
