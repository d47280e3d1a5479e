#include "distributed/stages/testing/trainer_step.h"

#include "compiler/passes/dce.h"
#include "compiler/passes/pipeline.h"
#include "framework/dispatch/interpreter.h"

namespace weft::testing {

Ref<Graph> joint_for_stages(const TensorFn& fn, const std::vector<Tensor>& args) {
  std::vector<TensorType> types;
  for (const Tensor& t : args) types.push_back(t.type());
  return run_passes(capture_graph(fn, types), passes_of(PassStage::kJoint),
                    {.known = all_passes(), .facts = {.stages = true}});
}

TrainerStep trainer_step(const nn::ModelFamily& family, const std::string& preset, int64_t microbatches,
                         const nn::ConfigMap& changes) {
  constexpr int64_t kRows = 2;  // rows of a microbatch
  manual_seed(1);
  nn::ConfigMap config = family.preset(preset);
  for (const auto& [field, text] : changes) config[field] = text;
  TrainerStep s;
  s.model = family.make(config);
  s.model->train();
  s.optimizer = std::make_unique<optim::AdamW>(s.model->parameters(), optim::AdamWOptions{.lr = 1e-2});
  const Tensor text = randint(0, s.model->vocab(), {kRows * microbatches, s.model->context() + 1});
  s.args = {text.slice(1, 0, s.model->context()).contiguous(), text.slice(1, 1, s.model->context() + 1).contiguous()};
  s.fn = [microbatches, model = s.model.get(), optimizer = s.optimizer.get()](std::span<const Tensor> in) {
    const std::vector<Parameter>& parameters = optimizer->parameters();
    auto [sum, grads] = accumulate(microbatches, std::pair{in[0], in[1]}, [&](const Tensor& x, const Tensor& y) {
      NameScope scope("model");
      nn::LossOut out = model->loss(x, y);
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
    optimizer->step(clipped);
    model->update_balance(sum.expert_counts);
    return std::vector<Tensor>{loss, norm, sum.aux * share, sum.expert_load * share, sum.dropped * share};
  };
  s.joint = joint_for_stages(s.fn, s.args);
  return s;
}

std::vector<Tensor> interpreted(const Graph& joint, std::span<const Tensor> args) {
  std::vector<Tensor> out = interpret(joint, args);
  for (const CellWrite& w : joint.writes) out.push_back(CellHandle(joint.cells[w.cell]).value());
  return out;
}

MicrobatchValues::MicrobatchValues(const Graph& joint, const dist::Microbatch& m, std::span<const Tensor> args)
    : m_(m), args_(args.begin(), args.end()) {
  Graph sources = joint;
  sources.outputs = m.sources;
  sources.writes.clear();
  const Ref<Graph> used = dce(sources);
  batch_ = interpret(used ? *used : sources, args);
}

internal::BodyValues MicrobatchValues::leaves(int64_t k) const {
  const Graph& g = *m_.graph;
  internal::BodyValues values(g);
  for (size_t i = 0; i < g.inputs.size(); ++i)
    values.set(g.inputs[i], i < m_.arguments ? args_[i] : select(batch_[i - m_.arguments], 0, k));
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op == &cell_op) values.set({id, 0}, CellHandle(g.cells[n.attrs.i("index")]).value());
    if (n.op == &captured_op) values.set({id, 0}, g.captured[n.attrs.i("index")]);
  }
  return values;
}

std::vector<Tensor> MicrobatchValues::results(const internal::BodyValues& values) const {
  std::vector<Tensor> out;
  for (Value v : m_.graph->outputs) out.push_back(values(v));
  for (const CellWrite& w : m_.graph->writes) out.push_back(values(w.value));
  return out;
}

}  // namespace weft::testing
