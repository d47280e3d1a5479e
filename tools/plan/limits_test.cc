// The limits of scaling against published figures.
#include "tools/plan/limits.h"

#include <gtest/gtest.h>

namespace weft::planner {
namespace {

TEST(Limits, V3AndV5FullySharded) {
  EXPECT_NEAR(fsdp_comm_limit(8e6, 100e9, 200e12), 4000, 1e-9);
  EXPECT_NEAR(fsdp_batch_limit(8e6, 8192), 976.6, 0.05);
  EXPECT_NEAR(fsdp_batch_limit(8e6, 8000), 1000, 1e-9);
}

TEST(Limits, V6FourCases) {
  auto first = [](double gpus) {
    return scale_case(gpus, fsdp_comm_limit(8e6, 200e9, 200e12), fsdp_batch_limit(8e6, 8000));
  };
  EXPECT_EQ(first(500), ScaleCase::kFsdp);
  EXPECT_EQ(first(2000), ScaleCase::kBatch);
  EXPECT_EQ(first(10000), ScaleCase::kBoth);
  auto second = [](double gpus) {
    return scale_case(gpus, fsdp_comm_limit(8e6, 50e9, 200e12), fsdp_batch_limit(8e6, 1000));
  };
  EXPECT_EQ(second(4000), ScaleCase::kComm);
  EXPECT_EQ(second(16000), ScaleCase::kBoth);
}

// Eight experts, one on each rank; 90 % of the tokens choose the same one.
TEST(Limits, V29Experts) {
  EXPECT_EQ(dispatch_bytes(4096, 2, 1024, 8), 4096.0 * 2 * 1024 * 2 * 7 / 8);
  const double skewed[8] = {0.9, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7};
  EXPECT_NEAR(expert_skew(skewed, 8), 7.2, 1e-12);
}

}  // namespace
}  // namespace weft::planner
