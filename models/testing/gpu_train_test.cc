// The models trained on a GPU, on one whose kernels are the CPU's: losses, norms, weights and optimiser state have the
// CPU's bits, memory use equals the plan, and replays of the CUDA graph equal queued steps.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/testing/host_kernels_gpu.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/train_steps.h"

namespace weft {
namespace {

using testing::TrainCase;
using testing::TrainSteps;

struct Trained {
  std::vector<float> numbers;             // loss and norm of each step
  std::vector<std::vector<float>> cells;  // cells of model and optimiser
  CompileStats stats;
};

Trained train(const TrainCase& c, Device device, const CompileOptions& options) {
  TrainSteps training(c, {.device = device, .compile = options});
  Trained run;
  for (int i = 0; i < 4; ++i) {
    const testing::StepOut out = training.step();
    run.numbers.push_back(out.loss.item<float>());
    run.numbers.push_back(out.norm.item<float>());
    run.stats = training.stats();
    EXPECT_EQ(run.stats.measured_peak_bytes, run.stats.planned_peak_bytes) << i;
  }
  run.cells = training.cells();
  return run;
}

class GpuTrain : public ::testing::TestWithParam<int> {};

const std::vector<TrainCase>& cases() {
  static const auto* all = new std::vector<TrainCase>{
      {"gpt", gpt::family(), {}, {}},
      {"gpt_bf16", gpt::family(), {}, kBFloat16},
      {"gpt_bf16_odd_vocabulary", gpt::family(), {{"vocab", "77"}}, kBFloat16},
      {"llama", llama::family(), {{"kv_heads", "1"}}, {}},
      {"llama_f16", llama::family(), {{"kv_heads", "1"}}, kFloat16},
      {"moe", moe::family(), {{"kv_heads", "1"}, {"experts", "4"}, {"top_k", "2"}}, {}},
  };
  return *all;
}

TEST_P(GpuTrain, HasTheBitsOfTheCpu) {
  const TrainCase& c = cases()[GetParam()];
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

INSTANTIATE_TEST_SUITE_P(, GpuTrain, ::testing::Range(0, 6),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace weft
