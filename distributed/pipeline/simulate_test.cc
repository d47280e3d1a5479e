// Bubbles and activations of the schedules against published and computed figures (V9 to V12, V42 to V49), and times
// against the longest path. All numbers are integers, so every comparison is exact. A time of a stage stands for a
// whole rank; if a rank has v stages, each takes a vth of it, so a result in stages divided by v is a result in ranks.
#include "distributed/pipeline/simulate.h"

#include <gtest/gtest.h>

#include <random>

#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/testing/reference.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

using weft::testing::error_of;

struct Figures {
  double idle, idle_inside, alive;
  friend bool operator==(const Figures&, const Figures&) = default;
};
std::ostream& operator<<(std::ostream& os, const Figures& f) {
  return os << f.idle << " / " << f.idle_inside << " / " << f.alive;
}

Simulation simulated(const char* name, int p, int m, std::array<double, 3> fiw = {1, 1, 1}, int v = 0,
                     bool pairs = false) {
  const Table table = make_schedule(name, {.ranks = p, .stages_per_rank = v, .microbatches = m, .pairs = pairs});
  return simulate(table, StageLinks(table.stages()), ActionCosts::equal(table.stages(), fiw[0], fiw[1], fiw[2]));
}

/// Figures in times and activations of a rank; activations are rank 0's.
Figures figures(const char* name, int p, int m, std::array<double, 3> fiw = {1, 1, 1}, int v = 1, bool pairs = false) {
  const Simulation s = simulated(name, p, m, fiw, v, pairs);
  return {s.idle() / v, s.idle_inside() / v, s.ranks[0].activation / v};
}

std::vector<int> alive(const Simulation& s) {
  std::vector<int> all;
  for (const Simulation::RankUse& r : s.ranks) all.push_back(r.alive);
  return all;
}

constexpr std::array<double, 3> k231 = {2, 3, 1};

TEST(Bubble, V9GpipeFraction) {
  struct Row {
    int stages, microbatches;
    double fraction;
  };
  for (const Row& r :
       std::vector<Row>{{4, 4, .4286}, {4, 8, .2727}, {8, 8, .4667}, {8, 32, .1795}, {8, 64, .0986}, {16, 64, .1899}}) {
    const Simulation s = simulated("gpipe", r.stages, r.microbatches);
    EXPECT_EQ(s.idle() * (r.microbatches + r.stages - 1), (r.stages - 1) * s.makespan);
    EXPECT_NEAR(s.idle() / s.makespan, r.fraction, 0.5e-4);  // four digits are published
    EXPECT_NEAR(s.ranks[0].busy / s.makespan, 1 - r.fraction, 0.5e-4);
  }
}

TEST(Bubble, V10ShareOfTheIdeal) {
  const int p = 8, m = 32;
  auto share = [&](const char* name, int v) {
    const Simulation s = simulated(name, p, m, {1, 1, 1}, v);
    return s.idle() / s.ranks[0].busy;
  };
  EXPECT_EQ(share("1f1b", 1), 7. / 32);
  EXPECT_EQ(share("1f1b", 1), .21875);
  EXPECT_EQ(share("interleaved_1f1b", 4), 7. / (4 * 32));
  EXPECT_EQ(share("zb_h1", 1), 7. / (3 * 32));
}

TEST(Bubble, V11OneForwardOneBackwardSavesMemoryOnly) {
  for (const auto& [p, m] : {std::pair(4, 8), {8, 32}, {3, 7}, {6, 4}}) {
    const Simulation gpipe = simulated("gpipe", p, m), one = simulated("1f1b", p, m);
    EXPECT_EQ(gpipe.makespan, one.makespan);
    EXPECT_EQ(gpipe.idle(), one.idle());
    EXPECT_EQ(gpipe.ranks[0].alive, m);
    EXPECT_EQ(one.ranks[0].alive, std::min(m, p));
  }
}

// A fixed batch of B sequences on G devices: P stages give B P / G microbatches.
TEST(Bubble, V12FixedBatch) {
  auto share = [](int devices, int batch, int p) {
    const Simulation s = simulated("1f1b", p, batch * p / devices);
    return s.idle() / s.ranks[0].busy;
  };
  EXPECT_EQ(share(2000, 4000, 2), .25);
  EXPECT_EQ(share(2000, 4000, 4), .375);
  EXPECT_EQ(share(2000, 4000, 8), .4375);
  EXPECT_EQ(share(2000, 4000, 16), .46875);
  EXPECT_EQ(share(4000, 1000, 4), 3);
  EXPECT_EQ(share(4000, 1000, 8), 3.5);
  EXPECT_EQ(share(4000, 1000, 16), 3.75);
}

TEST(Bubble, V42Gpipe) {
  EXPECT_EQ(figures("gpipe", 4, 8), (Figures{9, 9, 8}));
  EXPECT_EQ(figures("gpipe", 8, 32), (Figures{21, 21, 32}));
  EXPECT_EQ(figures("gpipe", 4, 8, k231).idle, 18);
}

TEST(Bubble, V43OneForwardOneBackward) {
  EXPECT_EQ(figures("1f1b", 4, 8), (Figures{9, 9, 4}));
  EXPECT_EQ(alive(simulated("1f1b", 4, 8)), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(figures("1f1b", 8, 32), (Figures{21, 21, 8}));
  EXPECT_EQ(figures("1f1b", 4, 8, k231).idle, 18);
}

TEST(Bubble, V44Interleaved) {
  EXPECT_EQ(figures("interleaved_1f1b", 4, 8, {1, 1, 1}, 2), (Figures{4.5, 4.5, 5.5}));
  EXPECT_EQ(figures("interleaved_1f1b", 4, 8, {1, 1, 1}, 4), (Figures{2.25, 2.25, 4.75}));
  EXPECT_EQ(figures("interleaved_1f1b", 8, 32, {1, 1, 1}, 2), (Figures{10.5, 10.5, 11.5}));
  EXPECT_EQ(figures("interleaved_1f1b", 8, 32, {1, 1, 1}, 4), (Figures{5.25, 5.25, 9.75}));
  EXPECT_EQ(figures("interleaved_1f1b", 4, 8, k231, 2).idle, 9);
  EXPECT_EQ(figures("interleaved_1f1b", 4, 8, k231, 4).idle, 4.5);
  for (int p = 2; p <= 6; ++p)
    for (int v = 2; v <= 4; ++v) {
      const Simulation s = simulated("interleaved_1f1b", p, 4 * p, k231, v);
      EXPECT_EQ(s.idle(), (p - 1) * 6);
      EXPECT_EQ(s.ranks[0].alive, (v - 1) * p + 2 * (p - 1) + 1);
    }
}

TEST(Bubble, V45ZbH1) {
  EXPECT_EQ(figures("zb_h1", 4, 8), (Figures{3, 3, 4}));
  EXPECT_EQ(alive(simulated("zb_h1", 4, 8)), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(figures("zb_h1", 8, 32), (Figures{7, 7, 8}));
  EXPECT_EQ(figures("zb_h1", 4, 8, k231).idle, 12);
}

TEST(Bubble, V46Zb2p) {
  EXPECT_EQ(figures("zb_2p", 4, 8), (Figures{3, 0, 7}));
  EXPECT_EQ(figures("zb_2p", 8, 32), (Figures{7, 0, 15}));
  EXPECT_EQ(figures("zb_2p", 4, 8, k231).idle, 9);
}

TEST(Bubble, V47ZbV) {
  EXPECT_EQ(figures("zb_v", 4, 8, {1, 1, 1}, 2), (Figures{1.5, 0, 4}));
  EXPECT_EQ(figures("zb_v", 8, 32, {1, 1, 1}, 2), (Figures{3.5, 0, 8}));
  EXPECT_EQ(figures("zb_v", 4, 8, k231, 2).idle, 6);
}

TEST(Bubble, V48DualpipeV) {
  EXPECT_EQ(figures("dualpipe_v", 4, 8, {1, 1, 1}, 2, true), (Figures{3, 3, 4.5}));
  EXPECT_EQ(figures("dualpipe_v", 8, 32, {1, 1, 1}, 2, true), (Figures{7, 7, 8.5}));
  EXPECT_EQ(figures("dualpipe_v", 4, 8, k231, 2, true).idle, 9.5);
  EXPECT_EQ(figures("dualpipe_v", 4, 8, {1, 1, 1}, 2, false).idle, 1.5);
  EXPECT_EQ(figures("dualpipe_v", 8, 32, {1, 1, 1}, 2, false).idle, 3.5);
}

// Compares two ranks of one core each with one rank of two cores: makespan over busy time.
TEST(Bubble, V49TwoRanks) {
  for (int m : {4, 8}) {
    const Simulation one = simulated("1f1b", 2, m), zb = simulated("zb_h1", 2, m);
    EXPECT_EQ(one.makespan * m, one.ranks[0].busy * (m + 1));
    EXPECT_EQ(zb.makespan * 3 * m, zb.ranks[0].busy * (3 * m + 1));
  }
}

// The formulas for times other than F = I = W. The formulas of zb_v and dualpipe_v hold for equal times only.
TEST(Bubble, Formulas) {
  for (int p = 2; p <= 5; ++p)
    for (int m : {p, 2 * p - 1, 2 * p, 3 * p + 1})
      for (int time = 0; time < 64; ++time) {
        const double f = 1 + time % 4, i = 1 + time / 4 % 4, w = 1 + time / 16;
        SCOPED_TRACE(str_cat("p=", p, " m=", m, " F=", f, " I=", i, " W=", w));
        EXPECT_EQ(simulated("gpipe", p, m, {f, i, w}).idle(), (p - 1) * (f + i + w));
        EXPECT_EQ(simulated("1f1b", p, m, {f, i, w}).idle(), (p - 1) * (f + i + w));
        EXPECT_EQ(simulated("zb_h1", p, m, {f, i, w}).idle(), (p - 1) * std::max({f, i, f + i - w}));
        if (m < 2 * p - 1) continue;  // fewer microbatches do not fill the start of zb_2p
        const Simulation zb = simulated("zb_2p", p, m, {f, i, w});
        EXPECT_EQ(zb.idle(), (p - 1) * std::max({f, i - f, f + i - 2 * w}));
        EXPECT_EQ(zb.ranks[0].alive, 2 * p - 1);
        if (time || m < 2 * p) continue;
        EXPECT_EQ(simulated("zb_v", p, m).idle(), p - 1);  // in stages, (p - 1)(F + I - W)
        EXPECT_EQ(simulated("zb_v", p, m).idle_inside(), 0);
        EXPECT_EQ(simulated("dualpipe_v", p, m, {1, 1, 1}, 2, true).idle(), 2 * (p - 1));  // F&B + B - 3 W = 2
      }
}

/// Integers from `least` to 9.
ActionCosts random_costs(int stages, int links, std::mt19937_64& random, int least) {
  std::uniform_int_distribution<int> number(least, 9);
  ActionCosts costs = ActionCosts::equal(stages);
  for (auto& times : costs.times)
    for (double& t : times) t = number(random);
  for (int k = 0; k < links; ++k) costs.wire.push_back(number(random));
  for (int s = 0; s < stages; ++s) costs.activation.push_back(number(random));
  return costs;
}

TEST(Simulation, MakespanIsTheLongestPathAndThePeakTheCount) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 140; ++round) {
    const testing::Case c{schedule_names()[static_cast<size_t>(round) % 7], 1 + static_cast<int>(random() % 5),
                          10 + static_cast<int>(random() % 5)};
    SCOPED_TRACE(c.to_string());
    const Table table = make_schedule(c.name, {.ranks = c.ranks, .microbatches = c.microbatches});
    const StageLinks links(table.stages());
    const ActionCosts costs = random_costs(table.stages(), links.size(), random, round % 2);
    const Simulation s = simulate(table, links, costs);
    testing::Reference reference(table, links);
    EXPECT_EQ(s.makespan, reference.longest_path(costs));
    for (size_t r = 0; r < table.ranks.size(); ++r) {
      double busy = 0, first = -1, last = 0, size = 0, most_size = 0;
      int count = 0, most = 0;
      for (size_t i = 0; i < table.ranks[r].size(); ++i) {
        const Action& a = table.ranks[r][i];
        const auto [begin, end] = s.spans[r][i];
        EXPECT_EQ(end - begin, costs.time(a.stage, a.kind));
        busy += end - begin;
        if (end > begin && first < 0) first = begin;
        if (end > begin) last = end;
        const double activation = costs.activation[static_cast<size_t>(a.stage)];
        if (a.kind == ActionKind::kForward) ++count, size += activation;
        most = std::max(most, count);
        most_size = std::max(most_size, size);
        if (a.kind == ActionKind::kWeight || a.kind == ActionKind::kBackward) --count, size -= activation;
      }
      EXPECT_EQ(s.ranks[r].busy, busy);
      EXPECT_EQ(s.ranks[r].idle, s.makespan - busy);
      EXPECT_EQ(s.ranks[r].idle_inside, last - std::max(first, 0.) - busy);
      EXPECT_EQ(s.ranks[r].alive, most);
      EXPECT_EQ(s.ranks[r].activation, most_size);
    }
  }
}

TEST(Simulation, JoinedActionsBeginAndEndTogether) {
  // Rank 0 joins F of microbatch 1 with B of microbatch 0, which has to come back from rank 1.
  Table table = make_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const StageLinks links(2);
  ActionCosts costs = ActionCosts::equal(2, 2, 1, 2);  // B: 3
  std::vector<Action>& rank = table.ranks[0];
  ASSERT_EQ(rank[1].to_string(), "F of stage 0, microbatch 1");
  EXPECT_EQ(simulate(table, links, costs).spans[0][1].begin, 2);
  rank[1].with_next = true;
  for (double overlap : {0., .5, 1.}) {
    costs.overlap = overlap;
    const Simulation s = simulate(table, links, costs);
    for (size_t i : {1u, 2u}) {
      EXPECT_EQ(s.spans[0][i].begin, 7);
      EXPECT_EQ(s.spans[0][i].end, 7 + 2 + 3 - overlap * 2);
    }
    EXPECT_EQ(s.ranks[0].busy, 2 + 5 - overlap * 2 + 3);
    EXPECT_EQ(s.ranks[0].idle, s.makespan - s.ranks[0].busy);
  }
}

TEST(Simulation, Errors) {
  const Table table = make_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  auto error = [&](const std::function<void(ActionCosts&)>& change) {
    ActionCosts costs = ActionCosts::equal(2);
    change(costs);
    return error_of([&] { simulate(table, StageLinks(2), costs); });
  };
  EXPECT_EQ(error([](ActionCosts&) {}), "");
  EXPECT_EQ(error([](ActionCosts& c) { c.times.pop_back(); }), "pipeline simulation: got times of 1 stages; need 2");
  EXPECT_EQ(error([](ActionCosts& c) { c.time(1, ActionKind::kWeight) = -1; }),
            "pipeline simulation: got -1 as a time of stage 1; need a finite number of 0 or more");
  EXPECT_EQ(error([](ActionCosts& c) {
              c.wire = {1, 2};
            }),
            "pipeline simulation: got times of 2 links; need 1 or none");
  EXPECT_EQ(error([](ActionCosts& c) { c.wire = {HUGE_VAL}; }),
            "pipeline simulation: got inf as the time of link 0; need a finite number of 0 or more");
  EXPECT_EQ(error([](ActionCosts& c) {
              c.activation = {1, NAN};
            }),
            "pipeline simulation: got nan as the activation of stage 1; need a finite number of 0 or more");
  EXPECT_EQ(error([](ActionCosts& c) { c.activation = {1}; }),
            "pipeline simulation: got activations of 1 stages; need 2 or none");
  EXPECT_EQ(error([](ActionCosts& c) { c.overlap = 2; }),
            "pipeline simulation: got an overlap of 2; need one from 0 to 1");
}

}  // namespace
}  // namespace weft::dist::pipeline
