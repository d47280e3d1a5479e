// Every family learns one batch by heart, in f32 and with bf16 activations.
#include <gtest/gtest.h>

#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft {
namespace {

struct Case {
  const char* name;
  const nn::ModelFamily& family;
  nn::ConfigMap changes;
  std::optional<DType> dtype;
};

const Case kCases[] = {
    {"gpt", gpt::family(), {{"rms_norm", "false"}, {"bias", "true"}, {"tied", "true"}, {"ffn", "128"}}, {}},
    {"llama", llama::family(), {{"kv_heads", "2"}, {"ffn", "96"}}, {}},
    {"moe", moe::family(), {{"kv_heads", "2"}, {"ffn", "48"}, {"experts", "4"}}, {}},
    {"moe_capacity",
     moe::family(),
     {{"kv_heads", "4"}, {"ffn", "48"}, {"experts", "4"}, {"capacity_factor", "1.25"}, {"z_loss", "0.001"}},
     {}},
    {"moe_balanced",
     moe::family(),
     {{"kv_heads", "4"},
      {"ffn", "48"},
      {"experts", "4"},
      {"score", "sigmoid"},
      {"shared_ffn", "32"},
      {"aux_loss", "0"},
      {"bias_rate", "0.01"}},
     {}},
    {"llama_bf16", llama::family(), {{"kv_heads", "2"}, {"ffn", "96"}}, kBFloat16},
    {"moe_bf16", moe::family(), {{"kv_heads", "2"}, {"ffn", "48"}, {"experts", "4"}}, kBFloat16},
};

class Overfit : public ::testing::TestWithParam<Case> {};

TEST_P(Overfit, OneBatch) {
  manual_seed(1);
  const Case& c = GetParam();
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  const nn::ConfigMap tiny{{"vocab", "32"}, {"context", "16"}, {"layers", "2"}, {"heads", "4"}, {"dim", "32"}};
  for (const nn::ConfigMap* changes : {&tiny, &c.changes})
    for (const auto& [field, text] : *changes) config[field] = text;
  const auto model = c.family.make(config);
  model->set_compute_dtype(c.dtype);
  const Tensor text = randint(0, 32, {4, 17});
  const Tensor tokens = text.slice(1, 0, 16), targets = text.slice(1, 1, 17);
  optim::AdamW opt(model->parameters(), {.lr = 1e-2, .betas = {0.9, 0.99}, .weight_decay = 0});
  auto step = compile([&](Tensor x, Tensor y) {
    const nn::LossOut out = model->loss(x, y);
    opt.step(optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0).grads);
    model->update_balance(out.expert_counts);
    return out;
  });
  float loss = 100, first = 0;
  for (int i = 0; i < 300 && loss >= 0.05f; ++i) {
    const nn::LossOut out = step(tokens, targets);
    loss = out.ce.item<float>();
    if (i == 0) first = loss;
  }
  EXPECT_NEAR(first, std::log(32.0), 0.5);
  EXPECT_LT(loss, 0.05f);
  const nn::LossOut out = step(tokens, targets);
  float share = 0;
  for (float v : out.expert_load.to_vector<float>()) share += v;
  EXPECT_NEAR(share, c.family.name == "moe" ? 1 : 0, 1e-6);
  EXPECT_EQ(step.stats().captures, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Overfit, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
