// compile({.verify = true}) on the emulated GPU: each launch of the models' steps, in f32, bf16 and f16, has the bits
// of its ops on the CPU or, where it multiplies, keeps to their bounds.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/verified_step.h"

namespace weft {
namespace {

struct Case {
  const char* name;
  const nn::ModelFamily& family;
  nn::ConfigMap changes;
  std::optional<DType> dtype;
  const char* numerics;
};

const std::vector<Case>& cases() {
  const nn::ConfigMap moe{{"kv_heads", "1"}, {"experts", "4"}, {"top_k", "2"}};
  static const auto* all = new std::vector<Case>{
      {"gpt", gpt::family(), {}, {}, "fast"},
      {"gpt_bf16", gpt::family(), {}, kBFloat16, "fast"},
      {"gpt_bf16_odd_vocabulary", gpt::family(), {{"vocab", "77"}}, kBFloat16, "fast"},
      {"gpt_bf16_like_eager", gpt::family(), {}, kBFloat16, "eager"},
      {"llama_f16", llama::family(), {{"kv_heads", "1"}}, kFloat16, "fast"},
      {"moe_bf16", moe::family(), moe, kBFloat16, "fast"},
  };
  return *all;
}

class GpuVerify : public ::testing::TestWithParam<int> {};

TEST_P(GpuVerify, EveryLaunchIsRight) {
  const Case& c = cases()[GetParam()];
  nn::ConfigMap config{{"vocab", "32"}, {"context", "8"}, {"layers", "1"}, {"heads", "2"}, {"dim", "32"}};
  for (const auto& [field, text] : c.changes) config[field] = text;
  cuda::testing::ScopedEmulatedGpu gpu;
  const testing::VerifiedStep r = testing::verified_step(c.family, config, c.dtype, c.numerics, 3);
  EXPECT_LT(r.losses.back(), r.losses.front());
  EXPECT_EQ(r.good_steps, c.dtype == kFloat16 ? 3 : 0);
  EXPECT_NE(r.verify.find(" launches have the bits of their ops on the CPU, "), std::string::npos) << r.verify;
  EXPECT_NE(r.verify.find(" (products) are within their bounds"), std::string::npos) << r.verify;
}

INSTANTIATE_TEST_SUITE_P(, GpuVerify, ::testing::Range(0, 6),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace weft
