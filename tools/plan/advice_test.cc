// What changes of hardware and of a workload mean, and the limits of models with experts.
#include "tools/plan/advice.h"

#include <gmock/gmock.h>

#include "framework/base/testing/error_of.h"

namespace weft::planner {
namespace {

Workload of(const char* model) {
  return {
      .model = preset_shape(model), .machine = machine_preset("h100-sxm"), .gpus = 64, .batch = 512, .sequence = 4096};
}

TEST(WhatIf, TheOrderOfChangesDoesNotMatter) {
  for (const char* changes : {"batch=1000,seq=8192", "seq=8192,batch=1000"}) {
    const Workload w = what_if(of("llama-8b"), changes);
    EXPECT_EQ(w.batch, 1000) << changes;
    EXPECT_EQ(w.sequence, 8192) << changes;
  }
  EXPECT_EQ(what_if(of("llama-8b"), "seq=8192").batch, 256);
  EXPECT_EQ(what_if(of("llama-8b"), "batch=2x,seq=8192").batch, 512);
}

TEST(WhatIf, OtherGpusGetABatchThatSuitsThemUnlessItIsGiven) {
  EXPECT_EQ(what_if(of("llama-8b"), "gpus=500,batch=990", true).batch, 990);
  EXPECT_EQ(what_if(of("llama-8b"), "gpus=500", true).batch, 500);
  EXPECT_EQ(what_if(of("llama-8b"), "gpus=500").batch, 512);
}

TEST(WhatIf, BandwidthIsThatOfEveryWorkingSet) {
  Workload w = of("llama-8b");
  w.machine.memory_rates = {{1e6, 1e12, 2e12, 3e12}};
  const Machine m = what_if(w, "bandwidth=2x").machine;
  EXPECT_EQ(m.bytes, 2 * w.machine.bytes);
  EXPECT_EQ(m.memory_rates[0].read, 2e12);
  EXPECT_EQ(m.memory_rates[0].write, 4e12);
  EXPECT_EQ(m.memory_rates[0].copy, 6e12);
  EXPECT_THAT(weft::testing::error_of([&] { what_if(w, "batch=0.0001x"); }),
              ::testing::HasSubstr("batch becomes 0.0512"));
}

// Mixtral gathers 46.7 B parameters and multiplies 12.9 B of them.
TEST(Limits, UnusedExpertsHideNoCommunication) {
  EXPECT_EQ(of("llama-8b").model.used_share(), 1);
  const Workload mixtral = of("mixtral-8x7b");
  EXPECT_NEAR(mixtral.model.used_share(), 12.9 / 46.7, 0.002);
  EXPECT_NEAR(limits_of(mixtral).communication / limits_of(of("llama-8b")).communication, 12.9 / 46.7, 0.002);
}

}  // namespace
}  // namespace weft::planner
