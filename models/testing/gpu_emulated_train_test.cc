// Training steps of the models on the emulated GPU: the kernels' own text, cuBLASLt's products, the CUDA graph. Generated
// kernels sum in the CPU's order; products and attention do not, so losses agree to the bound that f32 losses of one model
// have anywhere (1e-5), as they do over meshes.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/cuda/exec/testing/emulated_gpu.h"
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
};

constexpr int kSteps = 3;

std::vector<double> losses(const Case& c, Device device) {
  manual_seed(1);
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  const nn::ConfigMap tiny{{"vocab", "32"}, {"context", "8"}, {"layers", "1"}, {"heads", "2"}, {"dim", "32"}};
  for (const nn::ConfigMap* changes : {&tiny, &c.changes})
    for (const auto& [field, text] : *changes) config[field] = text;
  const auto model = c.family.make(config);
  model->to(device);
  const Tensor text = randint(0, 32, {2, 9}).to(device);
  const Tensor tokens = text.slice(1, 0, 8).contiguous(), targets = text.slice(1, 1, 9).contiguous();
  optim::AdamW opt(model->parameters(), {.lr = 1e-2});
  auto step = compile([&](Tensor x, Tensor y) {
    const nn::LossOut out = model->loss(x, y);
    auto [grads, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
    commit_if(logical_and(isfinite(out.loss), isfinite(norm)));
    opt.step(grads);
    model->update_balance(out.expert_counts);
    return out.loss;
  });
  std::vector<double> all;
  std::vector<Tensor> kept;  // so each batch and each loss lies elsewhere, as from a loader
  for (int i = 0; i < kSteps; ++i) {
    kept.insert(kept.end(), {tokens + 0, targets + 0});
    kept.push_back(step(kept[3 * i], kept[3 * i + 1]));
    all.push_back(kept.back().item<double>());
    EXPECT_EQ(step.stats().measured_peak_bytes, step.stats().planned_peak_bytes) << i;
  }
  return all;
}

class EmulatedTraining : public ::testing::TestWithParam<int> {};

const std::vector<Case>& cases() {
  static const auto* all = new std::vector<Case>{
      {"gpt", gpt::family(), {}},
      {"llama", llama::family(), {{"kv_heads", "1"}}},
      {"moe", moe::family(), {{"kv_heads", "1"}, {"experts", "4"}, {"top_k", "2"}}},
  };
  return *all;
}

TEST_P(EmulatedTraining, LossesAreTheCpus) {
  const Case& c = cases()[GetParam()];
  const std::vector<double> want = losses(c, Device::cpu());
  cuda::testing::ScopedEmulatedGpu gpu;
  const std::vector<double> got = losses(c, Device::cuda());
  for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * std::fabs(want[i])) << i;
  // Captured once, and no node of the graph was touched since: not for new batches either.
  EXPECT_EQ(gpu.driver().calls("cuStreamBeginCapture_v2"), 1);
  EXPECT_EQ(gpu.driver().calls("cuGraphExecKernelNodeSetParams_v2"), 0);
  EXPECT_EQ(gpu.driver().calls("cuGraphLaunch"), kSteps - 1);
  EXPECT_LT(got.back(), got.front());
}

INSTANTIATE_TEST_SUITE_P(, EmulatedTraining, ::testing::Range(0, 3),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace weft
