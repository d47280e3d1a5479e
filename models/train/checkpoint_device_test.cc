// Checkpoints of cells on a GPU: written from it, read back to it, and read by a model on the CPU.
#include <gtest/gtest.h>

#include "framework/cuda/gpu.h"
#include "framework/cuda/memory_target.h"
#include "framework/cuda/testing/fake_gpu_test.h"
#include "models/train/checkpoint.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

using CheckpointOnGpu = cuda::testing::FakeGpuTest;

TEST_F(CheckpointOnGpu, GoesThereAndBack) {
  register_target(DeviceType::kCuda, &cuda::memory_target());
  const Tensor w = arange(6).to(kFloat32).reshape({2, 3}), b = full({4}, 2.5);
  const std::string dir = ::testing::TempDir() + "/runs";
  auto cells = [&](Device device, bool zero) {
    auto value = [&](const Tensor& t) { return (zero ? zeros(t.shape()) : t).to(device); };
    return NamedCells{{"w", Parameter(value(w), "w")}, {"b", Parameter(value(b), "b")}};
  };
  const std::string folder = save_checkpoint(dir, {.step = 3, .family = "gpt"}, cells(Device::cuda(), false), {}, 0);
  for (Device device : {Device::cuda(), Device::cpu()}) {
    NamedCells read = cells(device, true);
    load_cells(open_tensors(folder, "model", {}), read);
    EXPECT_EQ(read[0].second.value().device(), device);
    EXPECT_EQ(read[0].second.value().to_vector<float>(), w.to_vector<float>());
    EXPECT_EQ(read[1].second.value().to_vector<float>(), b.to_vector<float>());
  }
}

}  // namespace
}  // namespace weft::train
