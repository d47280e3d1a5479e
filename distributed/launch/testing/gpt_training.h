// For tests of steps on meshes: a small GPT and its training step.
#pragma once
#include <vector>

#include "models/gpt/model.h"
#include "weft.h"

namespace weft::testing {

inline gpt::Config small_gpt(int64_t vocab = 48) {
  return {.vocab = vocab, .context = 16, .layers = 2, .heads = 4, .dim = 32, .ffn = 64};
}

/// Model, optimiser and step. The step returns the loss and the norm of the gradients.
struct GptTraining {
  explicit GptTraining(const gpt::Config& config, DType dtype = kFloat32, Device device = Device::cpu())
      : model(converted(config, dtype, device)), opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3}) {}

  std::vector<Tensor> operator()(const Tensor& tokens, const Tensor& targets) {
    const Tensor loss = model.loss(tokens, targets).loss;
    auto [g, norm] = optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0);
    opt.step(g);
    return {loss, norm};
  }

  /// Parameters, then the state of the optimiser.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const {
    auto all = model.named_cells();
    for (auto& cell : opt.named_cells()) all.push_back(std::move(cell));
    return all;
  }

  gpt::Model model;
  optim::AdamW opt;

 private:
  static gpt::Model converted(const gpt::Config& config, DType dtype, Device device) {
    gpt::Model m(config);
    m.to(dtype);
    m.to(device);
    return m;
  }
};

}  // namespace weft::testing
