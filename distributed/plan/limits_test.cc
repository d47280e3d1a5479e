// The limits of scaling against published figures.
#include "distributed/plan/limits.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

TEST(Limits, FullyShardedBreaksEvenAt4000) {
  EXPECT_NEAR(fsdp_comm_seconds(70e9, 2, 200e9), 2.1, 1e-12);
  EXPECT_NEAR(train_compute_seconds(70e9, 4e6, 200e12, 4000), 2.1, 1e-12);
  // Half the bandwidth and twice the tokens: both take twice as long.
  EXPECT_NEAR(fsdp_comm_seconds(70e9, 2, 100e9), 4.2, 1e-12);
  EXPECT_NEAR(train_compute_seconds(70e9, 8e6, 200e12, 4000), 4.2, 1e-12);
  // Twice the ranks: half the compute, the same communication.
  EXPECT_NEAR(train_compute_seconds(70e9, 4e6, 200e12, 8000), 1.05, 1e-12);
  EXPECT_NEAR(fsdp_comm_limit(4e6, 200e9, 200e12), 4000, 1e-9);
  EXPECT_NEAR(fsdp_comm_limit(4e6, 200e9, 8 * 200e12), 500, 1e-9);
  EXPECT_NEAR(fsdp_comm_limit(4e6, 20e9, 200e12), 400, 1e-9);
  EXPECT_NEAR(fsdp_batch_limit(8e6, 8192), 976.6, 0.05);
  EXPECT_NEAR(fsdp_batch_limit(8e6, 8000), 1000, 1e-9);
}

TEST(Limits, FourCases) {
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

TEST(Limits, ExpertsAndLatency) {
  EXPECT_EQ(dispatch_bytes(4096, 2, 1024, 8), 4096.0 * 2 * 1024 * 2 * 7 / 8);
  const double skewed[8] = {0.9, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7};
  EXPECT_NEAR(expert_skew(skewed, 8), 7.2, 1e-12);
  EXPECT_NEAR(latency_floor(100, 4, 30e-6), 12e-3, 1e-15);
  EXPECT_NEAR(latency_floor(100, 4, 30e-6) * 1e6 / 3600, 3.3, 0.05);
}

}  // namespace
}  // namespace weft::dist
