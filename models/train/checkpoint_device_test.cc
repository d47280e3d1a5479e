// Checkpoints of cells on a GPU: written from it, read back to it, and read by a model on the CPU.
#include <gtest/gtest.h>

#include "framework/cuda/gpu.h"
#include "framework/cuda/memory_target.h"
#include "framework/cuda/testing/fake_gpu_test.h"
#include "framework/tensor/storage.h"
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

TEST_F(CheckpointOnGpu, IsCopiedToTheHostBeforeTheNextStep) {
  register_target(DeviceType::kCuda, &cuda::memory_target());
  const std::string dir = ::testing::TempDir() + "/async";
  const Parameter w(arange(6).to(kFloat32).to(Device::cuda()), "w");
  const Allocator& memory = Allocator::of(Device::cuda());
  const int64_t live = memory.stats().live;
  const auto holders = [&] { return w.value().get().storage->use_count(); };
  const auto before = holders();
  const auto save = begin_checkpoint(dir, {.step = 4, .family = "gpt"}, {{"w", w}}, {}, 0);
  EXPECT_EQ(memory.stats().live, live);
  EXPECT_EQ(holders(), before);  // a step writes in place
  const Tensor next = full({6}, 7.0);
  cuda::memory_target().copy(next.view_for_kernel(), Device::cpu(), w.value().view_for_kernel(), Device::cuda());
  save->wait();
  EXPECT_EQ(memory.stats().peak, live);
  const Parameter read(zeros({6}), "w");
  load_cells(open_tensors(dir + "/step_4", "model", {}), {{"w", read}});
  EXPECT_EQ(read.value().to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(w.value().to_vector<float>(), std::vector<float>(6, 7));
}

}  // namespace
}  // namespace weft::train
