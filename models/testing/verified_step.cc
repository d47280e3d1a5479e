#include "models/testing/verified_step.h"

#include <algorithm>

#include "weft.h"

namespace weft::testing {

VerifiedStep verified_step(const nn::ModelFamily& family, const nn::ConfigMap& changes, std::optional<DType> dtype,
                           const std::string& numerics, int steps) {
  manual_seed(1);
  nn::ConfigMap config = family.preset(family.default_preset);
  for (const auto& [field, text] : changes) config[field] = text;
  const int64_t vocab = std::stoll(config.at("vocab")), length = std::stoll(config.at("context"));
  const auto model = family.make(config);
  model->to(Device::cuda());
  model->set_compute_dtype(dtype);
  const Tensor text = randint(0, vocab, {2, length + 1}).to(Device::cuda());
  const Tensor tokens = text.slice(1, 0, length).contiguous(), targets = text.slice(1, 1, length + 1).contiguous();
  optim::AdamW opt(model->parameters(), {.lr = 1e-2});
  const optim::GradScaler scaler({.init_scale = 1024, .device = Device::cuda()});
  const bool scales = dtype == kFloat16;
  auto step = compile(
      [&](Tensor x, Tensor y) {
        const nn::LossOut out = model->loss(x, y);
        std::vector<Tensor> grads = grad(scales ? scaler.scale(out.loss) : out.loss, opt.parameters());
        if (scales) grads = scaler.unscale(grads);
        auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
        const Tensor ok = logical_and(isfinite(out.loss), isfinite(norm));
        if (scales) scaler.update(ok);
        commit_if(ok);
        opt.step(clipped);
        model->update_balance(out.expert_counts);
        return out.loss;
      },
      {.numerics = numerics, .verify = true});
  VerifiedStep r;
  std::optional<HostRead> last;
  for (int i = 0; i < steps; ++i) {
    HostRead now({step(tokens, targets)});
    if (last) r.losses.push_back(last->wait()[0].item<double>());
    last = std::move(now);
  }
  r.losses.push_back(last->wait()[0].item<double>());
  r.good_steps = scaler.good_steps.value().item<int64_t>();
  const std::string report = step.report();
  const size_t at = std::min(report.find("verify: "), report.size());
  r.verify = report.substr(at, report.find('\n', at) - at);
  return r;
}

}  // namespace weft::testing
