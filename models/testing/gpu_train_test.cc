// The models trained on a GPU, on one whose kernels are the CPU's: losses, norms, weights and optimiser state have the
// CPU's bits, memory is as planned, and replays of the CUDA graph do as the queue does.
#include <gtest/gtest.h>

#include "compiler/exec/host_kernels_gpu.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
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

struct Trained {
  std::vector<float> numbers;                // loss and norm of each step
  std::vector<std::vector<float>> cells;     // of model and optimiser
  CompileStats stats;
  std::string report;
};

constexpr int64_t kBatch = 4;
constexpr int kSteps = 4;

Trained train(const Case& c, Device device, const CompileOptions& options = {}) {
  manual_seed(1);
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  const nn::ConfigMap tiny{{"vocab", "64"}, {"context", "16"}, {"layers", "2"}, {"heads", "2"}, {"dim", "32"}};
  for (const nn::ConfigMap* changes : {&tiny, &c.changes})
    for (const auto& [field, text] : *changes) config[field] = text;
  const auto model = c.family.make(config);
  model->to(device);
  model->set_compute_dtype(c.dtype);
  const Tensor text = randint(0, 64, {kBatch, 17}).to(device);
  const Tensor tokens = text.slice(1, 0, 16), targets = text.slice(1, 1, 17);
  optim::AdamW opt(model->parameters(), {.lr = 1e-2});
  auto step = compile(
      [&](Tensor x, Tensor y) {
        const nn::LossOut out = model->loss(x, y);
        auto [grads, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
        commit_if(logical_and(isfinite(out.loss), isfinite(norm)));
        opt.step(grads);
        model->update_balance(out.expert_counts);
        return std::pair(out.loss, norm);
      },
      options);
  Trained run;
  for (int i = 0; i < kSteps; ++i) {
    const auto [loss, norm] = step(tokens, targets);
    run.numbers.push_back(loss.item<float>());
    run.numbers.push_back(norm.item<float>());
    run.stats = step.stats();
    EXPECT_EQ(run.stats.measured_peak_bytes, run.stats.planned_peak_bytes) << i;
  }
  for (const auto& list : {model->named_cells(), opt.named_cells()})
    for (const auto& [name, cell] : list) run.cells.push_back(cell.value().to_vector<float>());
  run.report = step.report();
  return run;
}

class GpuTrain : public ::testing::TestWithParam<int> {};

const std::vector<Case>& cases() {
  static const auto* all = new std::vector<Case>{
      {"gpt", gpt::family(), {}, {}},
      {"gpt_bf16", gpt::family(), {}, kBFloat16},
      {"llama", llama::family(), {{"kv_heads", "1"}}, {}},
      {"llama_f16", llama::family(), {{"kv_heads", "1"}}, kFloat16},
      {"moe", moe::family(), {{"kv_heads", "1"}, {"experts", "4"}, {"top_k", "2"}}, {}},
  };
  return *all;
}

TEST_P(GpuTrain, HasTheBitsOfTheCpu) {
  const Case& c = cases()[GetParam()];
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  // The same groups as on the GPU.
  const Trained want = train(c, Device::cpu(), {.numerics = "eager"});
  internal::HostKernelsGpu gpu;
  for (const bool graph : {true, false}) {
    const Trained got = train(c, Device::cuda(), {.numerics = "eager", .cuda_graph = graph});
    EXPECT_EQ(got.numbers, want.numbers) << graph;
    ASSERT_EQ(got.cells.size(), want.cells.size());
    for (size_t i = 0; i < want.cells.size(); ++i) EXPECT_EQ(got.cells[i], want.cells[i]) << i << " " << graph;
    EXPECT_EQ(got.stats.fresh_writes, 0);
    EXPECT_GT(got.stats.in_place_writes, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuTrain, ::testing::Range(0, 5),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace weft
