// Eager ops on the emulated GPU.
#include "compiler/cuda/exec/eager.h"

#include <gtest/gtest.h>

#include "compiler/cuda/exec/testing/emulated_gpu.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using testing::ScopedEmulatedGpu;

TEST(Eager, ComputesWhenAValueIsRead) {
  ScopedEmulatedGpu gpu;
  Tensor x = arange(6, {.dtype = kFloat32}).to(Device::cuda());
  const int waits = gpu.driver().calls("cuStreamSynchronize");
  Tensor y = x * 2 + 1;
  EXPECT_EQ(y.device(), Device::cuda(0));
  EXPECT_TRUE(gpu.driver().kernels_run().empty());
  EXPECT_EQ(gpu.driver().calls("cuStreamSynchronize"), waits);
  EXPECT_EQ(y.to(Device::cpu()).to_vector<float>(), (std::vector<float>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(gpu.driver().kernels_run().size(), 4u);
}

}  // namespace
}  // namespace weft::cuda
