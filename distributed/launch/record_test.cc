// Compiled::record() of a step on a mesh: one record for each rank, with its collectives.
#include "compiler/exec/record/record.h"

#include <gtest/gtest.h>

#include <set>

#include "distributed/launch/compile.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::error_of;

struct Step {
  Parameter up{sin(arange(16 * 32)).reshape({16, 32}), "up"}, down{cos(arange(32 * 4)).reshape({32, 4}), "down"};
  Tensor operator()(const Tensor& x) const {
    const Tensor loss = mean(square(matmul(tanh(matmul(x, up)), down)));
    const std::vector<Tensor> g = grad(loss, std::vector<Parameter>{up, down});
    up.set(up.value() - g[0] * 0.1);
    down.set(down.value() - g[1] * 0.1);
    return loss;
  }
};

TEST(MeshRecord, HasEachRanksLaunchesAndCollectives) {
  const Step model;
  const CompileOptions on_mesh{.mesh = Mesh::parse("dp2,tp2"),
                               .plan = Plan{{"up", {{"tp", Shard(1)}}}, {"down", {{"tp", Shard(0)}}}}};
  auto step = dist::compile([&](Tensor x) { return model(x); }, on_mesh);
  const Tensor x = sin(arange(8 * 16)).reshape({8, 16});
  for (int i = 0; i < 5; ++i) step(x);
  const std::vector<PlannedCollective> planned = step.plan().collectives();
  ASSERT_FALSE(planned.empty());
  for (int rank = 0; rank < 4; ++rank) {
    const StepRecord r = step.record(rank);
    EXPECT_EQ(r.mesh, "dp2,tp2");
    EXPECT_EQ(r.rank, rank);
    std::set<std::string> axes, of_plan;
    size_t collectives = 0;
    for (const LaunchRecord& l : r.launches) {
      EXPECT_GT(l.measured_us, 0) << l.name;
      if (l.axes.empty()) continue;
      ++collectives;
      EXPECT_EQ(l.kind, WorkClass::kCollective) << l.name;
      EXPECT_GT(l.predicted_us, 0) << l.name;
      // Two ranks: an all-reduce sends each byte once, an all-gather or reduce-scatter half of them.
      EXPECT_GT(l.sent, 0) << l.name;
      axes.insert(l.axes);
    }
    for (const PlannedCollective& c : planned) of_plan.insert(c.axes);
    EXPECT_EQ(collectives, planned.size());
    EXPECT_EQ(axes, of_plan);
    EXPECT_GT(r.sum(Phase::kBackward).launches, 0);
    EXPECT_EQ(r.peak_bytes, step.stats().planned_peak_bytes);
    EXPECT_EQ(StepRecord::from_proto(r.to_proto()).to_json(), r.to_json());
  }
  EXPECT_EQ(error_of([&] { step.record(4); }), "record: got rank 4; need 0 to 3 of mesh dp2,tp2");
  auto alone = weft::compile([](Tensor v) { return v * 2.0; });
  alone(x);
  EXPECT_EQ(error_of([&] { alone.record(1); }), "record: got rank 1; need 0 for a step on one device");
}

}  // namespace
}  // namespace weft::dist
