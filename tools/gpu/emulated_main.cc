// main() that gives each test its own emulated GPU, so that tests for a GPU also run without one, at small sizes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"

namespace {

class Emulate : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    // Each kernel's own tests look for races; these tests check the code of the check.
    gpu_.emplace(weft::cuda::testing::EmulatedGpuOptions{.races = false});
  }
  void OnTestEnd(const ::testing::TestInfo&) override { gpu_.reset(); }
  std::optional<weft::cuda::testing::ScopedEmulatedGpu> gpu_;
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("WEFT_GPU_CHECK_SMALL", "1", 1);
  ::testing::UnitTest::GetInstance()->listeners().Append(new Emulate);
  return RUN_ALL_TESTS();
}
