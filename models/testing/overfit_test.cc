// Every family memorises one batch, in f32 and with bf16 activations.
#include <gtest/gtest.h>

#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/train_steps.h"

namespace weft {
namespace {

using testing::TrainCase;

const TrainCase kCases[] = {
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

class Overfit : public ::testing::TestWithParam<TrainCase> {};

TEST_P(Overfit, OneBatch) {
  const TrainCase& c = GetParam();
  testing::TrainSteps training(
      c, {.size = {{"vocab", "32"}, {"context", "16"}, {"layers", "2"}, {"heads", "4"}, {"dim", "32"}},
          .adamw = {.lr = 1e-2, .betas = {0.9, 0.99}, .weight_decay = 0}});
  float loss = 100, first = 0;
  for (int i = 0; i < 300 && loss >= 0.05f; ++i) {
    loss = training.step().ce.item<float>();
    if (i == 0) first = loss;
  }
  EXPECT_NEAR(first, std::log(32.0), 0.5);
  EXPECT_LT(loss, 0.05f);
  const testing::StepOut out = training.step();
  float share = 0;
  for (float v : out.expert_load.to_vector<float>()) share += v;
  EXPECT_NEAR(share, c.family.name == "moe" ? 1 : 0, 1e-6);
  EXPECT_EQ(training.stats().captures, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Overfit, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
