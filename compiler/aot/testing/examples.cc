#include "compiler/aot/testing/examples.h"

#include "models/gpt/config.h"

namespace weft::aot_example {
namespace {

struct Mlp : nn::Module {
  nn::Linear hidden{16, 32}, out{32, 10};
  Mlp() {
    register_module("hidden", hidden);
    register_module("out", out);
  }
};

ExampleStep mlp() {
  auto model = std::make_shared<Mlp>();
  auto opt = std::make_shared<optim::SGD>(model->parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  return [model, opt](const Tensor& x, const Tensor& y) {
    Tensor loss = cross_entropy(model->out(gelu(model->hidden(x))), y);
    opt->step(grad(loss, opt->parameters()));
    return loss;
  };
}

ExampleStep gpt(bool bf16) {
  nn::ConfigMap config = gpt::family().preset("gpt_tiny");
  for (const auto& [field, text] : nn::ConfigMap{{"vocab", "64"},
                                                 {"context", "16"},
                                                 {"layers", "2"},
                                                 {"heads", "2"},
                                                 {"dim", "32"},
                                                 {"ffn", "96"},
                                                 {"dropout", "0.1"}})
    config[field] = text;
  std::shared_ptr<nn::LanguageModel> model = gpt::family().make(config);
  if (bf16) model->set_compute_dtype(kBFloat16);
  auto opt = std::make_shared<optim::AdamW>(model->parameters(), optim::AdamWOptions{.lr = 1e-2});
  return [model, opt](const Tensor& x, const Tensor& y) {
    Tensor loss = model->loss(x, y).loss;
    opt->step(optim::clip_grad_norm(grad(loss, opt->parameters()), 1.0).grads);
    return loss;
  };
}

}  // namespace

Compiled<ExampleStep> make(const std::string& name) {
  manual_seed(3);
  return compile(name == "mlp_step" ? mlp() : gpt(name == "gpt_bf16_step"));
}

}  // namespace weft::aot_example
