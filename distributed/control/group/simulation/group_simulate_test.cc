// Schedules of faults by seeds, and replicas that fail again and again.
//   --schedules=N  number of schedules (20000; 2000 under sanitizers)    --seed=S  the first seed
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "distributed/control/group/simulation/simulation.h"
#include "framework/base/testing/number_flags.h"

namespace weft::control {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int64_t g_schedules = 2000;
#else
int64_t g_schedules = 20000;
#endif
uint64_t g_seed = 1;

TEST(GroupSimulate, Schedules) {
  const SeedRuns all = simulate_seeds(g_seed, g_schedules, 2);
  for (const auto& [seed, problem] : all.failures) {
    ADD_FAILURE() << "--schedules=1 --seed=" << seed << ": " << problem;
    for (const std::string& line : simulate(schedule_of(seed), true).log) std::printf("%s\n", line.c_str());
  }
  std::printf("%s\n", text_of(all).c_str());
  if (g_schedules >= 1000) {  // each path was taken
    for (int64_t GroupCounts::*count :
         {&GroupCounts::doubts, &GroupCounts::retries, &GroupCounts::heals, &GroupCounts::failed_heals,
          &GroupCounts::fenced, &GroupCounts::begun_again, &GroupCounts::lived_on})
      EXPECT_GT(all.counts.*count, 0);
  }
}

TEST(GroupSimulate, ARunThatDoesNotEndIsAFailureThatCanBeRunAgain) {
  const SeedRuns all = simulate_seeds(1, 3, 2, 100);
  ASSERT_EQ(all.failures.size(), 3u);
  EXPECT_EQ(all.failures[1].first, 2u);
  EXPECT_NE(all.failures[1].second.find("replicas have not ended after 100 ms"), std::string::npos);
  const auto log = simulate(schedule_of(2), true).log;
  EXPECT_EQ(log, simulate(schedule_of(2), true).log);
  EXPECT_TRUE(std::ranges::any_of(log, [](const auto& line) { return line.find("starts from step 0") != line.npos; }));
}

// Without failures, all steps follow each other: replicas x time / step parts, less the start.
TEST(GroupSimulate, DrillWithoutFailures) {
  const Drill d{.time = 20000};
  GroupSchedule s = schedule_of(d, 1);
  s.faults.clear();
  const GroupRun run = simulate(s);
  EXPECT_EQ(run.problem, "");
  EXPECT_EQ(run.counts.views, 1);
  EXPECT_EQ(run.lost, 0);
  EXPECT_EQ(run.longest, d.step);
  EXPECT_GE(run.parts, d.replicas * (d.time / d.step - 20));
  EXPECT_LE(run.parts, d.replicas * d.time / d.step);
  ASSERT_EQ(run.progress.size(), 3u);  // the start, and the first and the last step of the view
  EXPECT_EQ(run.progress[1].second, d.replicas);
  EXPECT_EQ(run.progress[2].second, run.parts);
}

// Each death costs at most one step. The shipped protocol stalls for messages and groups, and with a
// closed connection or a stopped process the time until the service counts the process as gone.
TEST(GroupSimulate, DrillFaults) {
  using Fault = Drill::Fault;
  for (const auto& [fault, gone] : {std::pair(Fault::kReported, 0), {Fault::kClosed, 400}, {Fault::kStopped, 2000}}) {
    const Drill d{.time = 150000, .fault = fault};
    const GroupRun run = simulate(schedule_of(d, 2));
    SCOPED_TRACE(gone);
    EXPECT_EQ(run.problem, "");
    EXPECT_EQ(run.counts.views, 1 + 2 * 10);  // a death and a return in each interval
    EXPECT_EQ(run.counts.heals, 10);
    EXPECT_GT(run.lost, 0);
    EXPECT_LE(run.lost, 10);
    EXPECT_GE(run.longest, gone + d.form);
    EXPECT_LE(run.longest, gone + d.form + 300);  // ticks and beats
    EXPECT_GE(run.longest_of_heal, d.form + d.heal);
    EXPECT_LE(run.longest_of_heal, d.form + d.heal + 50);
  }
}

}  // namespace
}  // namespace weft::control

int main(int argc, char** argv) {
  using namespace weft::control;
  if (!weft::testing::read_flags(argc, argv, {{"schedules", &g_schedules}, {"seed", &g_seed}})) return 2;
  return RUN_ALL_TESTS();
}
