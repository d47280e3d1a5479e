#include "distributed/replica/replica_step.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "distributed/control/group/group_server.h"
#include "framework/base/testing/error_of.h"
#include "weft.h"

namespace weft::dist {
namespace {

// A replica that comes back would keep its own value of a cell that is missing, so it must not train without a word.
TEST(ReplicaStep, NamesTheCellsThatItsStateLacks) {
  const control::GroupServer server({.token = "secret", .replicas = 2});
  ::setenv("REPLICAS", server.address().c_str(), 1);
  ::setenv("REPLICAS_TOKEN", "secret", 1);
  ::setenv("REPLICA", "a", 1);
  Job job({.ranks = 1});
  const Parameter w(ones({2}), "w");
  const Buffer mean(zeros({2}), "mean");
  const auto train = [&](Tensor x) {
    const Tensor loss = (w * x).sum();
    mean.set(mean + x.mean({0}));
    return loss;
  };
  const auto batch = [](int64_t, int64_t rows) { return std::tuple(ones({rows, 2})); };
  ReplicaStep step(job, train, batch, {.mesh = Mesh::parse("replica2")}, {.rows = 1, .cells = {{"w", w}}});
  const std::string error = testing::error_of([&] { step.enter(); });
  EXPECT_NE(error.find("the step uses 1 cells that ReplicaStepOptions::cells lacks: mean f32[2]; need all cells"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace weft::dist
