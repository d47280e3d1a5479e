// Training steps and generation of the models on the emulated GPU: the kernels' own text, cuBLASLt's products, the CUDA
// graph. Generated kernels sum in the CPU's order; products and attention do not.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/train_steps.h"

namespace weft {
namespace {

using testing::TrainCase;
using testing::TrainSteps;

const nn::ConfigMap kSize = {{"vocab", "32"}, {"context", "8"}, {"layers", "1"}, {"heads", "2"}, {"dim", "32"}};
const nn::ConfigMap kLlama = {{"kv_heads", "1"}}, kMoe = {{"kv_heads", "1"}, {"experts", "4"}, {"top_k", "2"}};

// The allowed difference between losses of one model: 1e-5 in f32, as over meshes; with 16-bit activations, one
// rounding of each logit (a loss is a mean of differences of logits, of a few units each).
double tolerance(const TrainCase& c) { return !c.dtype ? 1e-5 : c.dtype == kBFloat16 ? 0x1p-8 : 0x1p-11; }

std::vector<double> losses(const TrainCase& c, Device device, int steps = 3) {
  TrainSteps training(c, {.size = kSize, .batch = 2, .device = device});
  std::vector<double> all;
  std::vector<Tensor> kept;  // so each batch and each loss has another address, as with a loader
  for (int i = 0; i < steps; ++i) {
    kept.push_back(training.text().to(device) + 0);
    const testing::StepOut out = training.step(kept.back());
    kept.push_back(out.loss);
    EXPECT_TRUE(out.ok.item<bool>()) << i;
    all.push_back(out.loss.item<double>());
    EXPECT_EQ(training.stats().measured_peak_bytes, training.stats().planned_peak_bytes) << i;
  }
  return all;
}

const std::vector<TrainCase>& cases() {
  static const auto* all = new std::vector<TrainCase>{
      {"gpt", gpt::family()},
      {"gpt_bf16", gpt::family(), {}, kBFloat16},
      {"gpt_bf16_odd_vocabulary", gpt::family(), {{"vocab", "77"}}, kBFloat16},
      {"gpt_f16", gpt::family(), {}, kFloat16},
      {"llama", llama::family(), kLlama},
      {"llama_bf16", llama::family(), kLlama, kBFloat16},
      {"llama_f16", llama::family(), kLlama, kFloat16},
      {"moe", moe::family(), kMoe},
      {"moe_bf16", moe::family(), kMoe, kBFloat16},
      {"moe_f16", moe::family(), kMoe, kFloat16},
  };
  return *all;
}

class Emulated : public ::testing::TestWithParam<int> {
 protected:
  const TrainCase& c = cases()[GetParam()];
};

TEST_P(Emulated, LossesAreTheCpus) {
  const std::vector<double> want = losses(c, Device::cpu());
  cuda::testing::ScopedEmulatedGpu gpu;
  const std::vector<double> got = losses(c, Device::cuda());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance(c) * std::fabs(want[i])) << i;
  // The graph is captured once, and none of its nodes changes afterwards, even for new batches.
  EXPECT_EQ(gpu.driver().calls("cuStreamBeginCapture_v2"), 1);
  EXPECT_EQ(gpu.driver().calls("cuGraphExecKernelNodeSetParams_v2"), 0);
  EXPECT_EQ(gpu.driver().calls("cuGraphLaunch"), 2);
  EXPECT_LT(got.back(), got.front());
  EXPECT_EQ(gpu.cublaslt().misaligned(), std::vector<std::string>());
}

// Logits of a prompt, then of one token after another through the cache.
std::vector<Tensor> decoded(const TrainCase& c, Device device) {
  TrainSteps made(c, {.size = kSize, .batch = 2, .device = device});
  const nn::LanguageModel& model = made.model();
  model.eval();
  NoGrad guard;
  const nn::KvCache cache = model.make_cache(2, 8);
  auto step = compile([&](Tensor tokens) {
    NoGrad inside;
    return model.logits(tokens, cache);
  });
  std::vector<Tensor> logits;
  for (const auto& [from, to] : {std::pair(0, 5), std::pair(5, 6), std::pair(6, 7), std::pair(7, 8)})
    logits.push_back(step(made.text().slice(1, from, to).to(device)).to(Device::cpu()).to(kFloat32));
  EXPECT_EQ(cache.position.value().item<int64_t>(), 8);
  return logits;
}

TEST_P(Emulated, DecodesAsTheCpu) {
  const std::vector<Tensor> want = decoded(c, Device::cpu());
  cuda::testing::ScopedEmulatedGpu gpu;
  const std::vector<Tensor> got = decoded(c, Device::cuda());
  for (size_t i = 0; i < want.size(); ++i) {
    const double most = amax(abs(want[i])).item<double>();
    // A logit ends a chain of some ten roundings of values of its size.
    EXPECT_LE(amax(abs(got[i] - want[i])).item<double>(), (c.dtype ? 8 : 1) * tolerance(c) * most) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, Emulated, ::testing::Range(0, 10),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

// If a scale overflows f16, the step changes nothing, and the scale is halved until it fits.
TEST(EmulatedLossScaling, StepsThatOverflowAreSkipped) {
  cuda::testing::ScopedEmulatedGpu gpu;
  const TrainCase c{"gpt_f16", gpt::family(), {}, kFloat16};
  TrainSteps training(c, {.size = kSize, .batch = 2, .device = Device::cuda(), .loss_scale = 0x1p28});
  const auto before = training.cells();
  EXPECT_FALSE(training.step().ok.item<bool>());
  EXPECT_EQ(training.cells(), before);
  int skipped = 1;
  while (!training.step().ok.item<bool>()) ASSERT_LT(++skipped, 28);
  EXPECT_EQ(training.loss_scale(), std::ldexp(1.0, 28 - skipped));
  EXPECT_NE(training.cells(), before);
}

}  // namespace
}  // namespace weft
