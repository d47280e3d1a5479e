// compile({.verify = true}) on the emulated GPU: each launch of the models' steps, in f32, bf16 and f16, has the bits of
// its ops on the CPU or, where it multiplies, keeps to their bounds; a product that is wrong is named.
#include <gtest/gtest.h>

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
  std::optional<DType> dtype;
  const char* numerics;
};

// The report of two steps, the first of them compared.
std::string verified(const Case& c) {
  manual_seed(1);
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  const nn::ConfigMap tiny{{"vocab", "32"}, {"context", "8"}, {"layers", "1"}, {"heads", "2"}, {"dim", "32"}};
  for (const nn::ConfigMap* changes : {&tiny, &c.changes})
    for (const auto& [field, text] : *changes) config[field] = text;
  const auto model = c.family.make(config);
  model->to(Device::cuda());
  model->set_compute_dtype(c.dtype);
  const Tensor text = randint(0, 32, {2, 9}).to(Device::cuda());
  const Tensor tokens = text.slice(1, 0, 8).contiguous(), targets = text.slice(1, 1, 9).contiguous();
  optim::AdamW opt(model->parameters(), {.lr = 1e-2});
  const optim::GradScaler scaler({.init_scale = 1024, .device = Device::cuda()});
  auto step = compile(
      [&](Tensor x, Tensor y) {
        const nn::LossOut out = model->loss(x, y);
        const bool scales = c.dtype == kFloat16;
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
      {.numerics = c.numerics, .verify = true});
  const double first = step(tokens, targets).item<double>(), second = step(tokens, targets).item<double>();
  EXPECT_LT(second, first);
  if (c.dtype == kFloat16) {
    EXPECT_EQ(scaler.good_steps.value().item<int64_t>(), 2);
  }
  return step.report();
}

const std::vector<Case>& cases() {
  const nn::ConfigMap moe{{"kv_heads", "1"}, {"experts", "4"}, {"top_k", "2"}};
  static const auto* all = new std::vector<Case>{
      {"gpt", gpt::family(), {}, {}, "fast"},
      {"gpt_bf16", gpt::family(), {}, kBFloat16, "fast"},
      {"gpt_bf16_like_eager", gpt::family(), {}, kBFloat16, "eager"},
      {"llama_f16", llama::family(), {{"kv_heads", "1"}}, kFloat16, "fast"},
      {"moe_bf16", moe::family(), moe, kBFloat16, "fast"},
  };
  return *all;
}

class GpuVerify : public ::testing::TestWithParam<int> {};

TEST_P(GpuVerify, EveryLaunchIsRight) {
  cuda::testing::ScopedEmulatedGpu gpu;
  const std::string report = verified(cases()[GetParam()]);
  const size_t at = report.find("verify: ");
  ASSERT_NE(at, std::string::npos) << report;
  const std::string line = report.substr(at, report.find('\n', at) - at);
  EXPECT_NE(line.find(" launches have the bits of their ops on the CPU, "), std::string::npos) << line;
  EXPECT_NE(line.find(" (products) are within their bounds"), std::string::npos) << line;
  ::testing::Test::RecordProperty("verify", line);
}

INSTANTIATE_TEST_SUITE_P(, GpuVerify, ::testing::Range(0, 5),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace weft
