// NVRTC and cuBLASLt are found and fit the driver. Without them the other tests on a GPU have little to run.
#include <gtest/gtest.h>

#include <cstdio>

#include "compiler/targets/cuda/nvrtc/library.h"
#include "framework/cuda/libraries/cublaslt.h"
#include "framework/cuda/libraries/driver_api.h"

namespace weft::testing {
namespace {

TEST(Libraries, AreFound) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  EXPECT_EQ(cuda::nvrtc().unavailable, "");
  EXPECT_EQ(cuda::cublaslt_library().unavailable, "");
  std::printf("NVRTC %s\ncuBLASLt %s\n", cuda::nvrtc().path.c_str(), cuda::cublaslt_library().path.c_str());
}

}  // namespace
}  // namespace weft::testing
