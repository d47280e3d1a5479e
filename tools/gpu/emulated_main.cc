// main() that gives each test an emulated GPU of its own: what runs on a GPU one day runs here first, shrunk.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"

namespace {

class Emulate : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    // Races are looked for where each kernel is tested; here the check's own code is.
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
