#include "models/testing/train_steps.h"

namespace weft::testing {

TrainSteps::TrainSteps(const TrainCase& c, TrainHow how) : how_(std::move(how)) {
  manual_seed(1);
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  for (const nn::ConfigMap* changes : {&std::as_const(how_.size), &c.changes})
    for (const auto& [field, text] : *changes) config[field] = text;
  model_ = c.family.make(config);
  model_->to(how_.device);
  if (how_.weights != kFloat32) {
    for (const Parameter& p : model_->parameters()) p.value();  // made in f32, then widened
    model_->to(how_.weights);
  }
  model_->set_compute_dtype(c.dtype);
  if (c.dtype == kFloat16)
    scaler_.emplace(optim::GradScalerOptions{.init_scale = how_.loss_scale, .device = how_.device});
  text_ = randint(0, model_->vocab(), {how_.batch, model_->context() + 1});
  optimizer_.emplace(model_->parameters(), how_.adamw);
  step_.emplace(TrainFn{this}, how_.compile);
}

StepOut TrainSteps::train(const Tensor& tokens, const Tensor& targets) {
  const nn::LossOut out = model_->loss(tokens, targets);
  std::vector<Tensor> grads = grad(scaler_ ? scaler_->scale(out.loss) : out.loss, optimizer_->parameters());
  NoGrad guard;
  if (scaler_) grads = scaler_->unscale(grads);
  if (how_.tamper) how_.tamper(optimizer_->parameters(), grads);
  const auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
  const Tensor ok = logical_and(isfinite(out.loss), isfinite(norm));
  if (scaler_) scaler_->update(ok);
  commit_if(ok);
  optimizer_->step(clipped);
  model_->update_balance(out.expert_counts);
  return {out.loss, out.ce, norm, out.expert_load, ok};
}

StepOut TrainSteps::step(const Tensor& text) {
  const Tensor here = text.to(how_.device);
  const int64_t length = model_->context();
  return (*step_)(here.slice(1, 0, length), here.slice(1, 1, length + 1));
}

std::vector<Tensor> TrainSteps::parameters() const {
  std::vector<Tensor> values;
  for (const Parameter& p : optimizer_->parameters()) values.push_back(p.value().detach());
  return values;
}

std::vector<std::vector<float>> TrainSteps::cells() const {
  std::vector<std::vector<float>> values;
  for (const auto& list : {model_->named_cells(), optimizer_->named_cells()})
    for (const auto& [name, cell] : list) values.push_back(cell.value().to_vector<float>());
  return values;
}

}  // namespace weft::testing
