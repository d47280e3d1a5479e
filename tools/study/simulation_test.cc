// The simulations agree with the closed forms within their error bars. Seeds are fixed. A right simulation is beyond 4
// standard errors in less than one of 10,000 cases.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/io/json.h"
#include "tools/study/diloco.h"
#include "tools/study/failures.h"
#include "tools/study/studies.h"

namespace weft::study {
namespace {

constexpr double kErrors = 4;

void expect_agrees(const TimeEstimate& e, double closed, double most_error) {
  ASSERT_GT(e.samples, 1);
  EXPECT_LE(std::abs(e.mean - closed), kErrors * e.error + 1e-9 * closed);
  EXPECT_LE(e.error, most_error * closed);  // so that agreement is significant
}

TEST(Estimate, MeanAndErrorOfKnownSamples) {
  double x = 0;
  const TimeEstimate e = estimate(4, [&] { return ++x; });  // 1 2 3 4
  EXPECT_EQ(e.mean, 2.5);
  EXPECT_DOUBLE_EQ(e.error, std::sqrt(5. / 3 / 4));
  EXPECT_EQ(estimate(0, [] { return 1.; }).samples, 0);
}

TEST(Simulation, RestartAgreesWithTheClosedForm) {
  Random random(1);
  for (const Restart& r : {Restart{.between = 864, .checkpoint = 60, .restart = 300},
                           Restart{.between = 17280, .checkpoint = 60, .restart = 300},
                           Restart{.between = 200, .checkpoint = 60, .restart = 300},
                           Restart{.between = 15, .checkpoint = 0.1, .restart = 3}})
    for (double interval : {young_interval(r) / 3, young_interval(r), 2 * daly_interval(r)}) {
      SCOPED_TRACE(interval);
      expect_agrees(simulate_interval(r, interval, 20000, 1e6, random), interval_seconds(r, interval), 0.02);
    }
}

TEST(Simulation, TooManyFailuresGiveNoSamples) {
  Random random(1);
  EXPECT_EQ(simulate_interval({.between = 10, .checkpoint = 60, .restart = 300}, 60, 20000, 1e6, random).samples, 0);
  EXPECT_EQ(simulate_drop({.between = 1, .rejoin = 1e6}, 200, 100, 1e6, random).samples, 0);
}

TEST(Simulation, DropAgreesWithTheClosedForm) {
  Random random(2);
  for (const Drop& d : {Drop{.between = 15, .replicas = 4, .stall = 0.3, .rejoin = 3},
                        Drop{.between = 864, .replicas = 625, .stall = 30, .rejoin = 180},
                        Drop{.between = 100, .replicas = 2, .stall = 50, .rejoin = 300},
                        Drop{.between = 100, .replicas = 1, .stall = 10, .rejoin = 40}})
    expect_agrees(simulate_drop(d, 200, 100, 1e6, random), drop_goodput(d), 0.02);
}

// The first order is accurate if failures are rare, and a simulation without failures finds no loss.
TEST(Simulation, FirstOrder) {
  const Drop d{.between = 1e6, .replicas = 8, .stall = 30, .rejoin = 180};
  EXPECT_NEAR(drop_goodput(d), drop_goodput_first_order(d), 1e-8);
  EXPECT_EQ(drop_run({}, {}, 100).back().work, 100);
  EXPECT_EQ(restart_run({.checkpoint = 0}, 10, {}, 100).back().work, 100);
}

// Daly's interval costs less than its neighbours, and no more than Young's.
TEST(ClosedForm, DalysIntervalIsTheBest) {
  for (double between : {200., 864., 17280., 1e6}) {
    const Restart r{.between = between, .checkpoint = 60, .restart = 300};
    const double best = daly_interval(r), goodput = restart_goodput(r, best);
    EXPECT_GE(goodput, restart_goodput(r, young_interval(r)));
    EXPECT_GT(goodput, restart_goodput(r, best * 1.3)) << between;
    EXPECT_GT(goodput, restart_goodput(r, best / 1.3)) << between;
  }
}

TEST(Run, RestartByHand) {
  // Work 10, checkpoint 1. The failure at 15 loses the 4 after the checkpoint at 11; the failure at 17 begins the
  // restart again.
  const auto points = restart_run({.checkpoint = 1, .restart = 5}, 10, {{15, 0}, {17, 0}}, 30);
  std::vector<std::pair<double, double>> got;
  for (const RunPoint& p : points) got.emplace_back(p.time, p.work);
  const std::vector<std::pair<double, double>> need{{0, 0}, {10, 10}, {11, 10}, {15, 14}, {15, 10}, {22, 10}, {30, 18}};
  EXPECT_EQ(got, need);
}

TEST(Run, DropByHand) {
  // Two replicas: all stall for 1, then half of the work for 4; a failure of the other one on top stops all.
  const Drop d{.replicas = 2, .stall = 1, .rejoin = 4};
  EXPECT_EQ(drop_run(d, {{10, 0}}, 20).back().work, 10 + 2 + 5);
  EXPECT_EQ(drop_run(d, {{10, 0}, {12, 1}}, 20).back().work, 10 + 0.5 + 0 + 0 + 2 * 0.5 + 3);
  EXPECT_EQ(drop_run(d, {{10, 0}, {12, 0}}, 20).back().work, 10 + 0.5 + 4 * 0.5 + 3);  // the same one again
  EXPECT_EQ(drop_run(d, {{-2, 0}}, 20).back().work, 3 * 0.5 + 17);
}

/// The goodput of a drill in which launchers report deaths, from the JSON of the study.
double drill_goodput(FaultOptions o) {
  o.seeds = 1;
  const StudyReport report = fault_study(o, {});
  EXPECT_EQ(report.problem, "");
  return io::parse_json(report.json, "the report")["drill"][0]["goodput"].get<double>();
}

// V50 on the shipped protocol. Its stall of 0.3 s: the groups of two views, and the state.
TEST(Faults, TheDrillHasTheGoodputOfTheClosedForm) {
  EXPECT_NEAR(drill_goodput({.step = 0.05, .stall = 0.1, .again = 3, .heal = 0.1}), 0.93, 0.004);
  EXPECT_NEAR(drill_goodput({.step = 0.02, .stall = 0.01, .again = 1.5, .heal = 0.01}), 0.973, 0.004);
  EXPECT_GE(drill_goodput({}), 0.96);  // the defaults are measured
  EXPECT_NEAR(drill_goodput({.replicas = 8, .between = 30, .step = 0.1, .stall = 0.2, .again = 10, .heal = 1}),
              drop_goodput_first_order({.between = 30, .replicas = 8, .stall = 1.4, .rejoin = 10}), 0.01);
}

TEST(Faults, AFailedScheduleIsPrintedAndNamed) {
  const StudyReport report = fault_study({.seeds = 5, .limit_ms = 100, .minutes = 0.1}, {.seed = 40});
  EXPECT_NE(report.text.find("seed 40: "), std::string::npos) << report.text;
  EXPECT_NE(report.text.find("starts from step 0"), std::string::npos) << report.text;
  EXPECT_EQ(report.text.find("None failed"), std::string::npos) << report.text;
  EXPECT_NE(report.problem.find("replicas have not ended after 100 ms; to run it again, use --faults 1 --seed 4"),
            std::string::npos)
      << report.problem;
}

TEST(Simulation, ExchangesAgreeWithTheClosedForm) {
  std::mt19937_64 random(3);
  const Network slow{.bandwidth = 1e8, .latency = 0.05};
  for (const auto& [o, jitter] :
       {std::pair{Outer{.steps = 1}, 0.}, std::pair{Outer{.steps = 1}, 0.1}, std::pair{Outer{.steps = 100}, 0.2},
        std::pair{Outer{.replicas = 64}, 0.2}, std::pair{Outer{.steps = 100, .fragments = 5, .overlap = 4}, 0.},
        std::pair{Outer{.steps = 100, .fragments = 5, .overlap = 20}, 0.}}) {
    const StepTime s{.mean = 1, .jitter = jitter};
    ASSERT_TRUE(has_closed_form(o, s));
    const TimeEstimate e = simulate_segment(o, slow, s, 200, random);
    expect_agrees(e, segment_compute(o, s) / utilisation(o, slow, s), 0.01);
  }
}

TEST(ClosedForm, MeanOfTheLargest) {
  EXPECT_NEAR(mean_of_largest(1), 0, 1e-9);
  EXPECT_NEAR(mean_of_largest(2), 1 / std::sqrt(M_PI), 1e-6);
  EXPECT_NEAR(mean_of_largest(3), 1.5 / std::sqrt(M_PI), 1e-6);
  EXPECT_NEAR(mean_of_largest(10), 1.53875, 1e-5);  // Tippett 1925
}

}  // namespace
}  // namespace weft::study
