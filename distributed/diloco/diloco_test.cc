// Diloco makes a run again from a journal, in one process.
#include "distributed/diloco/diloco.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "distributed/control/group/group.h"
#include "distributed/control/service/journal.h"
#include "distributed/launch/job.h"
#include "framework/base/testing/error_of.h"
#include "weft.h"

namespace weft::dist {
namespace {

std::string journal_of_two() {
  const std::string path = ::testing::TempDir() + "/diloco_test.journal";
  std::filesystem::remove(path);
  const control::GroupState state{.config = {.job = "test", .replicas = 2}};
  control::Journal file(path, control::title_of(state), [](const std::string&) { return "it is new"; });
  file.append(control::record_of({.number = 1, .members = {{"a", 1}, {"b", 1}}}));
  return path;
}

TEST(Diloco, FinishNeedsTheEndOfAnExchange) {
  Job job({});
  manual_seed(1);
  const nn::Linear net(4, 4);
  optim::SGD opt(net.parameters(), 0.1);
  const auto train_step = [&](Tensor x) {
    Tensor loss = mse_loss(net(x), x);
    opt.minimize(loss);
    return loss;
  };
  const auto batch = [](int64_t first, int64_t rows) {
    return std::tuple(sin(arange(4 * first, 4 * (first + rows)).to(kFloat32).reshape({rows, 4})));
  };
  Diloco step(job, train_step, batch, {.mesh = Mesh::parse("replica2")},
              {.rows = 2, .cells = net.named_cells(), .journal = journal_of_two()},
              {.every = 4, .fragments = 2, .delay = 3, .steps = 8});
  ASSERT_TRUE(step.enter());
  ASSERT_TRUE(step().has_value());
  EXPECT_FALSE(step.exchanged());
  EXPECT_EQ(testing::error_of([&] { step.finish(); }),
            "diloco: got finish() after step 1, before the exchange of the latest steps has ended; need a call where "
            "exchanged() is true");
  std::vector<int64_t> ends;
  while (step.enter()) {
    if (step.exchanged()) ends.push_back(step.position().step);
    if (step.position().step == 8)
      step.finish();
    else
      step();
  }
  EXPECT_EQ(ends, (std::vector<int64_t>{5, 7, 8}));
  EXPECT_EQ(step.position().samples, 2 * 8 * 2);
}

}  // namespace
}  // namespace weft::dist
