// Compiled steps on a GPU, on one whose kernels are the CPU's: the same bits, memory as planned, replays of one graph.
#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "compiler/exec/host_kernels_gpu.h"
#include "framework/cuda/gpu.h"
#include "framework/dispatch/generator.h"
#include "framework/testing/compare.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::internal {
namespace {

const Device kGpu = Device::cuda();

TEST(GpuStep, Pointwise) {
  HostKernelsGpu gpu;
  auto f = compile([](const Tensor& x) { return exp(x) * 2 + 1; });
  const Tensor x = Tensor::from_vector({0, 1, 2, 3}, {4});
  const std::vector<float> want = f(x).to_vector<float>();
  for (int i = 0; i < 4; ++i) {
    const Tensor y = f(x.to(kGpu));
    EXPECT_EQ(y.device(), kGpu);
    EXPECT_EQ(y.to_vector<float>(), want) << i;
  }
}

}  // namespace
}  // namespace weft::internal
