// The limits of models with experts.
#include "tools/plan/report/advice.h"

#include <gtest/gtest.h>

namespace weft::planner {
namespace {

Workload of(const char* model) {
  return {
      .model = preset_shape(model), .machine = machine_preset("h100-sxm"), .gpus = 64, .batch = 512, .sequence = 4096};
}

// Mixtral gathers 46.7 B parameters and multiplies 12.9 B of them.
TEST(Limits, UnusedExpertsHideNoCommunication) {
  EXPECT_EQ(of("llama-8b").model.used_share(), 1);
  const Workload mixtral = of("mixtral-8x7b");
  EXPECT_NEAR(mixtral.model.used_share(), 12.9 / 46.7, 0.002);
  const Limits few = limits_of(mixtral), all = limits_of(of("llama-8b"));
  EXPECT_NEAR(few.closed_form / all.closed_form, 12.9 / 46.7, 0.002);
  EXPECT_LT(few.communication, 0.6 * all.communication);
}

// A plan of fully sharded data parallelism alone waits for little of its communication up to the limit, and for much
// beyond it.
TEST(Limits, AreThoseOfThePlans) {
  for (const char* model : {"llama-8b", "llama-70b"}) {
    Workload w = of(model);
    const auto exposed = [&](double gpus) {
      w.gpus = static_cast<int>(gpus);
      w.batch = w.gpus;
      w.sequence = static_cast<int64_t>(512. * 8192 / gpus);  // the same tokens on any number of GPUs
      const StepCost c = step_cost(w, {.fsdp = w.gpus, .zero = 3});
      return c.exposed_data / c.step;
    };
    w.batch = 512;
    w.sequence = 8192;
    const double limit = limits_of(w).communication;
    EXPECT_LT(exposed(0.8 * limit), 0.1) << model << " " << limit;
    EXPECT_GT(exposed(1.5 * limit), 0.2) << model << " " << limit;
  }
}

TEST(Limits, AreLargeWhereCommunicationIsFree) {
  Workload w = of("llama-8b");
  w.batch = 1 << 20;
  w.sequence = 1 << 20;
  EXPECT_EQ(limits_of(w).communication, kMostGpus);
}

}  // namespace
}  // namespace weft::planner
