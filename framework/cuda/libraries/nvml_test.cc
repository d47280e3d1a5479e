#include "framework/cuda/libraries/nvml.h"

#include <gtest/gtest.h>

namespace weft::cuda {
namespace {

// Without NVML or such a GPU there is a reason, and readings are 0.
TEST(Nvml, SaysWhyThereIsNone) {
  const Nvml none("ffff:ff:1f.0");
  EXPECT_NE(none.why_not(), "");
  EXPECT_EQ(none.watts(), 0);
  EXPECT_EQ(none.clock_mhz(), 0);
}

}  // namespace
}  // namespace weft::cuda
