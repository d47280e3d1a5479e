// Every kernel that a training step of the measured models needs on sm_80, sm_90a or sm_100 compiles within the limits
// of the GPU. The step's plan for this GPU selects the kernels. Nothing runs.
#include <gtest/gtest.h>

#include <set>

#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/run/operation_load.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft {
namespace {

using cuda::Kernel;

struct Collected {
  std::vector<Kernel> kernels;
  std::set<std::string> seen;
  std::vector<std::string> misaligned;  // products of the last step
  std::string report;                   // report of the last step
};

// Plans the bf16 step of two layers for a GPU of this compute capability;
// its kernels are collected instead of compiled.
void plan_step(const nn::ModelFamily& family, const std::string& preset, int sm, Collected* all, int64_t vocab = 0) {
  cuda::testing::ScopedEmulatedGpu gpu({.gpu = {.sm = sm, .memory = size_t{4} << 30}});
  cuda::internal::set_kernel_compiler([&](std::span<const Kernel> kernels, cuda::Arch) {
    for (const Kernel& k : kernels)
      if (all->seen.insert(k.text).second) all->kernels.push_back(k);
    return std::vector<std::string>(kernels.size(), std::string(1, '\0'));
  });
  gpu.driver().set_resolver([](const void*, const std::string&) {
    return cuda::testing::FakeKernel{.parameter_bytes = 4096, .run = [](const cuda::testing::FakeLaunch&) {}};
  });
  nn::ConfigMap config = family.preset(preset);
  config["layers"] = "2";
  if (vocab > 0) config["vocab"] = str_cat(vocab);
  const auto model = family.make(config);
  model->to(Device::cuda());
  model->set_compute_dtype(kBFloat16);
  optim::AdamW opt(model->parameters(), {.lr = 1e-3});
  auto step = compile([&](Tensor x, Tensor y) {
    const nn::LossOut out = model->loss(x, y);
    auto [grads, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
    opt.step(grads);
    model->update_balance(out.expert_counts);
    return out.loss;
  });
  const TensorType ids{kInt32, Device::cuda(), Shape{2, 128}};
  step.prepare(Tensor::empty(ids), Tensor::empty(ids));
  all->misaligned = gpu.cublaslt().misaligned();
  all->report = step.report();
}

class GpuKernels : public ::testing::TestWithParam<int> {};

// Vocabularies are odd: 50257 logits in a row.
TEST(GpuProducts, HaveAlignedRows) {
  for (const bool experts : {false, true}) {
    Collected all;
    plan_step(experts ? moe::family() : gpt::family(), experts ? "moe_small" : "gpt_base", 90, &all, 50257);
    EXPECT_EQ(all.misaligned, std::vector<std::string>()) << experts;
    // The gradient of the f32 router's operand is bf16, which cuBLASLt does not make of f32 operands.
    const std::string fused =
        experts ? "2 x epilogue in cuBLASLt, 2 x through an f32 tile" : "3 x epilogue in cuBLASLt";
    EXPECT_NE(all.report.find(str_cat("  fused products: ", fused, "\n")), std::string::npos) << all.report;
  }
}

TEST_P(GpuKernels, OfTrainingStepsCompile) {
  if (!cuda::nvrtc().unavailable.empty()) GTEST_SKIP() << cuda::nvrtc().unavailable;
  const int sm = GetParam();
  Collected all;
  plan_step(gpt::family(), "gpt_base", sm, &all);
  const size_t of_gpt = all.kernels.size();
  EXPECT_GE(of_gpt, 15u);
  plan_step(llama::family(), llama::family().default_preset, sm, &all);
  const size_t of_llama = all.kernels.size() - of_gpt;
  EXPECT_GE(of_llama, 5u);
  plan_step(moe::family(), "moe_small", sm, &all);
  EXPECT_GE(all.kernels.size() - of_gpt - of_llama, 5u);
  bool attention = false, specific = false;
  for (const Kernel& k : all.kernels) {
    attention |= k.symbol.find("attention") != std::string::npos;
    specific |= k.only_sm90a;
  }
  EXPECT_TRUE(attention);
  EXPECT_EQ(specific, sm == 90);
  EXPECT_EQ(cuda::compile_faults(all.kernels, {}, {cuda::arch_of_device(sm)}), "");
  std::printf("sm %d: %zu kernels\n", sm, all.kernels.size());
}

INSTANTIATE_TEST_SUITE_P(, GpuKernels, ::testing::Values(80, 90, 100));

}  // namespace
}  // namespace weft
