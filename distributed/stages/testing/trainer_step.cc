#include "distributed/stages/testing/trainer_step.h"

#include "compiler/passes/pipeline.h"

namespace weft::testing {

Ref<Graph> joint_for_stages(const TensorFn& fn, const std::vector<Tensor>& args) {
  std::vector<TensorType> types;
  for (const Tensor& t : args) types.push_back(t.type());
  return run_passes(capture_graph(fn, types), passes_of(PassStage::kJoint),
                    {.known = all_passes(), .facts = {.stages = true}});
}

TrainerStep trainer_step(const nn::ModelFamily& family, const std::string& preset, int64_t microbatches,
                         const nn::ConfigMap& changes) {
  constexpr int64_t kRows = 2;  // of a microbatch
  manual_seed(1);
  nn::ConfigMap config = family.preset(preset);
  for (const auto& [field, text] : changes) config[field] = text;
  TrainerStep s;
  s.model = family.make(config);
  s.model->train();
  s.optimizer = std::make_unique<optim::AdamW>(s.model->parameters(), optim::AdamWOptions{.lr = 1e-2});
  const Tensor text = randint(0, s.model->vocab(), {kRows * microbatches, s.model->context() + 1});
  s.args = {text.slice(1, 0, s.model->context()).contiguous(), text.slice(1, 1, s.model->context() + 1).contiguous()};
  s.joint = joint_for_stages(
      [&](std::span<const Tensor> in) {
        const std::vector<Parameter>& parameters = s.optimizer->parameters();
        auto [sum, grads] = accumulate(microbatches, std::pair{in[0], in[1]}, [&](const Tensor& x, const Tensor& y) {
          NameScope scope("model");
          nn::LossOut out = s.model->loss(x, y);
          Gradients g = grad(out.loss, parameters);
          for (Tensor* t : {&out.loss, &out.ce, &out.aux, &out.expert_load, &out.dropped}) *t = t->detach();
          return std::pair{std::move(out), std::move(g)};
        });
        NoGrad guard;
        NameScope scope("update");
        const double share = 1.0 / static_cast<double>(microbatches);
        for (Tensor& g : grads) g = g * share;
        auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
        const Tensor loss = sum.ce * share;
        commit_if(logical_and(isfinite(loss), isfinite(norm)));
        s.optimizer->step(clipped);
        s.model->update_balance(sum.expert_counts);
        return std::vector<Tensor>{loss, norm, sum.aux * share, sum.expert_load * share, sum.dropped * share};
      },
      s.args);
  return s;
}

}  // namespace weft::testing
